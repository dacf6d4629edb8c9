"""Checkpoints: files from which training goes on, however it was stopped."""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from cavity.files import tensor_file as tensorfile
from cavity.files.tensor_file import digest, is_full, separate

FORMAT = 1
RECORD, DIGEST = "cavity", "digest"  # the keys of the metadata
NAME = re.compile(r"step-(\d{12,})\.part-(\d+)-of-(\d+)\.safetensors(\.tmp)?")
MOST_SHOWN = 10
ABSENT = object()


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says why and what to try."""


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint of `parts` files; `passed_over` names newer ones that are damaged, and how."""

    folder: Path
    step: int
    parts: int
    passed_over: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"The checkpoint of step {self.step} in {self.folder}"

    def meta(self, part: int = 0) -> dict[str, Any]:
        """What was saved with the tensors of a part."""
        with self._open(part) as file:
            return json.loads(_metadata(file)[RECORD])["meta"]

    def load(self, part: int) -> dict[str, Tensor]:
        """The tensors of a part, on the CPU; raises where the file is not as it was written."""
        with self._open(part) as file:
            names, metadata = file.keys(), _metadata(file)
            tensors = {name: file.get_tensor(name).clone() for name in names}
            if metadata[DIGEST] != digest(metadata[RECORD], tensors):
                raise ValueError("its checksum is wrong")
            if json.loads(metadata[RECORD])["place"] != [self.step, part, self.parts]:
                raise ValueError("it was written under another name")
        return tensors

    @contextmanager
    def _open(self, part: int) -> Iterator[Any]:
        name = _name(self.step, part, self.parts)
        try:
            with safe_open(self.folder / name, "pt") as file:
                yield file
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(f"{name} in {self.folder} cannot be read: {error}") from error


