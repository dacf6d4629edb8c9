"""JSON codec: settings, kernels, arrays and labels to JSON and back.

Types that JSON lacks become a dict with one tag: {"$tuple": [...]}, {"$dict": [[key, value], ...]}, {"$float": "inf"},
{"$array": name of a tensor}, {"$kernel": [name, ...]}. Decoding runs no code; the only objects are our own kernels.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.kernels import RBF, Constant, Kernel, Laplace, Linear, Matern12, Matern32, Matern52, Product, Sum
from cavity.kernels.base import numbers

SIMPLE: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (RBF, Matern12, Matern32, Matern52, Laplace, Linear, Constant)
}
COMPOSITE: dict[str, type[Any]] = {kind.__name__: kind for kind in (Sum, Product)}
LABEL_DTYPES = re.compile(r"\|b1|\|O|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]U[1-9]\d{0,6}")
MAX_LABEL_BYTES = 2**26  # NumPy pads every string to the longest one
MAX_ITEMS = 500_000  # of a JSON text: an item takes some hundred bytes in memory
MAX_DEPTH = 200
MAX_DIGITS = 40
MAX_SHOWN = 60  # characters of a value in a message


def to_json(value: Any, *, hash_arrays: bool = False) -> Any:
    """Convert a value to plain JSON types, for people and for comparison. There is no way back.

    Tuples and arrays become lists, keys become strings, and other objects become `str(value)`. NaN and infinity stay
    floats. With `hash_arrays` an array becomes a text with its shape and a hash of its bytes.

    >>> to_json({1: (np.float64(0.5), np.array([2, 3])), "kernel": RBF(2.0)})
    {'1': [0.5, [2, 3]], 'kernel': 'RBF(lengthscale=2.0, variance=None)'}
    """
    if isinstance(value, np.ndarray) and hash_arrays:
        return f"array of shape {value.shape}, {hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, dict):
        return {str(key): to_json(item, hash_arrays=hash_arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, hash_arrays=hash_arrays) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def parse_json(text: str) -> Any:
    """Parse a JSON text from an untrusted source; duplicate keys, NaN, and too many or too deep items are errors.

    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    if sum(map(text.count, "[{,")) > MAX_ITEMS:
        raise ValueError(f"the JSON has more than {MAX_ITEMS} items")
    real = partial(_parse_number, float)
    hooks: dict[str, Any] = {"parse_int": partial(_parse_number, int), "parse_float": real, "parse_constant": real}
    try:
        value = json.loads(text, object_pairs_hook=_parse_dict, **hooks)
        if _depth(value) <= MAX_DEPTH:
            return value
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    except RecursionError:
        pass
    raise ValueError(f"the JSON is nested too deeply: more than {MAX_DEPTH} levels")


