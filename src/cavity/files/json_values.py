"""Settings, kernels and labels in the words of JSON, and back; arrays go beside them, as tensors.

JSON's own words mean themselves. Whatever else there is has a table with one key: {"$tuple": […]}, {"$dict": [[key,
value], …]}, {"$float": "inf"}, {"$array": name of a tensor}, {"$kernel": [name, …]}. Nothing is looked up by name but
the kernels below, and nothing is run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Matern52, Product, Sum
from cavity.kernels.base import numbers

Take = Callable[[str], NDArray[Any]]

SIMPLE: dict[str, type[Any]] = {kind.__name__: kind for kind in (RBF, Matern12, Matern32, Matern52, Linear, Constant)}
COMPOSITE: dict[str, type[Any]] = {kind.__name__: kind for kind in (Sum, Product)}
NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
LABELS = re.compile(r"\|b1|\|O|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]U[1-9]\d{0,6}")
LARGEST_LABELS = 2**26  # bytes: NumPy gives every string the width of the widest
SHOWN = 60  # characters of a value in a message


# --- Any value ---


def encode(value: Any, name: str, tensors: dict[str, Tensor] | None = None) -> Any:
    """A value in words of JSON.

    Args:
        value: None, bools, numbers, strings; lists, tuples, dicts and arrays of them; kernels of `cavity.kernels`.
        name: of the value, for messages and for its tensors.
        tensors: where arrays are put; without it they become lists.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | str):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else _encode_float(float(value))
    if isinstance(value, list | tuple):
        parts = [encode(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]
        return parts if isinstance(value, list) else {"$tuple": parts}
    if isinstance(value, dict):
        return _encode_dict(value, name, tensors)
    if isinstance(value, Kernel):
        return {"$kernel": _encode_kernel(value, name, tensors)}
    if hasattr(value, "__array__"):
        return _encode_array(value, name, tensors)
    raise TypeError(_refusal(value, name, "use numbers, strings, lists, dicts, arrays or None"))


def decode(words: Any, name: str, take: Take) -> Any:
    """The value again; a ValueError where `encode` cannot have written the words.

    Args:
        words: what JSON has.
        name: of the value.
        take: gives the array of a name, once.
    """
    if words is None or isinstance(words, bool | int | float | str):
        return words
    if isinstance(words, list):
        return [decode(part, f"{name}.{i}", take) for i, part in enumerate(words)]
    if not any(key.startswith("$") for key in words):
        return {key: decode(part, f"{name}.{key}", take) for key, part in words.items()}
    ((tag, content), *others) = words.items()
    if others or tag not in _DECODERS:
        raise ValueError(f"{name} is not said in words known here")
    return _DECODERS[tag](content, name, take)


def shown(words: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    """The same for people: tables, lists and texts that JSON can hold; of an array its shape."""
    if isinstance(words, list):
        return [shown(part, shapes) for part in words]
    if not isinstance(words, dict):
        return words
    if not any(key.startswith("$") for key in words):
        return {key: shown(part, shapes) for key, part in words.items()}
    ((tag, content),) = words.items()
    if tag == "$dict":
        return {str(key): shown(part, shapes) for key, part in content}
    if tag == "$array":
        return f"array of shape {shapes[content]}"
    return _shown_kernel(content, shapes) if tag == "$kernel" else shown(content, shapes)


def _encode_float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": str(value)}


def _encode_dict(value: dict[Any, Any], name: str, tensors: dict[str, Tensor] | None) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {str(key): encode(part, f"{name}.{key}", tensors) for key, part in value.items()}
    pairs = []
    for i, (key, part) in enumerate(value.items()):
        word = encode(key, f"{name}: a key")
        if isinstance(word, dict | list):
            raise TypeError(_refusal(key, f"{name}: a key", "use numbers and strings as keys"))
        pairs.append([word, encode(part, f"{name}.{i}", tensors)])
    return {"$dict": pairs}


def _encode_array(value: Any, name: str, tensors: dict[str, Tensor] | None) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(_refusal(value, name, "an array of numbers is needed"))
    if tensors is None:
        return encode(array.tolist(), name)
    tensors[name] = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    return {"$array": name}


def _refusal(value: Any, name: str, remedy: str) -> str:
    text = repr(value)
    text = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
    return f"{name}={text} is a {type(value).__name__}, which a model file cannot hold; {remedy}"


def _decode_tuple(content: Any, name: str, take: Take) -> Any:
    if not isinstance(content, list):
        raise ValueError(f"{name} is not a list")
    return tuple(decode(content, name, take))


def _decode_dict(content: Any, name: str, take: Take) -> Any:
    if not (isinstance(content, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in content)):
        raise ValueError(f"{name} is not a list of pairs")
    if any(isinstance(key, dict | list) for key, _ in content):
        raise ValueError(f"{name} has a key that is neither a number nor a text")
    found = {key: decode(part, f"{name}.{i}", take) for i, (key, part) in enumerate(content)}
    if len(found) < len(content):
        raise ValueError(f"{name} says a thing twice")
    return found


def _decode_float(content: Any, name: str, take: Take) -> Any:
    if not (isinstance(content, str) and content in NOT_FINITE):
        raise ValueError(f"{name} is not a number")
    return NOT_FINITE[content]


def _decode_array(content: Any, name: str, take: Take) -> Any:
    if content != name:
        raise ValueError(f"the array of {name} has another name")
    return take(name)


# --- Kernels ---


def _encode_kernel(kernel: Any, name: str, tensors: dict[str, Tensor] | None) -> list[Any]:
    kind = type(kernel).__name__
    if (SIMPLE | COMPOSITE).get(kind) is not type(kernel):
        raise TypeError(_refusal(kernel, name, f"kernels of cavity.kernels ({', '.join(SIMPLE)}, and their sums and "
                                 "products) are kept; pickle a classifier that has one of your own"))  # fmt: skip
    if kind in COMPOSITE:
        return [kind, [encode(part, f"{name}.{i}", tensors) for i, part in enumerate(kernel.parts)]]
    values = {f.name: _start_array(f.name, getattr(kernel, f.name)) for f in fields(kernel)}
    return [kind, encode(values, name, tensors)]


def _decode_kernel(content: Any, name: str, take: Take) -> Any:
    if not (isinstance(content, list) and len(content) == 2 and isinstance(content[0], str)):
        raise ValueError(f"{name} is not a kernel")
    kind, values = content
    if kind in COMPOSITE and isinstance(values, list) and values:
        return COMPOSITE[kind](tuple(decode_kernel(part, f"{name}.{i}", take) for i, part in enumerate(values)))
    if kind not in SIMPLE or not isinstance(values, dict) or set(values) != {f.name for f in fields(SIMPLE[kind])}:
        raise ValueError(f"{name} is a kernel unknown here, {kind[:SHOWN]}; a newer cavity may know it")
    return SIMPLE[kind](**{key: _start_value(word, f"{name}.{key}", take) for key, word in values.items()})


def decode_kernel(words: Any, name: str, take: Take) -> Kernel:
    """A kernel, and nothing else."""
    kernel = decode(words, name, take)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{name} is not a kernel")
    return kernel


def parameter_shapes(kernel: Kernel, n_kernels: int, n_features: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a kernel's parameters by name."""
    if isinstance(kernel, Sum | Product):
        parts = [parameter_shapes(part, n_kernels, n_features) for part in kernel.parts]
        return {f"{i}.{name}": shape for i, part in enumerate(parts) for name, shape in part.items()}
    shapes = {"lengthscale": (n_kernels, n_features), "variance": (n_kernels,)}
    return {f"log_{f.name}": shapes[f.name] for f in fields(kernel)}  # type: ignore[arg-type]


def _start_array(name: str, value: Any) -> Any:
    """None, a number or an array."""
    array = None if value is None else numbers(name, value)
    return array if array is None or array.ndim else float(array)


def _start_value(words: Any, name: str, take: Take) -> Any:
    value = decode(words, name, take)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (value is None or is_number or isinstance(value, np.ndarray)):
        raise ValueError(f"{name} is not a number or an array")
    return value


def _shown_kernel(content: Any, shapes: dict[str, tuple[int, ...]]) -> str:
    kind, values = content
    if kind in SIMPLE:
        return f"{kind}({', '.join(f'{key}={shown(word, shapes)}' for key, word in values.items())})"
    parts = [(part["$kernel"][0] == "Sum", _shown_kernel(part["$kernel"], shapes)) for part in values]
    if kind == "Sum":
        return " + ".join(text for _, text in parts)
    return " * ".join(f"({text})" if is_sum else text for is_sum, text in parts)


_DECODERS: dict[str, Callable[[Any, str, Take], Any]] = {
    "$tuple": _decode_tuple,
    "$dict": _decode_dict,
    "$float": _decode_float,
    "$array": _decode_array,
    "$kernel": _decode_kernel,
}


# --- Labels ---


def encode_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Labels with their dtype."""
    values, code = classes.tolist(), classes.dtype.str
    are_texts = code != "|O" or all(isinstance(value, str) for value in values)
    if not (LABELS.fullmatch(code) and are_texts):
        raise TypeError(_refusal(classes, "classes", "labels that are ints, floats, bools or strings are kept: "
                                 "convert y before the fit, y.astype(str) for one"))  # fmt: skip
    return {"dtype": code, "values": [str(value) if isinstance(value, str) else value for value in values]}


def decode_labels(words: Any) -> NDArray[Any]:
    """The labels again: two or more, of one type, sorted."""
    if not isinstance(words, dict) or set(words) != {"dtype", "values"}:
        raise ValueError("classes are not labels with their dtype")
    code, values = words["dtype"], words["values"]
    if not (isinstance(code, str) and LABELS.fullmatch(code) and isinstance(values, list)):
        raise ValueError("classes are not labels with their dtype")
    dtype = np.dtype(code)
    if len(values) < 2 or not all(_is_label(value, dtype) for value in values):
        raise ValueError("classes are not two or more labels of one type")
    if dtype.itemsize * len(values) > LARGEST_LABELS:
        raise ValueError(f"classes would take {dtype.itemsize * len(values)} bytes, for the widest of them; "
                         "y.astype(object) before the fit keeps them short")  # fmt: skip
    if not all(a < b for a, b in pairwise(values)):
        raise ValueError("classes are not sorted, or one is there twice")
    return np.array(values, dtype=dtype)


def _is_label(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether the dtype holds exactly this."""
    if dtype.kind == "b":
        return isinstance(value, bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return type(value) is int and limits.min <= value <= limits.max
    if dtype.kind == "f":
        return type(value) is float and abs(value) <= float(np.finfo(dtype).max) and float(dtype.type(value)) == value
    if not isinstance(value, str):
        return False
    return dtype.kind == "O" or (len(value) <= dtype.itemsize // 4 and not value.endswith("\0"))  # which NumPy drops
