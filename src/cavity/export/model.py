"""Convert a fitted model to an ONNX model of its class probabilities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.export.graph import Graph, Value, import_onnx, tensor_info
from cavity.export.quadrature import largest_probabilities
from cavity.files.atomic import atomic_write
from cavity.fitting.encoding import Quantile, Scaler, Standard, Unscaled
from cavity.gp.gaussian import Posterior
from cavity.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Matern52, Params, Product, Sum
from cavity.numerics.limits import LARGEST_INPUT, rounding
from cavity.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

Array = NDArray[np.float64]

BLOCK_ELEMENTS = 2**17  # classes × rows × inducing points (or nodes) of a block of rows: they fit into a cache
TYPICAL_NODES = 40
DTYPES = {"float64": "DOUBLE", "float32": "FLOAT"}
MAX_FILE_SIZE = 2**31  # bytes, the limit of protobuf
EXPORTED: tuple[type[Kernel], ...] = (RBF, Matern12, Matern32, Matern52, Linear, Constant)  # and Sum and Product


def to_onnx(
    posterior: Posterior,
    scaler: Scaler,
    classes: ArrayLike,
    feature_names: Sequence[str] | None = None,
    dtype: str = "float64",
) -> ModelProto:
    """Convert a fitted model to an ONNX model of standard operators, which runs without cavity.

    The input `X` is (N, D), with any N. The outputs are `probabilities`, (N, C), and `label`, (N,). Labels that are
    integers or strings are returned as they are, others as indices into the classes, which the metadata list. The model
    processes rows in blocks, so that memory does not grow with N. A row with NaN or infinity gets NaN probabilities.

    `dtype` is that of X and of the probabilities, "float64" or "float32"; the computation is always float64. Custom
    kernels and scalers raise TypeError.
    """
    labels, n_classes, n_features = np.asarray(classes), posterior.prior.n_classes, posterior.prior.Z.shape[-1]
    if labels.shape != (n_classes,):
        raise ValueError(f"classes must have shape ({n_classes},), got {labels.shape}")
    if feature_names is not None and len(feature_names) != n_features:
        raise ValueError(f"feature_names must have {n_features} names, got {len(feature_names)}")
    if dtype not in DTYPES:
        raise ValueError(f'dtype must be "float64" or "float32", got {dtype!r}')
    graph = Graph()
    X = Value(graph, "X")
    p = _probabilities(posterior, scaler, X if dtype == "float64" else X.cast("DOUBLE"))
    graph.output(p if dtype == "float64" else p.cast("FLOAT"), "probabilities")
    output_labels, label_type = np.arange(n_classes), "INT64"
    if labels.dtype.kind in "iu" and labels.max() <= np.iinfo(np.int64).max:
        output_labels = labels.astype(np.int64)
    elif all(isinstance(label, str) for label in labels.tolist()):
        output_labels, label_type = np.array(labels.tolist(), dtype=object), "STRING"
    graph.output(graph.constant(output_labels).take(p.argmax(1)), "label")
    outputs = [tensor_info("probabilities", DTYPES[dtype], "N", n_classes), tensor_info("label", label_type, "N")]
    model = graph.model([tensor_info("X", DTYPES[dtype], "N", n_features)], outputs)
    model.producer_name, model.producer_version = "cavity", __version__
    model.doc_string = "Class probabilities of a Gaussian process classifier with inducing points"
    is_value = labels.dtype.kind not in "fb" and labels.tolist() == output_labels.tolist()
    metadata = {"classes": json.dumps(labels.tolist(), default=str), "label": "value" if is_value else "index"}
    if feature_names is not None:
        metadata["feature_names"] = json.dumps([str(name) for name in feature_names])
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


def _probabilities(posterior: Posterior, scaler: Scaler, X: Value) -> Value:
    """Probabilities, (N, C). All blocks have the same size; the last one repeats its last row."""
    graph, n_rows, max_rows = X.graph, X.size(0), _block_rows(posterior)
    blocks = (n_rows + (max_rows - 1)) / max_rows
    size = (n_rows + blocks - 1) / blocks.maximum(1)
    prior, q, epsilon = posterior.prior, posterior.whitened, posterior.epsilon
    each = _array(epsilon)[:, None] if isinstance(epsilon, Tensor) else epsilon / prior.n_classes  # part of a class
    others = 1.0 - float(epsilon.sum() if isinstance(epsilon, Tensor) else epsilon)

    def block(i: Value) -> Value:  # follows `Posterior.marginals`
        rows = X.take((graph.arange(size) + i * size).minimum(n_rows - 1))
        scaled = scale(scaler, rows.is_nan().where(0.0, rows))
        cross, diag = covariance(prior.kernel, prior.params, _array(prior.Z), scaled)
        W = _array(prior.L_inverse) @ cross
        kappa = diag + _array(prior.noise)[:, None]
        s = (kappa - W.sum_of_squares(1)).maximum(kappa * rounding(prior.dtype))
        mean = (posterior.sharpness * _array(q.m))[:, None, :] @ W
        mean, var = mean.reshape(prior.n_classes, -1), s + (_array(q.R_inverse) @ W).sum_of_squares(1)
        p = largest_probabilities(mean, var, prior.n_classes)
        p = p * others + each if others < 1.0 else p
        return (p + (rows * 0.0).sum(1)).T  # NaN where a row is not finite

    return graph.loop(blocks, block).reshape(-1, prior.n_classes).slice(0, n_rows, 0)


def _block_rows(posterior: Posterior) -> int:
    prior = posterior.prior
    return max(16, BLOCK_ELEMENTS // (prior.n_classes * max(prior.Z.shape[1], TYPICAL_NODES)))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def scale(scaler: Scaler, X: Value) -> Value:
    """The rows in the units of the kernel, (N, D), clipped to ±`LARGEST_INPUT`."""
    if type(scaler) is Standard:
        scaled = (X * 0.5 - 0.5 * scaler.mean) / (0.5 * scaler.sd)  # halves: the difference cannot overflow
    elif type(scaler) is Quantile:  # interpolate between the knots, and extrapolate with the slope of `Standard`
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
    elif type(scaler) is Unscaled:
        scaled = X
    else:
        raise TypeError(f"scaler must be Standard, Quantile or Unscaled to be exported, got {scaler!r}")
    return scaled.clip(-LARGEST_INPUT, LARGEST_INPUT)


def _table(rows: Sequence[Array], fill: float) -> Array:
    """Stack rows of different lengths, padded to a power of two."""
    size = 1 << (max(map(len, rows)) - 1).bit_length()
    return np.stack([np.pad(row, (0, size - len(row)), constant_values=fill) for row in rows])


def covariance(kernel: Kernel, params: Params, Z: Array, X: Value) -> tuple[Value, Value]:
    """k(Z, x), (C, M, N), and k(x, x), (C, N), from Z, (C, M, D), and X, (N, D); C is 1 where all classes share it.

    Raises TypeError for other kernels, subclasses too: they may compute anything.
    """
    kind = type(kernel)
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


def _inner_products(Z: Array, columns: Value) -> Value:
    """zᵀx for every pair with one matrix product for all classes, (C, M, N)."""
    C, M, D = Z.shape
    return (Z.reshape(C * M, D) @ columns).reshape(C, M, -1)
