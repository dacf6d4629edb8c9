"""Files of tensors in the safetensors format: written whole or not at all, and read with nothing taken on trust."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

Tensors = dict[str, Tensor]
Kinds = dict[str, tuple[torch.dtype, tuple[int, ...]]]  # dtype and shape by name

FULL = (errno.ENOSPC, errno.EDQUOT)
LENGTH_BYTES = 8  # of the number before the header
MOST_HEADER = 2**23  # bytes
MOST_PARTS = 500_000  # of a JSON text: a part takes some hundred bytes once it is read
DEEPEST = 200  # of brackets in brackets
MOST_DIGITS = 40
MOST_AXES = 16
LARGEST_SHAPE = 2**48
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip


# --- Writing ---


def save(path: Path, tensors: Tensors, metadata: dict[str, str], folder: Path) -> None:
    """Write a file; its name appears only when all is on the disk.

    Args:
        path: the file; an old one of that name is replaced.
        tensors: on the CPU, each in memory of its own (`separate`).
        metadata: texts to keep with them.
        folder: on the same disk; made for the time of writing, and removed. Anything of that name goes.
    """
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        save_file(tensors, folder / path.name, metadata)  # the library writes to a name of its own choice first
        (folder / path.name).chmod(folder.stat().st_mode & 0o666)  # the library lets only the owner read
        _sync(folder / path.name, os.O_RDWR)
        os.replace(folder / path.name, path)
        if os.name != "nt":  # Windows cannot, and need not
            _sync(path.parent, os.O_RDONLY)
    except KeyError as error:  # all that the library says of a dtype unknown to it
        raise TypeError(f"tensors: {error} cannot be saved; convert it first") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def separate(tensors: Tensors) -> Tensors:
    """On the CPU, each in memory of its own, as the format wants them."""
    found = {name: x.detach().resolve_conj().resolve_neg().cpu().contiguous() for name, x in tensors.items()}
    owners = Counter(x.untyped_storage().data_ptr() for x in found.values())
    return {name: x.clone() if owners[x.untyped_storage().data_ptr()] > 1 else x for name, x in found.items()}


def digest(record: str, tensors: Tensors) -> str:
    """A checksum of a text and of tensors on the CPU, with their names, dtypes and shapes."""
    found = hashlib.blake2b(record.encode(), digest_size=16)
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(_bytes(x).data)
    return found.hexdigest()


def is_full(error: Exception) -> bool:
    """Whether a disk without space is what went wrong; the library has the system's number in its text only."""
    return getattr(error, "errno", None) in FULL or any(f"(os error {code})" in str(error) for code in FULL)


def _sync(path: Path, flags: int) -> None:
    """Wait until it is on the disk."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _bytes(x: Tensor) -> Any:
    return x.reshape(-1).view(torch.uint8).numpy()


# --- Reading what anyone may have written ---


class Head(NamedTuple):
    """What comes before the tensors: texts, and the tensors' dtypes and shapes in the order of the file."""

    metadata: dict[str, str]
    kinds: Kinds


def read_head(file: BinaryIO) -> Head:
    """The head of an open file, which is left at the first tensor; a ValueError where it is not sound.

    Every size is held against that of the file, so that nothing is asked for that is not there.
    """
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if size <= LENGTH_BYTES or length > MOST_HEADER:
        raise ValueError("it does not begin as such a file does")
    rest = size - LENGTH_BYTES - length
    if rest < 0:
        raise ValueError("its end is missing")
    found = parse(file.read(length).decode("ascii", "replace"))
    if not isinstance(found, dict):
        raise ValueError("its header is not a table")
    metadata = found.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its header holds something else than texts")
    return Head(metadata, _kinds(found, rest))


def read_tensors(file: BinaryIO, head: Head) -> Tensors:
    """The tensors of a file that `read_head` has just read; a ValueError where they are not sound."""
    return {name: _tensor(file, name, *kind) for name, kind in head.kinds.items()}


def parse(text: str) -> Any:
    """What a JSON text says; a ValueError for one that is too long or deep, has NaN, or says a thing twice.

    >>> parse('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    if sum(map(text.count, "[{,")) > MOST_PARTS or _depth(text) > DEEPEST:
        raise ValueError("its header has too many parts, or is nested too deeply")
    try:
        return json.loads(
            text, object_pairs_hook=_table, parse_int=_integer, parse_float=_real, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"its header is not JSON ({error})") from None


def _tensor(file: BinaryIO, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    x = torch.empty(shape, dtype=dtype)
    raw = _bytes(x)
    if file.readinto(raw.data) != x.nbytes:  # type: ignore[attr-defined]
        raise ValueError("its end is missing")
    if dtype == torch.bool and x.numel() and raw.max() > 1:
        raise ValueError(f"{name} holds something else than yes and no")
    return x


def _kinds(entries: dict[str, Any], size: int) -> Kinds:
    """Dtypes and shapes, where the tensors lie one behind the other and fill the rest of the file."""
    places = sorted((*_span(name, entry, size), name) for name, entry in entries.items())
    end = 0
    for first, last, name in places:
        if first != end:
            raise ValueError(f"{name} does not begin where the tensor before it ends")
        end = last
    if end != size:
        raise ValueError(f"it has {size} bytes of numbers where its header tells of {end}")
    return {name: (DTYPES[entries[name]["dtype"]], tuple(entries[name]["shape"])) for *_, name in places}


def _span(name: str, entry: Any, size: int) -> tuple[int, int]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} is not described as a tensor")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(dtype, str) and dtype in DTYPES):
        raise ValueError(f"{name} is of an unknown dtype")
    if not (_are_counts(shape) and len(shape) <= MOST_AXES and math.prod(max(n, 1) for n in shape) <= LARGEST_SHAPE):
        raise ValueError(f"{name} has an impossible shape")
    if not (_are_counts(span) and len(span) == 2 and span[1] - span[0] == math.prod(shape) * DTYPES[dtype].itemsize):
        raise ValueError(f"{name} does not take as many bytes as its shape says")
    if span[1] > size:
        raise ValueError(f"its end is missing: {name} would need {span[1] - size} bytes more")
    return span[0], span[1]


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


def _depth(text: str) -> int:
    """How many brackets are open at once, at most; found before the parser goes down as deep."""
    depth = deepest = 0
    for token in re.finditer(r'"[^"]*"|[\[{]|[\]}]', text.replace("\\\\", "").replace('\\"', "")):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(depth, deepest)
    return deepest


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header says a thing twice")
    return found


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError("its header has a number of too many digits")
    return int(text)


def _real(text: str) -> float:
    if len(text) > MOST_DIGITS or not math.isfinite(float(text)):
        raise ValueError("its header has a number of too many digits")
    return float(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"its header has {text}, which is not a number")
