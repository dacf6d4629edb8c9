"""Convert a fitted model to an ONNX model of its class probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.data.schema import CATEGORY, DATE, LEFT_OUT, NUMBER, TIME, Schema
from cavity.export.graph import Graph, Value, import_onnx, tensor_info
from cavity.export.quadrature import largest_probabilities
from cavity.files.atomic import atomic_write
from cavity.fitting.conformal import SetRule
from cavity.fitting.encoding import Encoding, Monotone, Scaler, Standard, TableEncoding, Unscaled
from cavity.gp.gaussian import Posterior
from cavity.kernels import (
    RBF,
    Constant,
    Grouped,
    Kernel,
    Laplace,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Params,
    Product,
    Sum,
)
from cavity.numerics.limits import LARGEST_INPUT, rounding
from cavity.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

Array = NDArray[np.float64]

BLOCK_ELEMENTS = 2**17  # classes × rows × inducing points (or nodes) of a block of rows: they fit into a cache
TYPICAL_NODES = 40
ALWAYS = 3.0  # a score above any that is needed
DTYPES = {"float64": "DOUBLE", "float32": "FLOAT"}
PROBABILITIES, LABEL, SET = "probabilities", "label", "set"
UNITS = {
    DATE: "seconds since 1970-01-01T00:00:00 (UTC where the column has a time zone)",
    TIME: "seconds since midnight",
}
MAX_FILE_SIZE = 2**31  # bytes, the limit of protobuf
EXPORTED: tuple[type[Kernel], ...] = (RBF, Matern12, Matern32, Matern52, Laplace, Linear, Constant)  # and composites


def to_onnx(
    posterior: Posterior,
    encoding: Encoding,
    classes: ArrayLike,
    feature_names: Sequence[str] | None = None,
    dtype: str = "float64",
    schema: Schema | None = None,
    rule: SetRule | None = None,
) -> ModelProto:
    """Convert a fitted model to an ONNX model of standard operators, which runs without cavity.

    An array of numbers has one input, `X`, (N, D), with any N. Other tables have an input for each column in use,
    (N, 1), with the name of the column: strings for a category, seconds since 1970 for a date, seconds since
    midnight for a time. NaN is a missing number, date or time. A text that is not a level is none of the known, as a
    missing level is: use "" for it. The outputs are `probabilities`, (N, C), and `label`, (N,). Labels that are
    integers or strings are returned as they are, others as indices into the classes, which the metadata list. The model
    processes rows in blocks, so that memory does not grow with N. A row with infinity gets NaN probabilities.

    `dtype` is that of numbers and probabilities, "float64" or "float32". Dates, times and the computation are always
    float64. Custom kernels and scalers raise TypeError. With a `rule`, a third output is `set`, (N, C): whether each
    label is in the prediction set.
    """
    labels, n_classes = np.asarray(classes), posterior.prior.n_classes
    n_columns = encoding.n_columns if isinstance(encoding, TableEncoding) else posterior.prior.Z.shape[-1]
    if labels.shape != (n_classes,):
        raise ValueError(f"classes must have shape ({n_classes},), got {labels.shape}")
    if feature_names is not None and len(feature_names) != n_columns:
        raise ValueError(f"feature_names must have {n_columns} names, got {len(feature_names)}")
    if dtype not in DTYPES:
        raise ValueError(f'dtype must be "float64" or "float32", got {dtype!r}')
    kinds = set() if schema is None else {column.kind for column in schema.columns}
    plain = {NUMBER} if feature_names is not None else {NUMBER, LEFT_OUT}  # an array of numbers stays one
    mixed = schema if kinds - plain else None
    inputs = [_Input("X", DTYPES[dtype], range(n_columns))]
    if mixed is not None and isinstance(encoding, TableEncoding):
        inputs = _column_inputs(mixed, encoding, dtype)
    graph = Graph([PROBABILITIES, LABEL, SET, *(one.name for one in inputs)])
    p = _probabilities(graph, posterior, encoding, inputs)
    graph.output(p if dtype == "float64" else p.cast("FLOAT"), PROBABILITIES)
    output_labels, label_type = np.arange(n_classes), "INT64"
    if labels.dtype.kind in "iu" and labels.max() <= np.iinfo(np.int64).max:
        output_labels = labels.astype(np.int64)
    elif all(isinstance(label, str) for label in labels.tolist()):
        output_labels, label_type = np.array(labels.tolist(), dtype=object), "STRING"
    graph.output(graph.constant(output_labels).take(p.argmax(1)), LABEL)
    outputs = [tensor_info(PROBABILITIES, DTYPES[dtype], "N", n_classes), tensor_info(LABEL, label_type, "N")]
    if rule is not None:
        graph.output(_prediction_sets(p, rule, n_classes), SET)
        outputs.append(tensor_info(SET, "BOOL", "N", n_classes))
    model = graph.model([tensor_info(one.name, one.type, "N", len(one.columns)) for one in inputs], outputs)
    model.producer_name, model.producer_version = "cavity", __version__
    model.doc_string = "Class probabilities of a Gaussian process classifier with inducing points"
    is_value = labels.dtype.kind not in "fb" and labels.tolist() == output_labels.tolist()
    metadata = {"classes": json.dumps(labels.tolist(), default=str), "label": "value" if is_value else "index"}
    if feature_names is not None:
        metadata["feature_names"] = json.dumps([str(name) for name in feature_names])
    if mixed is not None:
        metadata["columns"] = json.dumps(_describe_columns(mixed, inputs))
    import_onnx().helper.set_model_props(model, metadata)
    if (size := model.ByteSize()) >= MAX_FILE_SIZE:
        raise ValueError(
            f"the model has {size / 2**30:.1f} GiB, and an ONNX file must be smaller than 2 GiB; use fewer inducing "
            "points, share_kernel or share_inducing"
        )
    import_onnx().checker.check_model(model, full_check=True)
    return model


def write_onnx(model: ModelProto, path: str | PathLike[str]) -> None:
    """Write an ONNX model to a file atomically. An old file is replaced."""
    with atomic_write(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


@dataclass(frozen=True)
class _Input:
    """An input of the graph, (N, number of columns): its ONNX type, and the levels of a category."""

    name: str
    type: str
    columns: Sequence[int]
    levels: Sequence[str] | None = None

    def take(self, graph: Graph, rows: Value) -> Value:
        """The cells of some rows: a level is its index, and none of the known the index after the last."""
        x = Value(graph, self.name).take(rows)
        if self.levels is None:
            return x if self.type == "DOUBLE" else x.cast("DOUBLE")
        places = {level: k for k, level in enumerate(self.levels) if _is_unicode(level)}
        # A runtime converts the number 3.0 to this text, and a schema to "3".
        places = {f"{level}.0": k for level, k in places.items() if level.lstrip("-").isdecimal()} | places
        attributes = {"keys_strings": list(places), "values_int64s": list(places.values())}
        found = graph.op("LabelEncoder", x, domain="ai.onnx.ml", default_int64=len(self.levels), **attributes)
        return found.cast("DOUBLE")


def _column_inputs(schema: Schema, encoding: TableEncoding, dtype: str) -> list[_Input]:
    """Return an input for each column that the encoding uses, with a printable name of its own."""
    inputs, taken, types = list[_Input](), {PROBABILITIES, LABEL, SET}, {CATEGORY: "STRING", NUMBER: DTYPES[dtype]}
    for j in sorted({*encoding.numeric, *(part.column for part in encoding.categories)}):
        column = schema.columns[j]
        text = column.name if isinstance(column.name, str) and column.name else f"x{j}"
        name = "".join(letter if letter.isprintable() else "_" for letter in text)
        while name in taken:
            name += "_"
        taken.add(name)
        inputs.append(_Input(name, types.get(column.kind, "DOUBLE"), [j], column.levels))
    return inputs


def _describe_columns(schema: Schema, inputs: Sequence[_Input]) -> list[dict[str, Any]]:
    """Return the name, kind and input of each column, for the metadata; without an input where it is not used."""
    names = {one.columns[0]: one.name for one in inputs}
    return [
        {"name": str(column.name), "kind": column.kind}
        | ({"input": names[j]} if j in names else {})
        | ({"unit": UNITS[column.kind]} if column.kind in UNITS else {})
        for j, column in enumerate(schema.columns)
    ]


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, which no ONNX string can have."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _probabilities(graph: Graph, posterior: Posterior, encoding: Encoding, inputs: Sequence[_Input]) -> Value:
    """Probabilities, (N, C). All blocks have the same size; the last one repeats its last row."""
    # The longest input has N rows: a shorter one raises an error.
    n_rows, max_rows = reduce(Value.maximum, [Value(graph, one.name).size(0) for one in inputs]), _block_rows(posterior)
    blocks = (n_rows + (max_rows - 1)) / max_rows
    size = (n_rows + blocks - 1) / blocks.maximum(1)
    prior, q, epsilon = posterior.prior, posterior.whitened, posterior.epsilon
    each = _array(epsilon)[:, None] if isinstance(epsilon, Tensor) else epsilon / prior.n_classes  # part of a class
    others = 1.0 - float(epsilon.sum() if isinstance(epsilon, Tensor) else epsilon)
    places = {j: k for k, j in enumerate(j for one in inputs for j in one.columns)}

    def block(i: Value) -> Value:  # follows `Posterior.marginals`
        rows = (graph.arange(size) + i * size).minimum(n_rows - 1)
        columns = [one.take(graph, rows) for one in inputs]
        cells = columns[0] if len(columns) == 1 else graph.op("Concat", *columns, axis=1)
        cross, diag = covariance(prior.kernel, prior.params, _array(prior.Z), features(encoding, cells, places))
        W = _array(prior.L_inverse) @ cross
        kappa = diag + _array(prior.noise)[:, None]
        s = (kappa - W.sum_of_squares(1)).maximum(kappa * rounding(prior.dtype))
        mean = (posterior.sharpness * _array(q.m))[:, None, :] @ W
        mean, var = mean.reshape(prior.n_classes, -1), s + (_array(q.R_inverse) @ W).sum_of_squares(1)
        p = largest_probabilities(mean, var, prior.n_classes)
        p = p * others + each if others < 1.0 else p
        return (p + (cells.is_nan().where(0.0, cells) * 0.0).sum(1)).T  # NaN where a cell is infinite

    return graph.loop(blocks, block).reshape(-1, prior.n_classes).slice(0, n_rows, 0)


def _prediction_sets(p: Value, rule: SetRule, n_classes: int) -> Value:
    """Whether each label is in the set, (N, C), from probabilities; follows `SetRule.sets`, without logarithms."""
    graph, n_rows, size = p.graph, p.size(0), max(1, BLOCK_ELEMENTS // n_classes**2)
    least = np.where(
        rule.least > 0.0, rule.least + 1.0, np.exp(rule.least)
    )  # of p-values, and above 1 of probabilities

    def block(i: Value) -> Value:
        own = p.take((graph.arange(graph.constant(size)) + i * size).minimum(n_rows - 1))
        top = own.max(1, keepdims=True)
        needed = graph.constant(least)
        if len(rule.limits):
            needed = needed.take((top >= rule.limits).cast("INT64").sum(1, keepdims=True))
        score, of_top = own, own
        if rule.score == "adaptive":
            others = own.unsqueeze(1)
            score, of_top = (others <= own.unsqueeze(2)).where(others, 0.0).sum(2), own + 1.0
        found = (own >= top).where(of_top if rule.allow_empty else ALWAYS, score) >= needed
        return found.cast("DOUBLE")

    n_blocks = (n_rows + (size - 1)) / size
    return graph.loop(n_blocks, block).reshape(-1, n_classes).slice(0, n_rows, 0).cast("BOOL")


def _block_rows(posterior: Posterior) -> int:
    prior = posterior.prior
    return max(16, BLOCK_ELEMENTS // (prior.n_classes * max(prior.Z.shape[1], TYPICAL_NODES)))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def features(encoding: Encoding, cells: Value, places: Mapping[int, int]) -> Value:
    """The features of cells, (N, F), given the places of the table's columns among those of the cells."""
    if not isinstance(encoding, TableEncoding):
        return scale(encoding, cells)
    graph, gaps, blocks = cells.graph, encoding.gaps, list[Value]()

    def take(columns: Iterable[int]) -> Value:
        return cells.take(np.array([places[j] for j in columns]), axis=1)

    if encoding.scaler is not None:
        blocks.append(scale(encoding.scaler, take(encoding.numeric)))
    if gaps:
        center, factor = (np.array([gap[k] for gap in gaps]) for k in (1, 2))
        blocks.append((take(gap.column for gap in gaps).is_nan().cast("DOUBLE") - center) * factor)
    for part in encoding.categories:
        index = take([part.column]).cast("INT64").reshape(-1)
        blocks.append(graph.constant(part.table).take(index))
    if twice := [cycle for cycle in encoding.cycles for _ in range(2)]:  # cosine and sine
        period = np.array([cycle.period for cycle in twice])
        remainder = graph.op("Mod", take(cycle.column for cycle in twice), period, fmod=1)
        angle = remainder * (2.0 * np.pi / period) + np.resize([0.5 * np.pi, 0.0], len(twice))
        blocks.append(angle.is_nan().where(0.0, angle.sin()))
    return graph.op("Concat", *blocks, axis=1).take(encoding.order, axis=1)


