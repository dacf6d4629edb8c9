"""A fitted model as a record in JSON and a few tensors, and back.

Reading has two steps. `check` holds the record and the shapes of the tensors against each other, before any tensor is
read; `build` looks at the numbers and makes the model. Both raise a ValueError for what no fit can have written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.files.json_values import decode, decode_kernel, decode_labels, encode, encode_labels, parameter_shapes
from cavity.files.tensor_file import Kinds, Tensors
from cavity.fitting.encoding import Quantile, Scaler, Standard, Unscaled
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import KERNEL, Prior
from cavity.inference import METHODS
from cavity.numerics.limits import LARGEST_PARAMETER

Record = dict[str, Any]

FORMAT = 1
LARGEST_LOG = 350.0  # of a parameter: its exponential has a square
LARGEST_FACTOR, LARGEST_MEAN, LARGEST_VARIANCE = 1e50, 1e75, 1e100  # what is made of them is finite
LARGEST_SHARPNESS = 1e6  # its inverse is the least
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
SCALERS = {"standard": Standard, "quantile": Quantile, "unscaled": Unscaled}
FREE = ("log_marginal_likelihood", "history", "training", "metrics")  # for people: predictions do not need them


@dataclass(frozen=True)
class Model:
    """All that a fitted classifier is.

    Attributes:
        params: arguments of the constructor. In a file `checkpoint`, and a `random_state` that is no int, become None.
        classes: labels, sorted: ints, floats, bools or strings.
        n_features: D.
        feature_names: of the columns, where they had names.
        posterior: q(u), with its sharpness and ε.
        scaler: from the units of X.
        method: "ep", "sep", "gfitc" or "vi".
        log_marginal_likelihood: log Z_q of the training rows, or the bound.
        n_iter: epochs run.
        history: records of training; a file has a few hundred of them at most.
        training: what is known of the training rows.
        metrics: scores.
    """

    params: dict[str, Any]
    classes: NDArray[Any]
    n_features: int
    feature_names: list[str] | None
    posterior: Posterior
    scaler: Scaler
    method: str
    log_marginal_likelihood: float
    n_iter: int
    history: list[dict[str, Any]]
    training: dict[str, Any]
    metrics: dict[str, Any]


class Form(NamedTuple):
    """How one format is read."""

    check: Callable[[Record, Kinds], None]
    build: Callable[[Record, Tensors], Model]


def pack(model: Model, version: str) -> tuple[Record, Tensors]:
    """The record and the tensors of a model; a TypeError for what they cannot hold."""
    q, tensors = model.posterior.to(torch.device("cpu")), dict[str, torch.Tensor]()
    factor = q.whitened.R_inverse
    by_columns = factor.mT.is_contiguous() and not factor.is_contiguous()
    record = {
        "format": FORMAT,
        "cavity": version,
        "classes": encode_labels(model.classes),
        "n_features": int(model.n_features),
        "feature_names": None if model.feature_names is None else [str(name) for name in model.feature_names],
        "method": model.method,
        "kernel": encode(q.prior.kernel, "start", tensors),
        "precision": str(q.prior.dtype).removeprefix("torch."),
        "by_columns": by_columns,  # how R_inverse lies in memory: the last bits of a product depend on it
        "sharpness": float(q.sharpness),
        "epsilon": float(q.epsilon),
        "scaler": type(model.scaler).__name__.lower(),
        "n_iter": int(model.n_iter),
        "params": encode(model.params, "params", tensors),
        "log_marginal_likelihood": encode(float(model.log_marginal_likelihood), "log_marginal_likelihood"),
        "history": encode(model.history, "history"),
        "training": encode(model.training, "training"),
        "metrics": encode(model.metrics, "metrics"),
    }
    tensors |= {"Z": q.prior.Z, "log_noise": q.prior.log_noise, "m": q.whitened.m}
    tensors |= {"R_inverse": factor.mT if by_columns else factor}
    tensors |= {KERNEL + name: value for name, value in q.prior.params.items()}
    return record, tensors | _of_scaler(model.scaler)


def _of_scaler(scaler: Scaler) -> Tensors:
    if not isinstance(scaler, Standard | Quantile | Unscaled):
        raise TypeError(f"scaler={scaler!r} is a {type(scaler).__name__}, which a model file cannot hold; "
                        "one of cavity.fitting.encoding is needed")  # fmt: skip
    standard = scaler.standard if isinstance(scaler, Quantile) else scaler
    arrays = {"mean": standard.mean, "sd": standard.sd} if isinstance(standard, Standard) else {}
    if isinstance(scaler, Quantile):
        arrays |= {"knots": np.concatenate(scaler.knots), "levels": np.concatenate(scaler.levels)}
        arrays |= {"counts": np.array([len(knots) for knots in scaler.knots], dtype=np.int64)}
    return {f"scaler.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


# --- Before any tensor is read ---


def _check(record: Record, kinds: Kinds) -> None:
    """Format 1: every field of its type, every tensor there with the shape it must have, and none beside."""
    _check_fields(record)
    left = dict(kinds)

    def take(name: str) -> NDArray[Any]:
        if left.pop(name, None) is None:
            raise ValueError(f"its array {name} is missing")
        return np.ones(())

    kernel = decode_kernel(record["kernel"], "start", take)
    decode(record["params"], "params", take)
    for name in FREE:
        decode(record[name], name, _take_nothing)
    for name, kind in _wanted(record, kernel, kinds).items():
        if left.get(name) != kind:
            raise ValueError(f"{name} is {_kind(left.get(name))} where {_kind(kind)} is needed")
        del left[name]
    if left:
        raise ValueError(f"{', '.join(sorted(left))[:100]}: no model of cavity has such tensors")


def _check_fields(record: Record) -> None:
    if set(record) - {"format"} != set(_RULES):
        raise ValueError(f"its record lacks or adds {', '.join(sorted(set(record) ^ {'format', *_RULES}))[:100]}")
    for name, is_valid in _RULES.items():
        if not is_valid(record[name]):
            raise ValueError(f"its {name} cannot be used")
    names = record["feature_names"]
    if names is not None and len(names) != record["n_features"]:
        raise ValueError(f"it has {len(names)} feature_names for {record['n_features']} features")


def _wanted(record: Record, kernel: Any, kinds: Kinds) -> Kinds:
    """What must be there; whether classes share kernel and points, M and the number of knots are as found."""
    C, D, M = len(decode_labels(record["classes"])), record["n_features"], _axis(kinds, "R_inverse", -1)
    n_kernels, n_points = _axis(kinds, "log_noise", 0), _axis(kinds, "Z", 0)
    if n_kernels not in (1, C) or n_points not in (1, C):
        raise ValueError(f"it has {n_kernels} kernels and {n_points} sets of points; of {C} classes 1 or {C} is needed")
    shapes = {"Z": (n_points, M, D), "log_noise": (n_kernels,), "R_inverse": (C, M, M), "m": (C, M)}
    shapes |= {KERNEL + name: shape for name, shape in parameter_shapes(kernel, n_kernels, D).items()}
    if record["scaler"] != "unscaled":
        shapes |= {"scaler.mean": (D,), "scaler.sd": (D,)}
    found: Kinds = {name: (torch.float64, shape) for name, shape in shapes.items()}
    if record["scaler"] == "quantile":
        knots = torch.float64, (_axis(kinds, "scaler.knots", 0),)
        found |= {"scaler.knots": knots, "scaler.levels": knots, "scaler.counts": (torch.int64, (D,))}
    return found


def _axis(kinds: Kinds, name: str, axis: int) -> int:
    shape = kinds.get(name, (None, ()))[1]
    if not shape or not shape[axis]:
        raise ValueError(f"{name} is missing or empty")
    return shape[axis]


def _kind(kind: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{str(kind[0]).removeprefix('torch.')} of shape {kind[1]}"


def _take_nothing(name: str) -> NDArray[Any]:
    raise ValueError(f"{name} is said to be an array")


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_between(value: Any, low: float, high: float) -> bool:
    return type(value) is float and low <= value <= high


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


_RULES: dict[str, Callable[[Any], bool]] = {
    "cavity": lambda v: isinstance(v, str) and len(v) <= 100,
    "classes": lambda v: isinstance(v, dict),
    "n_features": lambda v: _is_count(v, 1),
    "feature_names": lambda v: v is None or _are_texts(v),
    "method": lambda v: isinstance(v, str) and v in METHODS,
    "kernel": lambda v: isinstance(v, dict),
    "precision": lambda v: isinstance(v, str) and v in PRECISIONS,
    "by_columns": lambda v: isinstance(v, bool),
    "sharpness": lambda v: _is_between(v, 1 / LARGEST_SHARPNESS, LARGEST_SHARPNESS),
    "epsilon": lambda v: _is_between(v, 0.0, math.nextafter(1.0, 0.0)),
    "scaler": lambda v: isinstance(v, str) and v in SCALERS,
    "n_iter": lambda v: _is_count(v, 0),
    "params": lambda v: isinstance(v, dict) and not any(name.startswith("$") for name in v),
    "log_marginal_likelihood": lambda v: isinstance(v, float) or (isinstance(v, dict) and set(v) == {"$float"}),
    "history": lambda v: isinstance(v, list) and all(isinstance(record, dict) for record in v),
    "training": lambda v: isinstance(v, dict),
    "metrics": lambda v: isinstance(v, dict),
}


# --- From the tensors ---


def _build(record: Record, tensors: Tensors) -> Model:
    """Format 1: the model, its numbers looked at."""

    def take(name: str) -> NDArray[Any]:
        return tensors[name].numpy()

    free = {name: decode(record[name], name, take) for name in ("params", *FREE)}
    _check_numbers(tensors)
    posterior, scaler = _posterior(record, tensors), _scaler(record, tensors)
    plain = {name: record[name] for name in ("n_features", "feature_names", "method", "n_iter")}
    return Model(classes=decode_labels(record["classes"]), posterior=posterior, scaler=scaler, **plain, **free)


def _check_numbers(tensors: Tensors) -> None:
    """Nothing that is not finite, or so large that what is made of it would not be."""
    largest = {"Z": LARGEST_PARAMETER, "R_inverse": LARGEST_FACTOR, "m": LARGEST_MEAN, "log_noise": LARGEST_LOG}
    for name, x in tensors.items():
        if x.is_floating_point() and x.numel():
            bound = LARGEST_LOG if name.startswith(KERNEL) else largest.get(name, torch.finfo(x.dtype).max)
            low, high = (float(end) for end in torch.aminmax(x))
            if not (-bound <= low and high <= bound):
                raise ValueError(f"{name} holds NaN, infinity or a number beyond {bound:g}")


def _posterior(record: Record, tensors: Tensors) -> Posterior:
    kernel = decode_kernel(record["kernel"], "start", lambda name: tensors[name].numpy())
    params = {name.removeprefix(KERNEL): x for name, x in tensors.items() if name.startswith(KERNEL)}
    Z, factor = tensors["Z"], tensors["R_inverse"]
    furthest = torch.maximum(Z.amax(1), -Z.amin(1))[:, None, :]
    if not bool((kernel.bind(params, furthest, Z.dtype).gram <= LARGEST_VARIANCE).all()):
        raise ValueError(f"its kernel has variances beyond {LARGEST_VARIANCE:g}")
    if not all(_is_triangular(part) for part in factor):
        raise ValueError("R_inverse is not triangular with a positive diagonal")
    dtype = PRECISIONS[record["precision"]]
    prior = Prior(kernel, params, tensors["log_noise"], Z, len(factor), dtype)
    whitened = Whitened(factor.mT if record["by_columns"] else factor, tensors["m"])
    return Posterior(prior, whitened, record["epsilon"], record["sharpness"])


def _is_triangular(x: torch.Tensor) -> bool:
    """One way or the other: q(u) of the paper's VI has the other triangle."""
    is_one = not bool(x.triu(1).any()) or not bool(x.tril(-1).any())
    return is_one and bool((x.diagonal() > 0).all())


