"""Checkpoints: files from which an interrupted training run resumes."""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cavity.files import tensor_file as tensorfile
from cavity.files.tensor_file import digest, is_full, separate
from cavity.runtime.distributed import Workers

Values = dict[str, Any]  # that JSON can hold

FORMAT = 1
RECORD, DIGEST = "cavity", "digest"  # the keys of the metadata
NAME = re.compile(r"step-(\d{12,})\.part-(\d+)-of-(\d+)\.safetensors(\.tmp)?")
ROWS = "rows"  # the ids of a worker's rows
ROW_TENSORS = ("state.0", "state.1")  # the sites, with the rows on the last axis
DUE_STEPS = 8  # steps between two agreements of the workers whether a checkpoint is due
MAX_SHOWN = 10  # differences in an error message
ABSENT = object()
REMEDY = "Use another folder, or empty this one to start from scratch."


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says why and what to try."""


@runtime_checkable
class Checkpointable(Protocol):
    """An object whose state is saved in checkpoints, such as an optimizer."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state."""


# --- One training run ---


class Checkpointer:
    """Saves checkpoints of a training run at intervals, and loads the last one.

    Args:
        checkpoints: where to save them.
        about: settings and data; a checkpoint with other settings or data is an error.
        seconds: time between two checkpoints.
        resume: whether to resume from the last checkpoint.
        workers: the processes of the run; each saves its own part.
    """

    def __init__(self, checkpoints: Checkpoints, about: Values, seconds: float, resume: bool, workers: Workers) -> None:
        self._checkpoints, self._about, self._seconds, self._resume = checkpoints, about, seconds, resume
        self._workers, self._saved_at, self._n_saved, self._n_asked = workers, time.monotonic(), 0, 0

    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint; all workers must call it after each step."""
        self._n_asked += 1
        is_late = time.monotonic() - self._saved_at >= self._seconds
        if self._workers.size == 1:
            return is_late
        return self._n_asked % DUE_STEPS == 0 and self._workers.max_value(float(is_late)) > 0.0

    def save(self, tensors: dict[str, Tensor], values: Values) -> None:
        """Save the part of this worker."""
        self._n_saved += 1
        meta = {"about": self._about, **values, "made": self._n_saved}
        self._checkpoints.save(self._n_saved, tensors, meta, part=self._workers.rank, parts=self._workers.size)
        self._saved_at = time.monotonic()

    def resume(self, row_ids: Tensor | None) -> tuple[dict[str, Tensor], Values] | None:
        """Load what this worker needs of the last checkpoint, if there is one; remove newer, incomplete ones.

        The value "skipped" says why newer checkpoints were not used.

        Args:
            row_ids: the rows of this worker, if the state of the method has something of every row.
        """
        is_first = self._workers.rank == 0
        saved = self._workers.broadcast(self._checkpoints.latest() if self._resume and is_first else None)
        if is_first:
            self._checkpoints.clear(-1 if saved is None else saved.step, complete=self._resume)
        if saved is None:
            return None
        values = saved.meta()
        check_same(values["about"], self._about, str(saved))
        self._n_saved, self._saved_at = saved.step, time.monotonic()
        if row_ids is None or saved.parts == self._workers.size:
            tensors = saved.load(0 if row_ids is None else self._workers.rank)
        else:  # the rows are now divided in another way
            parts = [saved.load(part) for part in range(saved.parts)]
            saved_ids, order = torch.cat([part[ROWS] for part in parts]).sort()
            positions = order[torch.searchsorted(saved_ids, row_ids)]
            sites = {name: torch.cat([part[name] for part in parts], -1)[..., positions] for name in ROW_TENSORS}
            tensors = parts[0] | sites
        return tensors, values | {"skipped": saved.skipped}


def check_unused(folder: Path, workers: Workers) -> None:
    """Raise ValueError, on all workers, if a folder has checkpoints of an earlier run or of its folds."""
    names = (path.name for pattern in ("step-*", "fold-*/step-*") for path in folder.glob(pattern))
    if workers.broadcast(any((match := NAME.fullmatch(name)) and match[4] is None for name in names)):
        raise ValueError(
            f"the folder checkpoint={str(folder)!r} must have no checkpoints of an earlier run, which this fit would "
            "overwrite. Continue that run with fit(..., resume=True), on the command line with --resume; or use "
            "another folder, or empty this one"
        )


# --- Files ---


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint of `parts` files; `skipped` says which newer ones are damaged, and how."""

    folder: Path
    step: int
    parts: int
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"The checkpoint of step {self.step} in {self.folder}"

    def meta(self, part: int = 0) -> Values:
        """Return the values that were saved with the tensors of a part."""
        with self._open(part) as (_, metadata):
            return dict(json.loads(metadata[RECORD])["meta"])

    def load(self, part: int) -> dict[str, Tensor]:
        """Return the tensors of a part, on the CPU; raise CheckpointError if the file is damaged."""
        with self._open(part) as (file, metadata):
            tensors = {name: file.get_tensor(name).clone() for name in file.offset_keys()}
            if metadata[DIGEST] != digest(metadata[RECORD], tensors):
                raise ValueError("its checksum is wrong")
            if json.loads(metadata[RECORD])["place"] != [self.step, part, self.parts]:
                raise ValueError("it was written under another name")
        return tensors

    @contextmanager
    def _open(self, part: int) -> Iterator[tuple[Any, dict[str, str]]]:
        name = _name(self.step, part, self.parts)
        try:
            with safe_open(self.folder / name, "pt") as file:
                metadata: dict[str, str] = file.metadata() or {}
                if not {RECORD, DIGEST} <= set(metadata):
                    raise ValueError("it is not a checkpoint of cavity")
                if not metadata[RECORD].startswith(f'{{"format": {FORMAT},'):
                    raise ValueError(f"it is not of format {FORMAT}, which this version of cavity reads")
                yield file, metadata
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(f"{name} in {self.folder} cannot be read: {error}") from error