def scale(scaler: Scaler, X: Value) -> Value:
    """The rows in the units of the kernel, (N, D), clipped to ±`LARGEST_INPUT`; a gap becomes the center."""
    is_gap = X.is_nan()
    if type(scaler) is Unscaled:
        filled = is_gap.where(0.0 if scaler.mean is None else scaler.mean, X)
        return filled.clip(-LARGEST_INPUT, LARGEST_INPUT)
    X = is_gap.where(0.0, X)
    if type(scaler) is Standard:
        scaled = (X * 0.5 - 0.5 * scaler.mean) / (0.5 * scaler.sd)  # halves: the difference cannot overflow
    elif type(scaler) is Monotone:  # interpolate between the knots, and extrapolate with the slope of `Standard`
        x, knots = X * 0.5, [0.5 * knots for knots in scaler.knots]
        first, last = (np.array([row[end] for row in knots]) for end in (0, -1))
        outside = (x - first).minimum(0.0) + (x - last).maximum(0.0)
        padded = _table(knots, np.inf)
        flat, step = x.graph.constant(padded.ravel()), padded.shape[1] // 2
        index = x.graph.op("Expand", np.arange(len(padded)) * padded.shape[1], x.graph.op("Shape", x))
        while step:  # a binary search for the last knot below x
            ahead = index + step
            index, step = (flat.take(ahead) <= x).where(ahead, index), step // 2
        widths, rises = (_table([np.diff(row, append=row[-1]) for row in rows], 0.0) for rows in (knots, scaler.levels))
        tables = (_table(knots, 0.0), np.where(widths > 0.0, widths, 1.0), _table(scaler.levels, 0.0), rises)
        knot, width, level, rise = (x.graph.constant(table.ravel()).take(index) for table in tables)
        scaled = level + ((x - knot) / width).clip(0.0, 1.0) * rise + outside / (0.5 * scaler.standard.sd)
    else:
        raise TypeError(f"scaler must be Standard, Monotone or Unscaled to be exported, got {scaler!r}")
    return is_gap.where(0.0, scaled.clip(-LARGEST_INPUT, LARGEST_INPUT))