def _scaler(record: Record, tensors: Tensors) -> Scaler:
    arrays = {name.removeprefix("scaler."): x.numpy() for name, x in tensors.items() if name.startswith("scaler.")}
    if record["scaler"] == "unscaled":
        return Unscaled()
    if not (arrays["sd"] >= np.finfo(float).tiny).all():
        raise ValueError("scaler.sd has a number that is not positive")
    standard = Standard(arrays["mean"], arrays["sd"])
    return standard if record["scaler"] == "standard" else _quantile(standard, arrays)


def _quantile(standard: Standard, arrays: dict[str, NDArray[Any]]) -> Quantile:
    counts, n_knots = arrays["counts"], len(arrays["knots"])
    if not ((counts >= 1) & (counts <= n_knots)).all() or sum(counts.tolist()) != n_knots:
        raise ValueError("scaler.counts are not the numbers of knots")
    ends = np.cumsum(counts)[:-1]
    knots, levels = (tuple(part.copy() for part in np.split(arrays[name], ends)) for name in ("knots", "levels"))
    if not all((a[1:] > a[:-1]).all() for a in knots) or not all((a[1:] >= a[:-1]).all() for a in levels):
        raise ValueError("scaler.knots or scaler.levels do not rise")
    return Quantile(standard, knots, levels)


FORMS = {1: Form(_check, _build)}  # one for every format there has been
