"""Model files: a fitted classifier in one safetensors file, safe to read whoever wrote it.

The metadata holds a record in JSON, with the number of its format, and a checksum; all that is long is in tensors. What
is kept, checked and left out, and how old files stay readable: docs/adr/0008-model-file.md.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError

from cavity.files import tensor_file as tensorfile
from cavity.files.json_values import shown
from cavity.files.packing import FORMAT, FORMS, Model, Record, pack
from cavity.files.tensor_file import Head
from cavity.runtime.memory import available_bytes
from cavity.version import __version__

__all__ = ["FORMAT", "Model", "ModelFileError", "describe", "read", "write"]

RECORD, DIGEST = "cavity.model", "digest"  # the keys of the metadata
OF_CHECKPOINT = "cavity"
HISTORY, EVENTS = 300, 100  # records of the history that are kept, and of them those with an event
LONGEST_EVENT = 500  # characters
AGAIN = "Get the file again, or save the model again"
OURS = "Give a file that the `save` of a GPClassifier wrote"


class ModelFileError(ValueError):
    """A model file cannot be written or read; the message says which, why, and what to try."""


class _Foreign(ValueError):
    """The file may be in order, but it is not for us; the message has its own remedy."""


def write(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model, whole or not at all; an old file of that name is replaced.

    Args:
        path: the file, `*.cavity` by custom, in a folder that exists.
        model: kernels must be of `cavity.kernels`, labels ints, floats, bools or strings; a TypeError names others. Of
            a long history a few hundred records are kept.
    """
    model = replace(model, params=_kept(model.params), history=_summary(model.history))
    record, packed = pack(model, __version__)
    tensors, target = tensorfile.separate(packed), Path(os.path.realpath(path))
    with _explained(path, "written"):
        text = json.dumps(record, allow_nan=False)
        _check_readable(text, tensors)
        if target.exists() and not target.is_file():
            raise _Foreign("it is a folder or a device. Give the name of a file")
        folder = target.with_name(f".cavity-{secrets.token_hex(8)}.tmp")
        tensorfile.save(target, tensors, {RECORD: text, DIGEST: tensorfile.digest(text, tensors)}, folder)


