"""Model files: a fitted classifier in one safetensors file that is safe to read from an untrusted source.

The metadata holds a record in JSON and a checksum; arrays are tensors. See docs/adr/0008-model-file.md.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from cavity.data.profile import ColumnProfile, Profile
from cavity.data.schema import CATEGORY, DATE, KINDS, LEFT_OUT, MAX_LEVELS, NUMBER, TIME, Column, Schema
from cavity.files import tensor_file
from cavity.files.json_values import decode, decode_kernel, decode_labels, encode, encode_labels, parse_json
from cavity.files.tensor_file import Tensors
from cavity.fitting.conformal import HeldOutScores
from cavity.fitting.encoding import (
    CYCLES,
    Cycle,
    Encoding,
    Gap,
    Levels,
    Monotone,
    Scaler,
    Standard,
    TableEncoding,
    Unscaled,
)
from cavity.fitting.novelty import MOST_ROWS, Novelty
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import KERNEL, Prior
from cavity.gp.residual import Residual
from cavity.kernels import Grouped, Kernel, Product, Sum
from cavity.numerics.limits import LARGEST_INPUT, LARGEST_PARAMETER
from cavity.runtime.memory import available_bytes
from cavity.version import __version__

# 1, of cavity 0.1, has no residual and no epsilon for each class; 2 knows numbers only; 5 has no held-out rows
FORMAT = 6
RECORD, DIGEST = "cavity.model", "digest"  # keys of the metadata
# These precede the names of their tensors.
RESIDUAL, LEVELS, HELD_OUT, NOVELTY = "residual.", "levels.", "held_out.", "novelty."
TEXT, LENGTHS = "columns.text", "columns.lengths"  # of the levels of all categories, in UTF-8
MONOTONE = ("monotone", "quantile")  # the latter in files of format 4 and before
SINCE: dict[int, dict[str, Any]] = {3: {"columns": None, "parts": None}, 4: {"noise_in_u": True}}  # with defaults
MAX_UNUSED = 2**26  # numbers of inducing points in the units of X, where columns have no features
MAX_HISTORY, MAX_EVENTS, MAX_EVENT = 300, 100, 500  # records, records with an event, characters of an event
# Bounds that keep everything computed from these numbers finite.
LARGEST_LOG, LARGEST_FACTOR, LARGEST_MEAN, LARGEST_VARIANCE, LARGEST_SHARPNESS = 350.0, 1e50, 1e75, 1e100, 1e6
USE_SAVED = "Use a file that GPClassifier.save wrote"


class ModelFileError(ValueError):
    """A model file cannot be written or read. The message says why and what to do."""


class _NotAModel(ValueError):
    """The file may be valid, but this version cannot use it. The message includes the remedy."""


@dataclass(frozen=True)
class SavedModel:
    """Everything that a model file stores.

    Attributes as of `FittedModel`; `params` are the constructor arguments, and `metrics` the scores of the classifier.
    """

    params: dict[str, Any]
    classes: NDArray[Any]
    n_features: int
    feature_names: list[str] | None
    posterior: Posterior
    schema: Schema | None
    encoding: Encoding
    method: str
    log_marginal_likelihood: float
    n_iter: int
    history: list[dict[str, Any]]
    training: dict[str, Any]
    metrics: dict[str, Any]
    held_out: HeldOutScores | None
    novelty: Novelty | None = None


def write(path: str | os.PathLike[str], model: SavedModel) -> None:
    """Write a model file atomically, in an existing folder. Raise TypeError for a value that it cannot store.

    A `checkpoint` and a `random_state` that is not an int become None, `distributed` "auto". A long history is
    thinned.
    """
    seed = model.params.get("random_state")
    is_int = isinstance(seed, Integral) and not isinstance(seed, bool)
    omitted = {"checkpoint": None, "distributed": "auto", "random_state": seed if is_int else None}
    params = model.params | {name: value for name, value in omitted.items() if name in model.params}
    record, tensors = pack(replace(model, params=params, history=_thinned(model.history)))
    tensors, target = tensor_file.separate(tensors), Path(os.path.realpath(path))
    with _explain_errors(path, "written"):
        text = json.dumps(record, allow_nan=False)
        length = len(json.dumps(text)) + sum(len(name) + 200 for name in tensors)
        if (limit := tensor_file.MAX_HEADER) < length:
            raise ValueError(f"its header has {length} bytes, and the limit is {limit}; shorten labels and names")
        unpack(parse_json(text), tensors)
        if target.exists() and not target.is_file():
            raise _NotAModel("it is a folder or a device. Choose a file name")
        tensor_file.save(target, tensors, {RECORD: text, DIGEST: tensor_file.digest(text, tensors)})


def read(path: str | os.PathLike[str], known: Collection[str] | None = None) -> SavedModel:
    """Read a model file. This runs no code from the file, and needs little more memory than the file has bytes.

    Constructor arguments that are not `known`, from a newer version, are dropped with a warning.
    """
    with _explain_errors(path, "read"):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait forever
            raise _NotAModel(f"it is a {'folder' if stat.S_ISDIR(mode) else 'device'}. {USE_SAVED}")
        with open(path, "rb") as file:
            metadata, record, header = _read_header(file)
            size, free = os.fstat(file.fileno()).st_size, available_bytes(torch.device("cpu"))
            if free is not None and size > free:
                reason = f"it needs {size} bytes of memory, and only {free} bytes are available"
                raise _NotAModel(f"{reason}. Free some memory")
            tensors = tensor_file.read_tensors(file, header)
        if metadata[DIGEST] != tensor_file.digest(metadata[RECORD], tensors):
            raise ValueError("its checksum is wrong")
        model = unpack(record, tensors)
    if known is not None and (unknown := sorted(set(model.params) - set(known))):
        reason = "has settings that this version of cavity does not know. They do not affect predictions"
        warnings.warn(f"{os.fspath(path)} {reason} and are ignored: {', '.join(unknown)[:200]}", stacklevel=3)
        model = replace(model, params={name: value for name, value in model.params.items() if name in known})
    return model


def pack(model: SavedModel) -> tuple[dict[str, Any], Tensors]:
    """Return the record and the tensors of a model. Raises TypeError for a value that they cannot hold."""
    q, encoding, tensors = model.posterior.to(torch.device("cpu")), model.encoding, dict[str, torch.Tensor]()
    is_table = isinstance(encoding, TableEncoding)
    scaler = encoding.scaler or Unscaled() if isinstance(encoding, TableEncoding) else encoding
    if not isinstance(scaler, Standard | Monotone | Unscaled):
        raise TypeError(f"encoding={encoding!r} cannot be saved in a model file; use one of cavity.fitting.encoding")
    kernel, factor = q.prior.kernel, q.whitened.R_inverse
    kernel = kernel.kernel if is_table and isinstance(kernel, Grouped) else kernel
    by_columns = factor.mT.is_contiguous() and not factor.is_contiguous()
    record = {
        "format": FORMAT,
        "cavity": __version__,
        "classes": encode_labels(model.classes),
        "n_features": int(model.n_features),
        "feature_names": None if model.feature_names is None else [str(name) for name in model.feature_names],
        "method": model.method,
        "kernel": encode(kernel, "start", tensors),
        "precision": str(q.prior.dtype).removeprefix("torch."),
        "noise_in_u": q.prior.noise_in_u,
        "by_columns": by_columns,  # the memory layout of R_inverse: the last bits of a product depend on it
        "sharpness": float(q.sharpness),
        "epsilon": 0.0 if isinstance(q.epsilon, torch.Tensor) else float(q.epsilon),
        "scaler": type(scaler).__name__.lower(),
        "columns": None if model.schema is None else [_pack_column(column) for column in model.schema.columns],
        "parts": _pack_parts(encoding) if isinstance(encoding, TableEncoding) else None,
        "n_iter": int(model.n_iter),
        "params": encode(model.params, "params", tensors),
        "log_marginal_likelihood": encode(float(model.log_marginal_likelihood), "log_marginal_likelihood"),
    } | {name: encode(getattr(model, name), name) for name in ("history", "training", "metrics")}
    tensors |= {KERNEL + name: value for name, value in q.prior.params.items()}
    tensors |= {"Z": q.prior.Z, "log_noise": q.prior.log_noise, "m": q.whitened.m}
    tensors["R_inverse"] = factor.mT if by_columns else factor
    if q.residual is not None:
        tensors |= {RESIDUAL + name: value for name, value in q.residual._asdict().items()}
    if isinstance(q.epsilon, torch.Tensor):
        tensors["epsilon"] = q.epsilon
    if model.novelty is not None:
        tensors |= _pack_novelty(model.novelty)
    standard = scaler.standard if isinstance(scaler, Monotone) else scaler
    arrays = {"mean": standard.mean, "sd": standard.sd} if isinstance(standard, Standard) else {}
    if isinstance(scaler, Unscaled) and scaler.mean is not None:
        arrays = {"mean": scaler.mean}
    if isinstance(scaler, Monotone):
        arrays |= {"knots": np.concatenate(scaler.knots), "levels": np.concatenate(scaler.levels)}
        arrays |= {"counts": np.array([len(knots) for knots in scaler.knots], dtype=np.int64)}
    arrays = {f"scaler.{name}": array for name, array in arrays.items()}
    if isinstance(encoding, TableEncoding) and encoding.categories and model.schema is not None:
        arrays |= {f"{LEVELS}{part.column}": part.table for part in encoding.categories}
        texts = [level.encode("utf-8", "surrogatepass") for one in model.schema.columns for level in _levels(one)]
        arrays |= {TEXT: np.array(bytearray(b"".join(texts))), LENGTHS: np.array([len(text) for text in texts])}
    if model.held_out is not None:
        arrays |= {HELD_OUT + name: array for name, array in model.held_out._asdict().items()}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return record, tensors


def _pack_column(column: Column) -> dict[str, Any]:
    return {"kind": column.kind, "levels": len(_levels(column)), "reason": column.reason}


def _levels(column: Column) -> tuple[str, ...]:
    return column.levels or () if column.kind == CATEGORY else ()


def _pack_novelty(novelty: Novelty) -> Tensors:
    columns = novelty.profile.columns
    found = {name: np.concatenate([getattr(column, name) for column in columns]) for name in ("values", "rows")}
    found["missing"] = np.array([column.missing for column in columns])
    found["counts"] = np.array([len(column.values) for column in columns], dtype=np.int64)
    tensors = {name: torch.from_numpy(array) for name, array in found.items()}
    tensors |= {"whitening": novelty.whitening.contiguous(), "held_out": novelty.held_out.contiguous()}
    return {NOVELTY + name: x for name, x in tensors.items()}


def _pack_parts(encoding: TableEncoding) -> dict[str, Any]:
    return {
        "numeric": list(encoding.numeric),
        "gaps": [list(gap) for gap in encoding.gaps],
        "cycles": [[cycle.column, cycle.name] for cycle in encoding.cycles],
        "frequencies": [[part.column, part.n_frequencies] for part in encoding.categories if part.n_frequencies],
    }


def _thinned(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first record, the last, those with an event, and evenly spaced others; shorten long events."""
    if len(history) > MAX_HISTORY:
        events = [i for i, record in enumerate(history) if record.get("event") is not None]
        events = events if len(events) <= MAX_EVENTS else events[: MAX_EVENTS // 2] + events[-MAX_EVENTS // 2 :]
        evenly = np.linspace(0, len(history) - 1, MAX_HISTORY - len(events)).round().astype(int).tolist()
        history = [history[i] for i in sorted({*events, *evenly})]
    return [
        {k: f"{v[: MAX_EVENT - 1]}…" if isinstance(v, str) and len(v) > MAX_EVENT else v for k, v in record.items()}
        for record in history
    ]


def _is_plain(v: Any) -> bool:
    """Whether a value is a dict, and none that stands for something else."""
    return isinstance(v, dict) and not any(name.startswith("$") for name in v)


def _is_column(v: Any) -> bool:
    if not (isinstance(v, dict) and set(v) == {"kind", "levels", "reason"} and v["kind"] in KINDS):
        return False
    least, most = (1, MAX_LEVELS) if v["kind"] == CATEGORY else (0, 0)
    is_reason = isinstance(v["reason"], str) and (v["kind"] == LEFT_OUT or not v["reason"])
    return type(v["levels"]) is int and least <= v["levels"] <= most and is_reason


def _is_parts(v: Any) -> bool:
    kinds = {"numeric": (int,), "gaps": (int, float, float), "cycles": (int, str), "frequencies": (int, int)}
    if not (isinstance(v, dict) and set(v) == set(kinds) and all(isinstance(part, list) for part in v.values())):
        return False
    items = {name: [item if isinstance(item, list) else [item] for item in part] for name, part in v.items()}
    if any(tuple(map(type, item)) != kinds[name] for name, part in items.items() for item in part):
        return False
    are_gaps = all(0.0 < center < 1.0 and 0.0 < scale <= LARGEST_INPUT for _, center, scale in v["gaps"])
    return are_gaps and all(name in CYCLES for _, name in v["cycles"])


# What each field of a record must be.
_RULES: dict[str, Callable[[Any], bool]] = {
    "format": lambda v: v in range(1, FORMAT + 1),
    "cavity": lambda v: isinstance(v, str) and len(v) <= 100,
    "n_features": lambda v: type(v) is int and v >= 1,
    "feature_names": lambda v: v is None or (isinstance(v, list) and all(isinstance(name, str) for name in v)),
    "method": lambda v: v in ("ep", "sep", "gfitc", "vi"),
    "precision": lambda v: v in ("float64", "float32"),
    **dict.fromkeys(("noise_in_u", "by_columns"), lambda v: isinstance(v, bool)),
    "sharpness": lambda v: type(v) is float and 1 / LARGEST_SHARPNESS <= v <= LARGEST_SHARPNESS,
    "epsilon": lambda v: type(v) is float and 0.0 <= v < 1.0,
    "scaler": lambda v: v in ("standard", "monotone", "quantile", "unscaled"),
    "columns": lambda v: v is None or (isinstance(v, list) and all(map(_is_column, v))),
    "parts": lambda v: v is None or _is_parts(v),
    "n_iter": lambda v: type(v) is int and v >= 0,
    **dict.fromkeys(("params", "training", "metrics"), lambda v: _is_plain(v)),
    "log_marginal_likelihood": lambda v: isinstance(v, float) or (isinstance(v, dict) and set(v) == {"$float"}),
    "history": lambda v: isinstance(v, list) and all(map(_is_plain, v)),
    **dict.fromkeys(("classes", "kernel"), lambda v: isinstance(v, dict)),
}


def _decode(record: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """Check a record, and the dtypes and shapes of its tensors. Return the record with decoded values."""
    later = {name: value for since, new in SINCE.items() if record["format"] < since for name, value in new.items()}
    wrong = set(record) ^ (set(_RULES) - set(later))
    if wrong:
        raise ValueError(f"its record lacks or adds {', '.join(sorted(wrong))[:100]}")
    record = later | record
    for name, is_valid in _RULES.items():
        if not is_valid(record[name]):
            raise ValueError(f"its record has an invalid {name}")
    arrays, classes = {name: x.numpy() for name, x in tensors.items()}, decode_labels(record["classes"])
    kernel = decode_kernel(record["kernel"], "start", arrays)
    found = record | {"kernel": kernel, "classes": classes, "params": decode(record["params"], "params", arrays)}
    for name in ("log_marginal_likelihood", "history", "training", "metrics"):
        found[name] = decode(record[name], name, {})
    names, sizes = record["feature_names"], {"C": len(classes), "D": record["n_features"]}
    if names is not None and len(names) != sizes["D"]:
        raise ValueError(f"it has {len(names)} feature_names for {sizes['D']} features")
    parts, categories = record["parts"], _check_columns(record)
    if parts is None:
        sizes |= dict.fromkeys("FGS", sizes["D"])  # features, length-scales, and columns that are scaled
    else:
        sizes |= {"S": len(parts["numeric"]), "G": sum(map(len, parts.values())) + len(categories)}
    axes: dict[str, Sequence[str]] = {"R_inverse": "CMM", "m": "CM", "Z": "PMF", "log_noise": "K"}
    axes |= _parameter_axes(kernel, KERNEL)
    if record["format"] >= 2:
        axes |= {"epsilon": "C"} if "epsilon" in tensors else {}
        residual = {RESIDUAL + "variance": "CR", RESIDUAL + "share": "CR", RESIDUAL + "typical": "C"}
        axes |= residual if any(name in tensors for name in residual) else {}
    if record["format"] >= 6 and HELD_OUT + "y" in tensors:
        axes |= {HELD_OUT + name: "H" for name in HeldOutScores._fields}
    if record["format"] >= 6 and any(name.startswith(NOVELTY) for name in tensors):
        whitening = tensors.get(NOVELTY + "whitening")
        kinds = {"values": "V", "rows": "V", "missing": "D", "counts": "D", "held_out": "4W"}
        kinds["whitening"] = "F" if whitening is not None and whitening.ndim == 1 else "FF"
        axes |= {NOVELTY + name: letters for name, letters in kinds.items()}
        sizes["4"] = 4
    axes |= {"scaler.mean": "S", "scaler.sd": "S"} if record["scaler"] != "unscaled" else {}
    axes |= {"scaler.mean": "S"} if record["scaler"] == "unscaled" and "scaler.mean" in tensors else {}
    axes |= {"scaler.knots": "Q", "scaler.levels": "Q", "scaler.counts": "S"} if record["scaler"] in MONOTONE else {}
    for j in categories:
        axes[f"{LEVELS}{j}"] = (f"rows {j}", f"width {j}")
        sizes[f"rows {j}"] = record["columns"][j]["levels"] + 1
    if categories:
        axes |= {TEXT: ("bytes",), LENGTHS: ("levels",)}
        sizes["levels"] = sum(record["columns"][j]["levels"] for j in categories)
    whole = ("scaler.counts", LENGTHS, HELD_OUT + "y", NOVELTY + "counts")
    dtypes = {**dict.fromkeys(whole, torch.int64), TEXT: torch.uint8}
    for name, letters in axes.items():
        x, dtype = tensors.get(name), dtypes.get(name, torch.float64)
        least = int(name not in (TEXT, NOVELTY + "held_out"))
        shape = None if x is None or x.dtype != dtype or x.ndim != len(letters) else x.shape
        if shape is None or any(n < least or sizes.setdefault(k, n) != n for k, n in zip(letters, shape, strict=True)):
            wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
            got = "nothing" if x is None else f"{x.dtype} of shape {tuple(x.shape)}"
            raise ValueError(f"{name} must be {dtype} of shape ({wanted}), got {got}")
    if parts is not None:
        widths = [sizes[f"width {j}"] for j in categories]
        if sizes["F"] != sizes["S"] + len(parts["gaps"]) + 2 * len(parts["cycles"]) + sum(widths):
            raise ValueError(f"it has {sizes['F']} features, which are not those of its parts")
        for j, n in parts["frequencies"]:
            if not 0 < n < sizes[f"width {j}"]:
                raise ValueError(f"its category {j} must have fewer than {sizes[f'width {j}']} frequencies, got {n}")
        if sizes["D"] > sizes["F"] and sizes["C"] * sizes["M"] * sizes["D"] > MAX_UNUSED:
            raise ValueError(f"it has {sizes['D']} columns, too many for its {sizes['F']} features")
    if not {sizes["K"], sizes["P"]} <= {1, sizes["C"]}:
        raise ValueError(f"it has {sizes['K']} kernels and {sizes['P']} sets of points for {sizes['C']} classes")
    if unknown := set(arrays) - set(axes):
        raise ValueError(f"it has unknown tensors: {', '.join(sorted(unknown))[:100]}")
    found["schema"] = _unpack_schema(record, tensors)
    return found


def _check_columns(record: dict[str, Any]) -> list[int]:
    """Check that columns and parts fit each other, and return the places of the categories."""
    columns, parts, n_columns = record["columns"], record["parts"], record["n_features"]
    if columns is not None and len(columns) != n_columns:
        raise ValueError(f"it has {len(columns)} columns for {n_columns} features")
    kinds = [] if columns is None else [column["kind"] for column in columns]
    if parts is None:
        if set(kinds) - {NUMBER}:
            raise ValueError("its columns must be numbers, because it has no parts")
        return []
    numeric, gaps = parts["numeric"], [gap[0] for gap in parts["gaps"]]
    cycles = [column for column, _ in parts["cycles"]]
    for places in (numeric, gaps):
        if not all(0 <= j < n_columns for j in places) or any(a >= b for a, b in pairwise(places)):
            raise ValueError(f"its parts must name columns below {n_columns} in their order")
    if not {*gaps, *cycles} <= set(numeric) or len({tuple(cycle) for cycle in parts["cycles"]}) < len(cycles):
        raise ValueError("its gaps and cycles must be those of its numbers, each once")
    if any(kinds[j] in (CATEGORY, LEFT_OUT) for j in numeric if kinds):
        raise ValueError("its parts do not fit its columns")
    if any(not kinds or kinds[j] not in (DATE, TIME) for j in cycles):
        raise ValueError("its cycles must be those of dates or times")
    categories, frequencies = (
        [j for j, kind in enumerate(kinds) if kind == CATEGORY],
        [j for j, _ in parts["frequencies"]],
    )
    if not set(frequencies) <= set(categories) or any(a >= b for a, b in pairwise(frequencies)):
        raise ValueError("its frequencies must be those of its categories, in their order")
    return categories


def _parameter_axes(kernel: Kernel, prefix: str) -> dict[str, Sequence[str]]:
    """Return the axes of a kernel's parameters: K kernels, G groups of features."""
    if isinstance(kernel, Sum | Product):
        parts = [_parameter_axes(part, f"{prefix}{i}.") for i, part in enumerate(kernel.parts)]
        return {name: axes for part in parts for name, axes in part.items()}
    return {f"{prefix}log_{f.name}": "KG" if f.name == "lengthscale" else "K" for f in fields(kernel)}  # type: ignore[arg-type]


def unpack(record: dict[str, Any], tensors: Tensors) -> SavedModel:
    """Return the model of a record and its tensors. Raises ValueError if no fit can have made them."""
    found = _decode(record, tensors)
    bounds = {"Z": LARGEST_PARAMETER, "R_inverse": LARGEST_FACTOR, "m": LARGEST_MEAN, "log_noise": LARGEST_LOG}
    bounds |= {NOVELTY + "whitening": LARGEST_FACTOR, NOVELTY + "held_out": LARGEST_MEAN}
    bounds |= {"scaler.mean": LARGEST_INPUT} if found["scaler"] == "unscaled" else {}
    for name, x in tensors.items():
        if x.is_floating_point() and x.numel():
            bound = LARGEST_LOG if name.startswith(KERNEL) else bounds.get(name, torch.finfo(x.dtype).max)
            bound = LARGEST_INPUT if name.startswith(LEVELS) else bound
            low, high = (float(end) for end in torch.aminmax(x))
            if not (-bound <= low and high <= bound):
                raise ValueError(f"{name} has NaN, infinity or a number beyond {bound:g}")
    found["encoding"] = encoding = _unpack_encoding(found, tensors)
    kernel, Z, factor = found["kernel"], tensors["Z"], tensors["R_inverse"]
    kernel = Grouped(kernel, encoding.feature_groups) if isinstance(encoding, TableEncoding) else kernel
    params = {name.removeprefix(KERNEL): x for name, x in tensors.items() if name.startswith(KERNEL)}
    farthest = torch.maximum(Z.amax(1), -Z.amin(1))[:, None, :]
    if not bool((kernel.bind(params, farthest, Z.dtype).gram <= LARGEST_VARIANCE).all()):
        raise ValueError(f"its kernel has variances beyond {LARGEST_VARIANCE:g}")
    for x in factor:  # lower triangular, or upper triangular in the VI of the paper
        if (bool(x.triu(1).any()) and bool(x.tril(-1).any())) or not bool((x.diagonal() > 0).all()):
            raise ValueError("R_inverse must be triangular with a positive diagonal")
    epsilon = tensors.get("epsilon", found["epsilon"])
    if isinstance(epsilon, torch.Tensor) and not (bool((epsilon >= 0).all()) and float(epsilon.sum()) < 1.0):
        raise ValueError("epsilon must be at or above 0 and sum to less than 1")
    precision, noise_in_u = getattr(torch, found["precision"]), found["noise_in_u"]
    prior = Prior(kernel, params, tensors["log_noise"], Z, len(factor), precision, noise_in_u)
    whitened = Whitened(factor.mT if found["by_columns"] else factor, tensors["m"])
    residual = None
    if RESIDUAL + "share" in tensors:
        residual = Residual(*(tensors[RESIDUAL + name] for name in Residual._fields))
        if not residual.is_valid():
            raise ValueError("residual.variance must increase, and residual.share lie between 0 and 1")
    found["posterior"] = Posterior(prior, whitened, epsilon, found["sharpness"], residual)
    found["held_out"] = _unpack_held_out(tensors, len(factor))
    found["novelty"] = _unpack_novelty(found, tensors) if NOVELTY + "counts" in tensors else None
    return SavedModel(**{field.name: found[field.name] for field in fields(SavedModel)})


def _unpack_held_out(tensors: Tensors, n_classes: int) -> HeldOutScores | None:
    if HELD_OUT + "y" not in tensors:
        return None
    found = HeldOutScores(*(tensors[HELD_OUT + name].numpy() for name in HeldOutScores._fields))
    if not ((found.y >= 0) & (found.y < n_classes)).all() or not (found.weight > 0.0).all():
        raise ValueError("held_out.y must be labels, and held_out.weight be positive")
    return found


def _unpack_novelty(record: dict[str, Any], tensors: Tensors) -> Novelty:
    parts = {name.removeprefix(NOVELTY): x for name, x in tensors.items() if name.startswith(NOVELTY)}
    values, rows, missing, counts = (parts[name].numpy() for name in ("values", "rows", "missing", "counts"))
    if not (counts >= 0).all() or sum(counts.tolist()) != len(values):
        raise ValueError("novelty.counts must be at or above 0 and sum to the number of values")
    if not ((rows > 0).all() and (missing >= 0).all()):
        raise ValueError("novelty.rows must be positive, and novelty.missing at or above 0")
    held_out = parts["held_out"]
    if not bool((held_out >= 0).all() and (held_out[3] > 0).all()) or held_out.shape[1] > MOST_ROWS:
        raise ValueError(f"novelty.held_out must hold at most {MOST_ROWS} rows of numbers at or above 0")
    columns, ends, schema = list[ColumnProfile](), np.cumsum(counts)[:-1], record["schema"]
    for j, (own, n) in enumerate(zip(np.split(values, ends), np.split(rows, ends), strict=True)):
        levels = None if schema is None else schema.columns[j].levels
        is_right = levels is None or (np.isin(own, np.arange(len(levels))).all())
        if not (is_right and (own[1:] > own[:-1]).all()):
            raise ValueError("novelty.values must increase, and be those of levels where a column has some")
        columns.append(ColumnProfile(own.copy(), n.copy(), float(missing[j]), levels is not None))
    return Novelty(Profile(tuple(columns)), parts["whitening"], held_out)


def _unpack_schema(record: dict[str, Any], tensors: Tensors) -> Schema | None:
    columns, names = record["columns"], record["feature_names"]
    if columns is None:
        return None
    text, levels, start = b"", list[str](), 0
    if TEXT in tensors:
        text, lengths = tensors[TEXT].numpy().tobytes(), tensors[LENGTHS].tolist()
        if min(lengths) < 0 or sum(lengths) != len(text):
            raise ValueError(f"{LENGTHS} must sum to the length of {TEXT}")
        for length in lengths:
            levels.append(text[start : start + length].decode("utf-8", "surrogatepass"))
            start += length
    found, start = list[Column](), 0
    for label, column in zip(range(len(columns)) if names is None else names, columns, strict=True):
        own = tuple(levels[start : start + column["levels"]]) if column["kind"] == CATEGORY else None
        if own and any(a >= b for a, b in pairwise(own)):
            raise ValueError("the levels of a category must be sorted and distinct")
        start += column["levels"]
        found.append(Column(label, column["kind"], own, column["reason"]))
    return Schema(tuple(found))


def _unpack_encoding(record: dict[str, Any], tensors: Tensors) -> Encoding:
    parts = record["parts"]
    if parts is None:
        return _unpack_scaler(record["scaler"], tensors)
    scaler = _unpack_scaler(record["scaler"], tensors) if parts["numeric"] else None
    categories = [j for j, column in enumerate(record["columns"] or ()) if column["kind"] == CATEGORY]
    frequencies = dict(parts["frequencies"])
    return TableEncoding(
        record["n_features"],
        tuple(parts["numeric"]),
        scaler,
        tuple(Gap(*gap) for gap in parts["gaps"]),
        tuple(Levels(j, tensors[f"{LEVELS}{j}"].numpy(), frequencies.get(j, 0)) for j in categories),
        tuple(Cycle(j, name, CYCLES[name]) for j, name in parts["cycles"]),
    )


def _unpack_scaler(kind: str, tensors: Tensors) -> Scaler:
    arrays = {name.removeprefix("scaler."): x.numpy() for name, x in tensors.items() if name.startswith("scaler.")}
    if kind == "unscaled":
        return Unscaled(arrays.get("mean"))
    if not (arrays["sd"] >= np.finfo(float).tiny).all():
        raise ValueError("scaler.sd must be positive")
    standard = Standard(arrays["mean"], arrays["sd"])
    if kind == "standard":
        return standard
    counts, n_knots = arrays["counts"], len(arrays["knots"])
    if not ((counts >= 1) & (counts <= n_knots)).all() or sum(counts.tolist()) != n_knots:
        raise ValueError("scaler.counts must be positive and sum to the number of knots")
    ends = np.cumsum(counts)[:-1]
    knots, levels = (tuple(part.copy() for part in np.split(arrays[name], ends)) for name in ("knots", "levels"))
    if not all((a[1:] > a[:-1]).all() for a in knots) or not all((a[1:] >= a[:-1]).all() for a in levels):
        raise ValueError("scaler.knots and scaler.levels must increase")
    return Monotone(standard, knots, levels)


def _read_header(file: BinaryIO) -> tuple[dict[str, str], dict[str, Any], Tensors]:
    """Return the metadata of a model file, its record, and its tensors on the meta device."""
    try:
        metadata, header = tensor_file.read_header(file)
    except ValueError as error:
        file.seek(0)
        start, reason = file.read(8), f"{error}; it is not a model file, or it is damaged"
        if not start:
            reason = "it is empty"
        elif start[:1] == b"\x80" and start[1] in range(2, 6) and any(start[2:]):
            reason = "it is a pickle, which can run any code and is never opened here"
        elif start[:4] == b"PK\x03\x04":
            reason = "it is a zip archive, as torch.save writes it"
        raise _NotAModel(f"{reason}. {USE_SAVED}") from error
    if set(metadata) != {RECORD, DIGEST}:
        kind = "a training checkpoint" if "cavity" in metadata else "a safetensors file"
        raise _NotAModel(f"it is {kind}, not a cavity model. {USE_SAVED}")
    record = parse_json(metadata[RECORD])
    number = record.get("format") if isinstance(record, dict) else None
    if type(number) is not int or number < 1:
        raise ValueError("its record has no format number")
    if number > FORMAT:
        newer, remedy = str(record.get("cavity"))[:20], "Upgrade: pip install --upgrade cavity"
        reads = f"this version ({__version__}) reads format {FORMAT}"
        raise _NotAModel(f"it has format {number} of a newer cavity ({newer}); {reads}. {remedy}")
    return metadata, record, header


@contextmanager
def _explain_errors(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Turn errors into a ModelFileError with the file name, the reason and a remedy."""
    missing, retry, target = {
        "read": ("the file does not exist. Check the name", "Save the model again, or download the file again", "file"),
        "written": ("the folder does not exist. Create it first", "Such a file could not be read again", "folder"),
    }[action]
    try:
        yield
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        if isinstance(error, _NotAModel):
            reason = str(error)
        elif isinstance(error, ValueError | RecursionError):
            reason = f"{error}. {retry}"
        elif tensor_file.is_full(error):
            reason = "the disk is full. Free some space, or choose another folder"
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            reason = missing
        elif isinstance(error, PermissionError):
            reason = f"{error.strerror}. Change the permissions, or choose another {target}"
        else:
            reason = f"{error}. Check the name and the disk"
        raise ModelFileError(f"{os.fspath(path)} cannot be {action}: {reason}.") from error