def _table(rows: Sequence[Array], fill: float) -> Array:
    """Stack rows of different lengths, padded to a power of two."""
    size = 1 << (max(map(len, rows)) - 1).bit_length()
    return np.stack([np.pad(row, (0, size - len(row)), constant_values=fill) for row in rows])


def covariance(kernel: Kernel, params: Params, Z: Array, X: Value) -> tuple[Value, Value]:
    """k(Z, x), (C, M, N), and k(x, x), (C, N), from Z, (C, M, D), and X, (N, D); C is 1 where all classes share it.

    Raises TypeError for other kernels, subclasses too: they may compute anything.
    """
    kind = type(kernel)
    if isinstance(kernel, Grouped):
        return covariance(kernel.kernel, kernel.expand(params), Z, X)
    if kind in (Sum, Product):
        parts = [covariance(part, own, Z, X) for part, own in kernel._split(params)]  # type: ignore[attr-defined]
        combine = Value.__add__ if kind is Sum else Value.__mul__
        return reduce(combine, [cross for cross, _ in parts]), reduce(combine, [diag for _, diag in parts])
    if kind not in EXPORTED:
        names = ", ".join(other.__name__ for other in EXPORTED)
        raise TypeError(f"kernel must be {names}, or a sum or product of them to be exported, got {kernel!r}")
    log_variance = _array(params["log_variance"])
    variance = np.exp(log_variance)
    if kind is Constant:
        shape = max(len(variance), len(Z)), Z.shape[1], 1
        return np.broadcast_to(variance[:, None, None], shape) + (X * 0.0).sum(1), variance[:, None] + (X * 0.0).sum(1)
    log_lengthscale = _array(params["log_lengthscale"])
    if kind is Linear:
        precision = np.exp(log_variance[:, None] - 2.0 * log_lengthscale)
        return _inner_products(Z * precision[:, None, :], X.T), precision @ X.T.square()
    if kind is Laplace:
        distances = _manhattan_distances(np.exp(-log_lengthscale), Z, X)
        return (log_variance[:, None, None] - distances).exp(), variance[:, None] + (X * 0.0).sum(1)
    cross = _stationary(kind, log_variance[:, None, None], np.exp(-2.0 * log_lengthscale), Z, X)
    return cross, variance[:, None] + (X * 0.0).sum(1)


