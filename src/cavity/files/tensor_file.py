"""Safetensors files: atomic writes, checksums, and reads that check sizes before they allocate memory."""

from __future__ import annotations

import errno
import hashlib
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cavity.files.atomic import atomic_write

Tensors = dict[str, Tensor]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_HEADER = 2**23  # bytes
MAX_DIMS, MAX_ELEMENTS = 16, 2**48  # an empty dimension counts as 1
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip


def save(path: Path, tensors: Tensors, metadata: dict[str, str], folder: Path | None = None) -> None:
    """Write tensors from `separate` and metadata atomically; `folder` is the temporary folder of `atomic_write`."""
    try:
        with atomic_write(path, folder) as temporary:
            save_file(tensors, temporary, metadata)
    except KeyError as error:  # how safetensors reports an unsupported dtype
        raise TypeError(f"tensors: dtype {error} cannot be saved; convert the tensor first") from error


def read_header(file: BinaryIO) -> tuple[dict[str, str], Tensors]:
    """Read the header of an open file: its metadata, and its tensors in file order on the meta device, without data."""
    size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
    if size <= 8 or length > MAX_HEADER:
        raise ValueError("it does not start like a safetensors file")
    file.seek(8 + length)
    try:
        with safe_open(file.name, "numpy") as opened:  # checks that the tensors fill the rest of the file
            metadata, entries = opened.metadata() or {}, {name: opened.get_slice(name) for name in opened.offset_keys()}
            header = {name: (entry.get_dtype(), entry.get_shape()) for name, entry in entries.items()}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    for name, (dtype, shape) in header.items():
        if dtype not in DTYPES:
            raise ValueError(f"{name} has the unsupported dtype {dtype}")
        if len(shape) > MAX_DIMS or math.prod(max(n, 1) for n in shape) > MAX_ELEMENTS:
            raise ValueError(f"{name} has an invalid shape")
    return metadata, {n: torch.empty(shape, dtype=DTYPES[d], device="meta") for n, (d, shape) in header.items()}


def read_tensors(file: BinaryIO, header: Tensors) -> Tensors:
    """Read the tensors of an open file right after its header.

    Their bytes go to memory from PyTorch. Memory mapping would crash if the file shrinks, and tensors with another
    alignment can give predictions that differ in the last bits.
    """
    tensors = {name: torch.empty_like(x, device="cpu") for name, x in header.items()}
    for name, x in tensors.items():
        content = _bytes(x)
        if file.readinto(content.data) != x.nbytes:  # type: ignore[attr-defined]
            raise ValueError("the file is truncated")
        if x.dtype == torch.bool and x.numel() and content.max() > 1:
            raise ValueError(f"{name} must contain only booleans")
    return tensors


def separate(tensors: Tensors) -> Tensors:
    """Return contiguous CPU tensors that share no memory, as safetensors requires."""
    found = {name: x.detach().resolve_conj().resolve_neg().cpu().contiguous() for name, x in tensors.items()}
    owners = Counter(x.untyped_storage().data_ptr() for x in found.values())
    return {name: x.clone() if owners[x.untyped_storage().data_ptr()] > 1 else x for name, x in found.items()}


def digest(text: str, tensors: Tensors) -> str:
    """Return a checksum of a text and of CPU tensors with their names, dtypes and shapes."""
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(_bytes(x).data)
    return found.hexdigest()


def is_full(error: Exception) -> bool:
    """Return whether a full disk caused the error. Safetensors gives the error number only in its message."""
    return getattr(error, "errno", None) in DISK_FULL or any(f"(os error {code})" in str(error) for code in DISK_FULL)


def _bytes(x: Tensor) -> Any:
    return x.reshape(-1).view(torch.uint8).numpy()
