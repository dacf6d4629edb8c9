"""What a checkpoint says of the fit that it belongs to, so that another fit does not go on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cavity.files.json_values import to_json
from cavity.runtime.distributed import Workers
from cavity.training import Keeper
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

    def keeper(self, name: str) -> Keeper | None:
        """What keeps the fit of this name."""
        if self._main is None:
            return None
        checkpoints = self._main if name == "fit" else Checkpoints(Path(self._main.folder) / name)
        settings = {n: to_json(value, hash_arrays=True) for n, value in self._params.items() if n not in MAY_CHANGE}
        about = {"settings": settings, "data": to_json(self.fingerprint, hash_arrays=True), "seed": self._seed}
        return Keeper(checkpoints, about, self._params["checkpoint_seconds"], self._resume)