class Checkpoints:
    """The checkpoints of one run, in a folder. Each of several processes writes one part.

    Args:
        folder: created if it does not exist; the constructor checks that it is writable.
        keep: number of complete checkpoints to keep.

    >>> import torch
    >>> checkpoints = Checkpoints(tempfile.mkdtemp())
    >>> checkpoints.save(12, {"w": torch.ones(2)}, {"epoch": 3})
    >>> saved = checkpoints.latest()
    >>> saved.step, saved.meta(), saved.load(0)
    (12, {'epoch': 3}, {'w': tensor([1., 1.])})
    """

    def __init__(self, folder: str | Path, *, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1, got {keep}.")
        self.folder, self.keep = Path(folder), keep
        with self._explained("no checkpoint can be saved"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(b"0")

    def save(self, step: int, tensors: dict[str, Tensor], meta: Values, *, part: int = 0, parts: int = 1) -> None:
        """Write a part, completely or not at all; part 0 then removes old checkpoints.

        Args:
            step: larger than that of the previous checkpoint.
            tensors: on any device; they can share memory.
            meta: values that JSON can hold, including infinities and NaN; keys are strings.
            part: the part of this process.
            parts: number of parts; the checkpoint is complete once all are written.
        """
        if step < 0 or not 0 <= part < parts:
            found = f"step={step}, part={part}, parts={parts}"
            raise ValueError(f"`step` must be >= 0 and `part` in [0, `parts`), got {found}.")
        record = json.dumps({"format": FORMAT, "place": [step, part, parts], "meta": meta})
        tensors, path = separate(tensors), self.folder / _name(step, part, parts)
        with self._explained(f"the checkpoint of step {step} cannot be saved"):
            metadata = {RECORD: record, DIGEST: digest(record, tensors)}
            tensorfile.save(path, tensors, metadata, path.with_name(f"{path.name}.tmp"))
            if part == 0 and (kept := sorted({at for at, _ in self._complete() if at <= step})[-self.keep :]):
                # temporary files of this step and later ones may be in use
                _remove(file for file in self._files() if file.step < kept[-1 if file.is_temporary else 0])

    def latest(self) -> Checkpoint | None:
        """Return the newest complete and undamaged checkpoint; None if no checkpoint is complete."""
        skipped: list[str] = []
        for step, parts in reversed(self._complete()):
            saved = Checkpoint(self.folder, step, parts, skipped)
            try:
                for part in range(parts):
                    saved.load(part)
                return saved
            except CheckpointError as error:
                skipped.append(str(error))
        if skipped:
            raise CheckpointError(f"{'; '.join(skipped)}. {REMEDY}")
        return None

    def clear(self, after: int = -1, complete: bool = True) -> None:
        """Remove files newer than step `after`, or only unfinished ones; call it before any process saves."""
        with self._explained("old checkpoints cannot be removed"):
            _remove(file for file in self._files() if file.step > after and (complete or file.is_temporary))

    def _files(self) -> list[_File]:
        matches = [(path, NAME.fullmatch(path.name)) for path in self.folder.glob("step-*")]
        return [_File(path, int(m[1]), int(m[2]), int(m[3]), m[4] is not None) for path, m in matches if m]

    def _complete(self) -> list[tuple[int, int]]:
        """Return step and number of parts of each complete checkpoint, the newest last."""
        found = {file[1:4] for file in self._files() if not file.is_temporary}
        counts = Counter((step, parts) for step, part, parts in found if part < parts)
        return sorted(key for key, count in counts.items() if count == key[1])

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            if is_full(error):
                remedy = "The disk is full: free some space, or use another folder"
            elif getattr(error, "errno", None) in (errno.EEXIST, errno.ENOTDIR):
                remedy = "A file has that name: use another folder"
            elif "header too large" in str(error):
                remedy = "meta is too large: save long values as tensors"
            else:
                remedy = "Make the folder writable, or use another one"
            steps = [step for step, _ in self._complete()]
            kept = (
                f"The last good checkpoint, of step {steps[-1]}, is untouched" if steps else "No checkpoint exists yet"
            )
            raise CheckpointError(f"{self.folder}: {what}: {error}. {remedy}. {kept}.") from error


class _File(NamedTuple):
    path: Path
    step: int
    part: int
    parts: int
    is_temporary: bool


def _name(step: int, part: int, parts: int) -> str:
    return f"step-{step:012d}.part-{part}-of-{parts}.safetensors"


def _remove(files: Iterable[_File]) -> None:
    for file in files:
        if file.path.is_dir():
            shutil.rmtree(file.path, ignore_errors=True)
        else:
            file.path.unlink(missing_ok=True)


# --- Comparing settings ---


def check_same(saved_meta: Values, now: Values, what: str) -> None:
    """Raise ValueError if the settings or data of a checkpoint differ from `now`; `what` names it, as `str(saved)`."""
    if found := differences(saved_meta, now):
        more = [f"and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
        lines = "\n  ".join([f"{what} is from other settings or data:", *found[:MAX_SHOWN], *more])
        raise ValueError(f"{lines}\n{REMEDY}")


def differences(old: Values, new: Values) -> list[str]:
    """List where two nested dicts differ as JSON.

    >>> differences({"settings": {"n_inducing": 100, "tol": 0.1}}, {"settings": {"n_inducing": 200, "tol": 0.1}})
    ['settings.n_inducing: 100 in the checkpoint, 200 now']
    """
    return list(_differences("", json.loads(json.dumps(old)), json.loads(json.dumps(new))))


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _differences(f"{name}.{key}" if name else key, old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{name}[{i}]", a, b)
    elif old != new and not (old != old and new != new):  # NaN is NaN
        texts = ["absent" if x is ABSENT else json.dumps(x, ensure_ascii=False) for x in (old, new)]
        before, now = (text if len(text) <= 60 else f"{text[:59]}…" for text in texts)
        yield f"{name}: {before} in the checkpoint, {now} now"