def _stationary(kind: type[Kernel], log_variance: Array, precision: Array, Z: Array, X: Value) -> Value:
    """variance · correlation(r²) with r² = Σ_d (z_d − x_d)²/ℓ_d² from a single matrix product, (C, M, N).

    The variance is in the exponent, where it stays float64: onnxruntime fuses a number that multiplies a matrix before
    or after a matrix product into the product, as float32. For the same reason no k(x, x) is a constant of the graph.
    """
    center = Z.mean((0, 1))  # r² is a difference of squares, inaccurate far from the origin
    columns, Z = X.T - center[:, None], Z - center
    scaled = Z * precision[:, None, :]
    row_norms = precision @ columns.square()
    r2 = _inner_products(-2.0 * scaled, columns) + (Z * scaled).sum(-1)[..., None] + row_norms.unsqueeze(1)
    r2 = r2.maximum(0.0)
    if kind is RBF:
        return (r2 * -0.5 + log_variance).exp()
    if kind is Matern12:
        return (log_variance - r2.sqrt()).exp()
    r2 = r2 * (3.0 if kind is Matern32 else 5.0)
    r = r2.sqrt()
    polynomial = r + 1.0 if kind is Matern32 else r + r2 * (1.0 / 3.0) + 1.0
    return polynomial * (log_variance - r).exp()


def _manhattan_distances(scale: Array, Z: Array, X: Value) -> Value:
    """Σ_d |z_d − x_d|/ℓ_d of every pair, (C, M, N). There is no product for it: memory is D times that of a block."""
    rows = scale[:, None, None, :] * X.unsqueeze(0).unsqueeze(0)
    return ((Z * scale[:, None, :])[:, :, None, :] - rows).abs().sum(3)


def _inner_products(Z: Array, columns: Value) -> Value:
    """zᵀx for every pair with one matrix product for all classes, (C, M, N)."""
    C, M, D = Z.shape
    return (Z.reshape(C * M, D) @ columns).reshape(C, M, -1)