def encode(value: Any, name: str, tensors: dict[str, Tensor] | None = None) -> Any:
    """Encode a value so that `decode` restores it. Raise TypeError if it has a type that a file cannot store.

    `name` is the name of the value, for messages and its tensors. `tensors` receives the arrays; without it arrays
    become lists.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {str(key): encode(item, f"{name}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, dict):
        keys = [encode(key, f"{name}: a key") for key in value]
        for key, encoded in zip(value, keys, strict=True):
            if isinstance(encoded, dict | list):
                raise TypeError(_unsupported(key, f"{name}: a key", "use numbers and strings as keys"))
        items = [encode(item, f"{name}.{i}", tensors) for i, item in enumerate(value.values())]
        return {"$dict": [list(pair) for pair in zip(keys, items, strict=True)]}
    if isinstance(value, Kernel):
        return _encode_kernel(value, name, tensors)
    if not hasattr(value, "__array__"):
        raise TypeError(_unsupported(value, name, "use numbers, strings, lists, dicts, arrays or None"))
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(_unsupported(value, name, "use an array of numbers"))
    if tensors is None:
        return encode(array.tolist(), name)
    tensors[name] = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    return {"$array": name}


def decode(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Restore a value that `encode` wrote under this name. Arrays that the value contains are removed from `arrays`."""
    if isinstance(value, list):
        return [decode(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: decode(item, f"{name}.{key}", arrays) for key, item in value.items()}
    match value if len(value) == 1 else None:
        case {"$tuple": list() as items}:
            return tuple(decode(items, name, arrays))
        case {"$dict": list() as pairs}:
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise ValueError(f"{name} is not a list of pairs")
            if any(isinstance(key, dict | list) for key, _ in pairs):
                raise ValueError(f"{name} has a key that is neither a number nor a string")
            found = {key: decode(item, f"{name}.{i}", arrays) for i, (key, item) in enumerate(pairs)}
            if len(found) < len(pairs):
                raise ValueError(f"{name} has a duplicate key")
            return found
        case {"$float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"$array": str() as key} if key == name:
            if key not in arrays:
                raise ValueError(f"the array {name} is missing")
            return arrays.pop(key)
        case {"$kernel": [str() as kind, content]}:
            return _decode_kernel(kind, content, name, arrays)
    raise ValueError(f"{name} has an unrecognized tag or invalid content: {_short(value)}")


def decode_kernel(value: Any, name: str, arrays: dict[str, Any]) -> Kernel:
    """Restore a kernel. Any other value raises ValueError."""
    kernel = decode(value, name, arrays)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{name} is not a kernel")
    return kernel


def encode_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Encode class labels with their dtype. Raises TypeError unless they are ints, floats, bools or strings."""
    values, dtype = classes.tolist(), classes.dtype.str
    if not LABEL_DTYPES.fullmatch(dtype) or (dtype == "|O" and not all(isinstance(value, str) for value in values)):
        remedy = "labels must be ints, floats, bools or strings: convert y before fit, for example y.astype(str)"
        raise TypeError(_unsupported(classes, "classes", remedy))
    return {"dtype": dtype, "values": [str(value) if isinstance(value, str) else value for value in values]}


def decode_labels(value: Any) -> NDArray[Any]:
    """Restore class labels. Raises ValueError unless they are two or more, of one type, sorted and distinct."""
    match value if isinstance(value, dict) and len(value) == 2 else None:
        case {"dtype": str() as code, "values": [_, _, *_] as values} if LABEL_DTYPES.fullmatch(code):
            dtype = np.dtype(code)
        case _:
            raise ValueError("classes must have a dtype and at least two values")
    python_type = {"b": bool, "f": float, "U": str, "O": str}.get(dtype.kind, int)
    if not all(type(label) is python_type for label in values):
        raise ValueError(f"classes must all be of type {python_type.__name__}")
    if (size := dtype.itemsize * len(values)) > MAX_LABEL_BYTES:
        raise ValueError(f"classes need {size} bytes, because each is padded to the longest; use y.astype(object)")
    try:
        with np.errstate(over="ignore"):
            labels = np.array(values, dtype=dtype)
    except OverflowError:
        labels = np.empty(0)
    if labels.tolist() != values or not all(a < b for a, b in pairwise(values)):
        raise ValueError(f"classes must be sorted and distinct, and {code} must store them exactly")
    return labels


def _encode_kernel(kernel: Any, name: str, tensors: dict[str, Tensor] | None) -> Any:
    kind = type(kernel).__name__
    if (SIMPLE | COMPOSITE).get(kind) is not type(kernel):
        remedy = f"use {', '.join(SIMPLE)}, their sums and products, or pickle a classifier with a custom kernel"
        raise TypeError(_unsupported(kernel, name, remedy))
    if kind in COMPOSITE:
        return {"$kernel": [kind, [encode(part, f"{name}.{i}", tensors) for i, part in enumerate(kernel.parts)]]}
    given = {field.name: getattr(kernel, field.name) for field in fields(kernel)}
    values = {key: None if value is None else numbers(key, value)[()] for key, value in given.items()}
    return {"$kernel": [kind, encode(values, name, tensors)]}


def _decode_kernel(kind: str, content: Any, name: str, arrays: dict[str, Any]) -> Any:
    if kind in COMPOSITE and isinstance(content, list) and content:
        return COMPOSITE[kind](tuple(decode_kernel(part, f"{name}.{i}", arrays) for i, part in enumerate(content)))
    if kind not in SIMPLE or not isinstance(content, dict) or set(content) != {f.name for f in fields(SIMPLE[kind])}:
        raise ValueError(f"{name} is an unknown kernel, {_short(kind)}; a newer version of cavity may support it")
    for key, value in content.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (value is None or is_number or (isinstance(value, dict) and list(value) in (["$array"], ["$float"]))):
            raise ValueError(f"{name}.{key} must be a number or an array")
    return SIMPLE[kind](**decode(content, name, arrays))


def _parse_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key in the JSON")
    return found


def _parse_number(convert: Callable[[str], float], text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"the JSON has a number of more than {MAX_DIGITS} digits")
    if not math.isfinite(value := convert(text)):
        raise ValueError(f"the JSON has a number that is not finite: {text}")
    return value


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, items), default=0)


def _unsupported(value: Any, name: str, remedy: str) -> str:
    return f"{name}={_short(value)} of type {type(value).__name__} cannot be saved in a model file; {remedy}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
