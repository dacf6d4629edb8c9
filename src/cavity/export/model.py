"""From a fitted model to an ONNX model of its probabilities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.export.graph import Graph, Value, info, onnx_library
from cavity.export.kernels import Rows, covariance
from cavity.export.quadrature import largest_probabilities
from cavity.export.scaling import scaled
from cavity.files.atomic import whole_file
from cavity.fitting.encoding import Scaler
from cavity.gp.gaussian import Posterior
from cavity.numerics.limits import rounding
from cavity.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

BLOCK_ELEMENTS = 2**17  # classes × rows × inducing points or nodes of a block of rows: what a cache holds
TYPICAL_NODES = 40
TYPES = {"float64": "DOUBLE", "float32": "FLOAT"}
LARGEST_FILE = 2**31  # bytes that protobuf writes


def to_onnx(
    posterior: Posterior,
    scaler: Scaler,
    classes: ArrayLike,
    feature_names: Sequence[str] | None = None,
    dtype: str = "float64",
) -> ModelProto:
    """The class probabilities as an ONNX model of standard operators, which no longer needs this library.

    Its input `X` is (N, D), N free. Its outputs are `probabilities`, (N, C), and `label`, (N,): the label itself where
    labels are whole numbers or text, else its position in the classes, which the metadata hold in any case. Rows are
    worked on in blocks, so that memory does not grow with N. A row with NaN or infinity gets the probabilities NaN.

    Args:
        posterior: q(u).
        scaler: from the units of X to those of the kernel.
        classes: labels, in the order of the probabilities.
        feature_names: names of the features, for the metadata.
        dtype: of X and of the probabilities, "float64" or "float32"; all between them is float64.
    """
    labels, n_features = np.asarray(classes), posterior.prior.Z.shape[-1]
    _check(posterior, labels, feature_names, dtype)
    graph = Graph()
    X = Value(graph, "X")
    p = _in_blocks(posterior, scaler, X if dtype == "float64" else X.cast("DOUBLE"))
    graph.named(p if dtype == "float64" else p.cast("FLOAT"), "probabilities")
    told = _told(labels)
    graph.named(graph.constant(told).take(p.argmax(1)), "label")
    outputs = [info("probabilities", TYPES[dtype], "N", len(labels)), info("label", _kind(told), "N")]
    model = graph.model([info("X", TYPES[dtype], "N", n_features)], outputs)
    return _checked(_described(model, labels, told, feature_names))


def write_onnx(model: ModelProto, path: str | PathLike[str]) -> None:
    """Write a model to a file, whole or not at all; an old file of that name is replaced."""
    with whole_file(Path(path)) as unfinished:
        unfinished.write_bytes(model.SerializeToString())


def _in_blocks(posterior: Posterior, scaler: Scaler, X: Value) -> Value:
    """Probabilities, (N, C). All blocks have one size; the last is filled up with its last row."""
    graph, n_rows, most = X.graph, X.length(0), _block_rows(posterior)
    blocks = (n_rows + (most - 1)) / most
    size = (n_rows + blocks - 1) / blocks.at_least(1)

    def block(i: Value) -> Value:
        places = (graph.counted(size) + i * size).at_most(n_rows - 1)
        return _probabilities(posterior, scaler, X.take(places))

    return graph.stacked(blocks, block).reshape(-1, posterior.prior.n_classes).slice(0, n_rows, 0)


def _block_rows(posterior: Posterior) -> int:
    prior = posterior.prior
    return max(16, BLOCK_ELEMENTS // (prior.n_classes * max(prior.Z.shape[1], TYPICAL_NODES)))


def _probabilities(posterior: Posterior, scaler: Scaler, X: Value) -> Value:
    """Of one block of rows, (N, C)."""
    n_classes, epsilon = posterior.prior.n_classes, posterior.epsilon
    mean, var = _moments(posterior, scaled(scaler, X.is_nan().where(0.0, X)))
    p = largest_probabilities(mean, var, n_classes)
    p = p * (1.0 - epsilon) + epsilon / n_classes if epsilon else p
    return (p + (X * 0.0).sum(1)).mT  # NaN where X is not finite


def _moments(posterior: Posterior, X: Value) -> tuple[Value, Value]:
    """Mean, sharpened, and variance of f, each (C, N): `Posterior.marginals`."""
    prior, q = posterior.prior, posterior.whitened
    cross, diag = covariance(prior.kernel, prior.params, Rows(X, _array(prior.Z)))
    W = _array(prior.L_inverse) @ cross
    kappa = diag + _array(prior.noise)[:, None]
    s = (kappa - W.sum_of_squares(1)).at_least(kappa * rounding(prior.dtype))
    mean = (posterior.sharpness * _array(q.m))[:, None, :] @ W
    return mean.reshape(prior.n_classes, -1), s + (_array(q.R_inverse) @ W).sum_of_squares(1)


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().cpu().numpy().astype(np.float64)


def _told(classes: NDArray[Any]) -> NDArray[Any]:
    """What the output `label` says: whole numbers and text as they are, the place of anything else."""
    if classes.dtype.kind in "iu" and classes.max() <= np.iinfo(np.int64).max:
        return classes.astype(np.int64)
    if all(isinstance(label, str) for label in classes.tolist()):
        return np.array(classes.tolist(), dtype=object)
    return np.arange(len(classes))


def _kind(told: NDArray[Any]) -> str:
    return "INT64" if told.dtype.kind == "i" else "STRING"


def _described(model: Any, classes: NDArray[Any], told: NDArray[Any], feature_names: Sequence[str] | None) -> Any:
    """With the producer, the classes and the names of the features."""
    is_value = classes.dtype.kind not in "fb" and classes.tolist() == told.tolist()
    model.producer_name, model.producer_version = "cavity", __version__
    model.doc_string = "Class probabilities of a Gaussian process classifier with inducing points"
    about = {"classes": json.dumps(classes.tolist(), default=str), "label": "value" if is_value else "index"}
    if feature_names is not None:
        about["feature_names"] = json.dumps([str(name) for name in feature_names])
    onnx_library().helper.set_model_props(model, about)
    return model


def _checked(model: Any) -> Any:
    if (size := model.ByteSize()) >= LARGEST_FILE:
        raise ValueError(
            f"the model takes {size / 2**30:.1f} GiB, and an ONNX file holds less than 2; fewer inducing points make "
            "it smaller, as do share_kernel and share_inducing"
        )
    onnx_library().checker.check_model(model, full_check=True)
    return model


def _check(posterior: Posterior, classes: NDArray[Any], feature_names: Sequence[str] | None, dtype: str) -> None:
    n_classes, n_features = posterior.prior.n_classes, posterior.prior.Z.shape[-1]
    if classes.shape != (n_classes,):
        raise ValueError(f"classes has shape {classes.shape}; the posterior has {n_classes} classes")
    if feature_names is not None and len(feature_names) != n_features:
        raise ValueError(f"feature_names has {len(feature_names)} names; the posterior has {n_features} features")
    if dtype not in TYPES:
        raise ValueError(f'dtype={dtype!r} cannot be used; "float64" and "float32" can')