def read(path: str | os.PathLike[str], known: Collection[str] | None = None) -> Model:
    """The model of a file; a ModelFileError where anything is not as `write` would have it.

    Nothing in the file is run, and no more memory is taken than the file has bytes, and some.

    Args:
        path: the file.
        known: names of settings; others, of a later version that keeps the format, are left out with a warning.
    """
    with _opened(path) as file:
        head, record = _start(file)
        _check_memory(file)
        tensors = tensorfile.read_tensors(file, head)
        if head.metadata[DIGEST] != tensorfile.digest(head.metadata[RECORD], tensors):
            raise ValueError("its checksum is wrong")
        model = FORMS[record["format"]].build(record, tensors)
    return model if known is None else replace(model, params=_known(path, model.params, known))


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says of its model, as JSON has it: all but the tensors, which are not read.

    So it is quick whatever the size; that the numbers are sound only `read` finds out.
    """
    with _opened(path) as file:
        head, record = _start(file)
        size = os.fstat(file.fileno()).st_size
    shapes = {name: shape for name, (_, shape) in head.kinds.items()}
    found: dict[str, Any] = {name: shown(words, shapes) for name, words in record.items() if name != "by_columns"}
    return found | {"classes": record["classes"]["values"], "n_inducing": shapes["R_inverse"][-1], "bytes": size}


# --- Writing ---


def _check_readable(text: str, tensors: tensorfile.Tensors) -> None:
    """What could not be read again is not written."""
    form, kinds = FORMS[FORMAT], {name: (x.dtype, tuple(x.shape)) for name, x in tensors.items()}
    length = len(json.dumps(text)) + sum(len(name) + 200 for name in tensors)  # of a table entry each
    if length > tensorfile.MOST_HEADER:
        raise ValueError(f"its header would take {length} bytes, of {tensorfile.MOST_HEADER} at most: shorten the "
                         "names of labels and features, or keep fewer metrics")  # fmt: skip
    record = tensorfile.parse(text)
    form.check(record, kinds)
    form.build(record, tensors)


def _kept(params: dict[str, Any]) -> dict[str, Any]:
    """A folder means nothing elsewhere, and a generator has gone on since."""
    seed = params.get("random_state")
    is_seed = isinstance(seed, Integral) and not isinstance(seed, bool)
    instead = {"checkpoint": None, "random_state": seed if is_seed else None}
    return params | {name: value for name, value in instead.items() if name in params}


def _summary(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a few hundred records: the first, the last, those with an event, and others evenly between."""
    if len(history) > HISTORY:
        events = [i for i, record in enumerate(history) if record.get("event") is not None]
        events = events if len(events) <= EVENTS else events[: EVENTS // 2] + events[-EVENTS // 2 :]
        evenly = np.linspace(0, len(history) - 1, HISTORY - len(events)).round().astype(int).tolist()
        history = [history[i] for i in sorted({*events, *evenly})]
    return [{name: _short(value) for name, value in record.items()} for record in history]


def _short(value: Any) -> Any:
    return f"{value[: LONGEST_EVENT - 1]}…" if isinstance(value, str) and len(value) > LONGEST_EVENT else value


# --- Reading ---


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file, and nothing that only looks like one: to open a pipe would be to wait for ever."""
    with _explained(path, "read"):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise _Foreign(f"it is a {'folder' if stat.S_ISDIR(mode) else 'device'}. {OURS}")
        with open(path, "rb") as file:
            yield file


def _start(file: BinaryIO) -> tuple[Head, Record]:
    """The head and the record, held against each other and the size of the file."""
    try:
        head = tensorfile.read_head(file)
    except ValueError as error:
        raise _Foreign(f"{_looks_like(file) or f'{error}; it is no model file, or a damaged one'}. {OURS}") from error
    return head, _record(head)


def _record(head: Head) -> Record:
    if set(head.metadata) != {RECORD, DIGEST}:
        what = "a checkpoint of training" if OF_CHECKPOINT in head.metadata else "a safetensors file"
        raise _Foreign(f"it is {what}, and not a model of cavity. {OURS}")
    record = tensorfile.parse(head.metadata[RECORD])
    number = record.get("format") if isinstance(record, dict) else None
    if type(number) is not int or number < 1:
        raise ValueError("its record has no format")
    if number not in FORMS:
        by = str(record.get("cavity"))[:20]
        raise _Foreign(f"it was written by a newer cavity ({by}), in format {number}; this one ({__version__}) reads "
                       f"up to format {FORMAT}. Upgrade: pip install --upgrade cavity")  # fmt: skip
    FORMS[number].check(record, head.kinds)
    return record


def _looks_like(file: BinaryIO) -> str | None:
    file.seek(0)
    first = file.read(8)
    if not first:
        return "it is empty"
    if first[:1] == b"\x80" and first[1] in range(2, 6) and any(first[2:]):
        return "it is a pickle, which could run any program and is never opened here"
    return "it is a zip archive, as PyTorch and others write them" if first[:4] == b"PK\x03\x04" else None


def _check_memory(file: BinaryIO) -> None:
    size, free = os.fstat(file.fileno()).st_size, available_bytes(torch.device("cpu"))
    if free is not None and size > free:
        raise _Foreign(f"it has {size} bytes, and {free} bytes of memory are free. Free some, or use a larger machine")


def _known(path: str | os.PathLike[str], params: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    if unknown := sorted(set(params) - set(known)):
        warnings.warn(f"{os.fspath(path)} has settings that this version of cavity does not know, and leaves out: "
                      f"{', '.join(unknown)[:200]}. Predictions do not depend on them", stacklevel=4)  # fmt: skip
    return {name: value for name, value in params.items() if name in known}


# --- Both ---


@contextmanager
def _explained(path: str | os.PathLike[str], done: str) -> Iterator[None]:
    """Errors with the name of the file, what is wrong with it, and what to do."""
    start = f"{os.fspath(path)} cannot be {done}"
    try:
        yield
    except _Foreign as error:
        raise ModelFileError(f"{start}: {error}.") from error
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{start}: {_reason(error, done)}.") from error
    except (ValueError, RecursionError) as error:
        remedy = AGAIN if done == "read" else "Such a file could not be read again"
        raise ModelFileError(f"{start}: {error}. {remedy}.") from error


def _reason(error: Exception, done: str) -> str:
    if tensorfile.is_full(error):
        return "the disk is full. Free some space, or give another folder"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "there is no such file. Check the name" if done == "read" else "there is no such folder. Make it first"
    if isinstance(error, PermissionError):
        return f"{error.strerror}. Give another {'file' if done == 'read' else 'folder'}, or ask for the right to it"
    return f"{error}. Check the name and the disk"
