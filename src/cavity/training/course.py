"""Where training stands, and how it is kept for another day."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from cavity.inference import RowSites
from cavity.runtime.distributed import Workers
from cavity.training.checkpoint import Checkpoints, Saved, check_same
from cavity.training.fixed_point import leaves

if TYPE_CHECKING:
    from cavity.training.loop import Trainer

ASK_EVERY = 8  # steps after which workers agree whether a checkpoint is due


@runtime_checkable
class Remembers(Protocol):
    """What has a past that its next step depends on."""

    def kept(self) -> dict[str, Tensor]:
        """All of it."""

    def restore(self, kept: dict[str, Tensor]) -> None:
        """Go on from there."""


@dataclass
class Course:
    """θ and state, whole epochs behind them, and of this one the steps made, those that worked, their objectives."""

    theta: Tensor
    state: Any
    epoch: int = 0
    step: int = 0
    worked: int = 0
    total: float = 0.0
    has_moved: bool = False
    is_done: bool = False

    def count(self, steps: int, total: float) -> None:
        """So many steps have worked."""
        self.step, self.worked, self.total = self.step + steps, self.worked + steps, self.total + total
        self.has_moved = True

    def next_epoch(self) -> None:
        """This one is over."""
        self.epoch, self.step, self.worked, self.total = self.epoch + 1, 0, 0, 0.0


COUNTS = ("epoch", "step", "worked", "total", "has_moved", "is_done")


class Keeper:
    """Writes checkpoints of a training when they are due, and finds the last one.

    Args:
        checkpoints: where they are.
        about: settings and data, as JSON; a checkpoint of others is refused.
        seconds: between checkpoints.
        resume: whether to go on from the last one, if there is one.
    """

    def __init__(self, checkpoints: Checkpoints, about: dict[str, Any], seconds: float, resume: bool) -> None:
        self._checkpoints, self._about, self._seconds, self._resume = checkpoints, about, seconds, resume
        self._last, self._made, self._asked = time.monotonic(), 0, 0

    def is_due(self, workers: Workers) -> bool:
        """Whether it is time; asked after every step, the same on all workers."""
        self._asked += 1
        is_late = time.monotonic() - self._last >= self._seconds
        if workers.size == 1:
            return is_late
        return self._asked % ASK_EVERY == 0 and workers.largest(float(is_late)) > 0.0

    def save(self, trainer: Trainer, course: Course, optimizer: Remembers) -> None:
        """Write all that the next step depends on."""
        self._made += 1
        workers, state = trainer.workers, _settled(course.state)
        tensors = {"theta": course.theta, "good": trainer.good[0]}
        tensors |= {f"state.{i}": x for i, x in enumerate(leaves(state))}
        tensors |= {f"optimizer.{name}": x for name, x in optimizer.kept().items()}
        if trainer.method.keeps_rows:
            tensors["rows"] = trainer.data.row_ids
        meta = {
            "about": self._about,
            "course": {name: getattr(course, name) for name in COUNTS},
            "trainer": {name: getattr(trainer, name) for name in ("failures", "scale", "renewed")},
            "seconds": trainer.clock.seconds(),
            "history": trainer.history.records,
            "made": self._made,
        }
        self._checkpoints.save(self._made, tensors, meta, part=workers.rank, parts=workers.size)
        self._last = time.monotonic()

    def resume(self, trainer: Trainer, course: Course, optimizer: Remembers) -> None:
        """Bring training to where the last checkpoint was written; nothing where there is none."""
        workers = trainer.workers
        saved = workers.same(self._checkpoints.latest() if self._resume and workers.rank == 0 else None)
        if workers.rank == 0:
            self._checkpoints.clear(-1 if saved is None else saved.step)  # those of another run would seem newer
        if saved is None:
            return
        meta = saved.meta()
        check_same(meta["about"], self._about, str(saved))
        self._restore(saved, meta, trainer, course, optimizer)
        for note in saved.passed_over:
            trainer.history.note(f"passed over a checkpoint: {note}")
        self._made, self._last = saved.step, time.monotonic()

    def _restore(self, saved: Saved, meta: Any, trainer: Trainer, course: Course, optimizer: Remembers) -> None:
        device = course.theta.device
        kept = {name: x.to(device) for name, x in self._tensors(saved, trainer).items()}
        for mine, x in zip(leaves(course.state), _numbered("state.", kept), strict=True):
            mine.copy_(x)
        course.theta, trainer.good = kept["theta"], (kept["good"], course.state)
        optimizer.restore({n.removeprefix("optimizer."): x for n, x in kept.items() if n.startswith("optimizer.")})
        for name in COUNTS:
            setattr(course, name, meta["course"][name])
        for name, value in meta["trainer"].items():
            setattr(trainer, name, value)
        trainer.clock.go_on_from(meta["seconds"])
        trainer.history.records[:] = meta["history"]

    def _tensors(self, saved: Saved, trainer: Trainer) -> dict[str, Tensor]:
        """What this rank had; from all parts where rows have changed hands."""
        workers = trainer.workers
        if not trainer.method.keeps_rows:
            return saved.load(0)
        if saved.parts == workers.size:
            return saved.load(workers.rank)
        parts = [saved.load(part) for part in range(saved.parts)]
        rows, order = torch.cat([part["rows"] for part in parts]).sort()
        places = order[torch.searchsorted(rows, trainer.data.row_ids)]
        for name in ("state.0", "state.1"):  # the sites, row by row
            parts[0][name] = torch.cat([part[name] for part in parts], -1)[..., places]
        return parts[0]


def _numbered(prefix: str, tensors: dict[str, Tensor]) -> list[Tensor]:
    count = sum(name.startswith(prefix) for name in tensors)
    return [tensors[f"{prefix}{i}"] for i in range(count)]


def _settled(state: Any) -> Any:
    return state.settled() if isinstance(state, RowSites) else state
