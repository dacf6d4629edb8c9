"""The state of a fitted classifier as arrays, numbers, text, lists, tuples and dicts, for pickle, skops and MLflow.

An object becomes a dict with the tag "$" for its type. Only the types listed here can be restored, so a file cannot
create anything else. Other objects, such as a custom kernel, stay as they are.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime, time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.data.profile import ColumnProfile, Profile
from cavity.data.schema import Column, Schema
from cavity.files.json_values import COMPOSITE, SIMPLE
from cavity.fitting.conformal import HeldOutScores
from cavity.fitting.encoding import Cycle, Gap, Levels, Monotone, Standard, TableEncoding, Unscaled
from cavity.fitting.fit import OnlineFit
from cavity.fitting.novelty import Novelty
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import Prior
from cavity.gp.residual import Residual
from cavity.inference.sep import SEPState
from cavity.kernels import Grouped
from cavity.runtime.device import DTYPES
from cavity.training.online import OnlineTrainer
from cavity.training.optimizers import Adam, AdaptiveRate
from cavity.training.parameters import HyperPrior, ParametricPrior

TAG = "$"
_OWN = (
    Column, Schema, Standard, Monotone, Unscaled, TableEncoding, Gap, Cycle, Levels,
    Posterior, Whitened, Prior, ParametricPrior, HyperPrior,
    Grouped, OnlineFit, OnlineTrainer, Adam, AdaptiveRate, SEPState, Residual, HeldOutScores,
    Novelty, Profile, ColumnProfile,
)  # fmt: skip
TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in _OWN} | SIMPLE | COMPOSITE


def to_plain(value: Any) -> Any:
    """Convert a value; `from_plain` restores it bit for bit."""
    if isinstance(value, Tensor):
        return _plain_tensor(value.detach())
    if isinstance(value, torch.dtype):
        return {TAG: "dtype", "name": str(value).removeprefix("torch.")}
    if type(value) in (datetime, time):
        return {TAG: type(value).__name__, "text": value.isoformat()}
    if isinstance(value, np.ndarray) and value.dtype == object:  # its cells can be dates
        return {TAG: "objects", "shape": value.shape, "cells": to_plain(value.ravel().tolist())}
    if TYPES.get(type(value).__name__) is type(value):
        if is_dataclass(value):  # without cached properties
            state = {field.name: getattr(value, field.name) for field in fields(value)}
        else:
            state = getattr(value, "_asdict", lambda: vars(value))()  # of a named tuple
        return {TAG: type(value).__name__} | to_plain(state)
    if type(value) is dict:
        return {key: to_plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(to_plain, value))
    return value


def from_plain(value: Any) -> Any:
    """Restore a value that `to_plain` has converted."""
    if type(value) in (list, tuple):
        return type(value)(map(from_plain, value))
    if type(value) is not dict:
        return value
    state = {key: from_plain(item) for key, item in value.items() if key != TAG}
    match value.get(TAG):
        case None:
            return state
        case "Tensor":
            return _restore_tensor(**state)
        case "dtype" if state["name"] in DTYPES:
            return DTYPES[state["name"]]
        case "datetime":
            return datetime.fromisoformat(state["text"])
        case "time":
            return time.fromisoformat(state["text"])
        case "objects":
            array = np.empty(len(state["cells"]), dtype=object)
            array[:] = state["cells"]
            return array.reshape(state["shape"])
        case str() as name if name in TYPES:
            if issubclass(TYPES[name], tuple):
                return TYPES[name](**state)
            found = object.__new__(TYPES[name])
            vars(found).update(state)
            return found
    raise ValueError(f"The state of a GPClassifier has an unknown object, {str(value[TAG])[:60]!r}.")


def _plain_tensor(x: Tensor) -> dict[str, Any]:
    """Keep the memory layout too: the last bits of a product depend on it."""
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    return {TAG: "Tensor", "values": x.permute(order).cpu().numpy(), "order": order, "device": str(x.device)}


def _restore_tensor(values: NDArray[Any], order: list[int], device: str) -> Tensor:
    x = torch.from_numpy(np.array(values, order="C")).clone()  # in memory from PyTorch, aligned as before
    x = x.permute(np.argsort(np.array(order, dtype=np.int64)).tolist())
    return x.to(device) if device == "cpu" or torch.cuda.is_available() else x
