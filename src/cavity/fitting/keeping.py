"""What a checkpoint says of the fit that it belongs to, so that another fit does not go on from it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from cavity.runtime.distributed import Workers
from cavity.training import Checkpointer
from cavity.training.checkpoint import Checkpoints

MAY_CHANGE = ("checkpoint", "checkpoint_seconds", "verbose")


class Keeping:
    """The checkpoints of one call of `fit`: those of the fit itself, and in folders inside of its folds.

    Args:
        params: the arguments of the classifier.
        resume: whether to go on from the last checkpoint.
        workers: the processes that train together.
    """

    def __init__(self, params: dict[str, Any], resume: bool, workers: Workers) -> None:
        self.fingerprint: dict[str, Any] = {}  # of the data, once it is known
        self._params, self._resume, self._ranks, self._seed = params, resume, workers, 0
        self._main = None if params["checkpoint"] is None else Checkpoints(params["checkpoint"])

    @property
    def is_on(self) -> bool:
        """Whether there are checkpoints at all."""
        return self._main is not None

    def seed(self, drawn: int) -> int:
        """The seed of the fit: the same on all workers, that of the checkpoint where `random_state` leaves it open."""
        if self._main is not None and self._resume and self._params["random_state"] is None:
            saved = self._main.latest()
            drawn = drawn if saved is None else saved.meta()["about"]["seed"]
        self._seed = self._ranks.same(drawn)
        return self._seed

    def keeper(self, name: str) -> Checkpointer | None:
        """What keeps the fit of this name."""
        if self._main is None:
            return None
        checkpoints = self._main if name == "fit" else Checkpoints(Path(self._main.folder) / name)
        settings = {n: _plain(value) for n, value in self._params.items() if n not in MAY_CHANGE}
        about = {"settings": settings, "data": _plain(self.fingerprint), "seed": self._seed}
        return Checkpointer(checkpoints, about, self._params["checkpoint_seconds"], self._resume, self._ranks)


def _plain(value: Any) -> Any:
    """As JSON has it; what JSON has no word for by its text."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}, {hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
