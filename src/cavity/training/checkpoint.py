"""Checkpoints: files from which training goes on, however it was stopped."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = 1
RECORD, DIGEST = "cavity", "digest"  # the keys of the metadata
NAME = re.compile(r"step-(\d{12,})\.part-(\d+)-of-(\d+)\.safetensors(\.tmp)?")
FULL = (errno.ENOSPC, errno.EDQUOT)
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
            if metadata[DIGEST] != _digest(metadata[RECORD], tensors):
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
        tensors = _separate(tensors)
        with self._explained(f"the checkpoint of step {step} cannot be saved"):
            _write(self.folder / _name(step, part, parts), tensors, {RECORD: record, DIGEST: _digest(record, tensors)})
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


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """The name appears only when all is on the disk."""
    folder = path.with_name(f"{path.name}.tmp")  # the library writes to a name of its own choice first
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        save_file(tensors, folder / path.name, metadata)
        (folder / path.name).chmod(folder.stat().st_mode & 0o666)  # the library lets only the owner read
        _sync(folder / path.name, os.O_RDWR)
        os.replace(folder / path.name, path)
        if os.name != "nt":  # Windows cannot, and need not
            _sync(path.parent, os.O_RDONLY)
    except KeyError as error:  # all that the library says of a dtype unknown to it
        raise TypeError(f"tensors: {error} cannot be saved; convert it first") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path, flags: int) -> None:
    """Wait until it is on the disk."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, each in memory of its own, as the format wants them."""
    found = {name: x.detach().resolve_conj().resolve_neg().cpu().contiguous() for name, x in tensors.items()}
    owners = Counter(x.untyped_storage().data_ptr() for x in found.values())
    return {name: x.clone() if owners[x.untyped_storage().data_ptr()] > 1 else x for name, x in found.items()}


def _metadata(file: Any) -> dict[str, str]:
    found: dict[str, str] = file.metadata() or {}
    if not {RECORD, DIGEST} <= set(found):
        raise ValueError("it is no checkpoint of cavity")
    if not found[RECORD].startswith(f'{{"format": {FORMAT},'):
        raise ValueError(f"it is not of format {FORMAT}, which this version of cavity reads")
    return found


def _digest(record: str, tensors: dict[str, Tensor]) -> str:
    found = hashlib.blake2b(record.encode(), digest_size=16)
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _remedy(error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code in FULL or any(f"(os error {full})" in str(error) for full in FULL):
        return "The disk is full: free some space, or give another folder"
    if code in (errno.EEXIST, errno.ENOTDIR):
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