class Checkpoints:
    """The checkpoints of one run, in a folder. Several processes write one part each.

    Args:
        folder: made where it does not exist; that it can be written is checked at once.
        keep: how many complete checkpoints to keep.

    >>> import torch
    >>> checkpoints = Checkpoints(tempfile.mkdtemp())
    >>> checkpoints.save(12, {"w": torch.ones(2)}, {"epoch": 3})
    >>> saved = checkpoints.latest()
    >>> saved.step, saved.meta(), saved.load(0)
    (12, {'epoch': 3}, {'w': tensor([1., 1.])})
    """

    def __init__(self, folder: str | Path, *, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least 1 checkpoint must be kept")
        self.folder, self.keep = Path(folder), keep
        with self._explained("no checkpoint can be saved"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(b"0")

    def save(
        self, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], *, part: int = 0, parts: int = 1
    ) -> None:
        """Write a part, whole or not at all; part 0 then removes what is no longer needed.

        Args:
            step: larger than that of the checkpoint before.
            tensors: on any device; they may share memory.
            meta: what JSON can hold, infinities and NaN too; keys are strings.
            part: the one this process writes.
            parts: how many there are; the checkpoint counts only once all are there.
        """
        if step < 0 or not 0 <= part < parts:
            raise ValueError(f"step={step}, part={part}, parts={parts}: want step >= 0 and 0 <= part < parts")
        record = json.dumps({"format": FORMAT, "place": [step, part, parts], "meta": meta})
        tensors, path = separate(tensors), self.folder / _name(step, part, parts)
        with self._explained(f"the checkpoint of step {step} cannot be saved"):
            metadata = {RECORD: record, DIGEST: digest(record, tensors)}
            tensorfile.save(path, tensors, metadata, path.with_name(f"{path.name}.tmp"))
            if part == 0:
                self._tidy(step)

    def latest(self) -> Saved | None:
        """The newest complete checkpoint that is undamaged; None where none is complete."""
        passed_over: list[str] = []
        for step, parts in reversed(self._complete()):
            saved = Saved(self.folder, step, parts, passed_over)
            try:
                for part in range(parts):
                    saved.load(part)
                return saved
            except CheckpointError as error:
                passed_over.append(str(error))
        if passed_over:
            raise CheckpointError(f"{'; '.join(passed_over)}. Give another folder, or resume=False to start anew.")
        return None

    def clear(self, after: int = -1) -> None:
        """Remove all that is newer than step `after`, for a run that starts from there; before any process saves."""
        with self._explained("old checkpoints cannot be removed"):
            for file in self._files():
                if file.step > after:
                    _remove(file.path)

    def _files(self) -> list[_File]:
        matches = [(path, NAME.fullmatch(path.name)) for path in self.folder.glob("step-*")]
        return [_File(path, int(m[1]), int(m[2]), int(m[3]), m[4] is not None) for path, m in matches if m]

    def _complete(self) -> list[tuple[int, int]]:
        """Step and number of parts of those that have all their parts, the newest last."""
        found = {file[1:4] for file in self._files() if not file.is_temporary}
        counts = Counter((step, parts) for step, part, parts in found if part < parts)
        return sorted(key for key, count in counts.items() if count == key[1])

    def _tidy(self, step: int) -> None:
        """Remove what is older than those to keep. Temporary files of this step and later ones may be in use."""
        kept = sorted({found for found, _ in self._complete() if found <= step})[-self.keep :]
        for file in self._files() if kept else []:
            if file.step < (kept[-1] if file.is_temporary else kept[0]):
                _remove(file.path)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            good = [step for step, _ in self._complete()]
            rest = (
                f"The last good checkpoint, of step {good[-1]}, is untouched" if good else "There is no checkpoint yet"
            )
            raise CheckpointError(f"{self.folder}: {what}: {error}. {_remedy(error)}. {rest}.") from error


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Where two nested dicts that JSON can hold differ.

    >>> differences({"settings": {"n_inducing": 100, "tol": 0.1}}, {"settings": {"n_inducing": 200, "tol": 0.1}})
    ['settings.n_inducing: 100 in the checkpoint, 200 now']
    """
    return list(_differences("", json.loads(json.dumps(old)), json.loads(json.dumps(new))))


def check_same(saved_meta: dict[str, Any], now: dict[str, Any], what: str) -> None:
    """Raise where a checkpoint is from other settings or data than `now`; `what` names it, as `str(saved)` does."""
    if found := differences(saved_meta, now):
        more = [f"and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
        lines = "".join(f"\n  {line}" for line in found[:MOST_SHOWN] + more)
        remedy = "Give another folder, or resume=False to start anew."
        raise ValueError(f"{what} is from other settings or data:{lines}\n{remedy}")


class _File(NamedTuple):
    path: Path
    step: int
    part: int
    parts: int
    is_temporary: bool


def _name(step: int, part: int, parts: int) -> str:
    return f"step-{step:012d}.part-{part}-of-{parts}.safetensors"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _metadata(file: Any) -> dict[str, str]:
    found: dict[str, str] = file.metadata() or {}
    if not {RECORD, DIGEST} <= set(found):
        raise ValueError("it is no checkpoint of cavity")
    if not found[RECORD].startswith(f'{{"format": {FORMAT},'):
        raise ValueError(f"it is not of format {FORMAT}, which this version of cavity reads")
    return found


def _remedy(error: Exception) -> str:
    if is_full(error):
        return "The disk is full: free some space, or give another folder"
    if getattr(error, "errno", None) in (errno.EEXIST, errno.ENOTDIR):
        return "There is a file of that name: give another folder"
    if "header too large" in str(error):
        return "meta is too large: put what is long into tensors"
    return "Make the folder writable, or give another one"


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _differences(f"{name}.{key}" if name else key, old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{name}[{i}]", a, b)
    elif old != new and not (old != old and new != new):  # NaN is NaN
        yield f"{name}: {_short(old)} in the checkpoint, {_short(new)} now"


def _short(value: Any) -> str:
    text = "absent" if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"
