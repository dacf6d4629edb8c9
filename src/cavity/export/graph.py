"""Build ONNX graphs with arithmetic: every operator on a `Value` adds a node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

OPSET = 15  # from 2021; nothing newer is needed
DOMAINS = {"ai.onnx.ml": 2}  # of operators beyond the default domain, with the versions of that time
IR_VERSION = 8


def import_onnx() -> Any:
    """Import the optional package `onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("ONNX export needs the package onnx: pip install 'cavity[onnx]'") from error
    return onnx


def tensor_info(name: str, dtype: str, *shape: str | int) -> Any:
    """Describe an input or output of a model by its ONNX type and axes; a string names an axis of any length."""
    onnx = import_onnx()
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(dtype), shape)


class Graph:
    """A graph under construction. Equal constants, and equal nodes of the graph or of a loop, are added once.

    Names in `taken`, those of inputs and outputs, are not used for other values.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._outputs: dict[tuple[str, ...], str] = {}  # of nodes
        self._constants: dict[tuple[Any, ...], Any] = {}
        self._domains: set[str] = set()
        self._new_names = (name for name in (f"v{i}" for i in count(1)) if name not in taken)

    def constant(self, value: ArrayLike) -> Value:
        """Add a constant, floats as float64 and integers as int64."""
        array = np.asarray(value)
        array = array.astype({"f": np.float64, "i": np.int64}.get(array.dtype.kind, array.dtype))
        content = tuple(array.ravel()) if array.dtype.kind == "O" else array.tobytes()
        key = array.dtype.str, array.shape, content
        if key not in self._constants:
            self._constants[key] = self._onnx.numpy_helper.from_array(array, next(self._new_names))
        return Value(self, self._constants[key].name)

    def op(self, kind: str, *inputs: Value | ArrayLike, **attributes: Any) -> Value:
        """Add a node with one output. Numbers and arrays among its inputs become constants.

        Attributes include the `domain` of an operator that is not in the default one.
        """
        self._domains |= {attributes["domain"]} if "domain" in attributes else set()
        names = [x.name if isinstance(x, Value) else self.constant(x).name for x in inputs]
        key = kind, *names, repr(attributes)
        if key not in self._outputs:
            self._outputs[key] = next(self._new_names)
            self._nodes.append(self._onnx.helper.make_node(kind, names, [self._outputs[key]], **attributes))
        return Value(self, self._outputs[key])

    def loop(self, n_steps: Value, body: Callable[[Value], Value]) -> Value:
        """Compute float64 values body(0), ..., body(n_steps - 1) in sequence and stack them along a new first axis."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        index, condition_in, condition_out, output = islice(self._new_names, 4)
        outer, self._nodes, self._outputs = (self._nodes, self._outputs), [], self._outputs.copy()
        result = body(Value(self, index))
        inner, (self._nodes, self._outputs) = self._nodes, outer
        inner.append(helper.make_node("Identity", [condition_in], [condition_out]))
        arguments = [tensor_info(index, "INT64"), tensor_info(condition_in, "BOOL")]
        results = [tensor_info(condition_out, "BOOL"), helper.make_tensor_value_info(result.name, types.DOUBLE, None)]
        graph = helper.make_graph(inner, "body", arguments, results)
        self._nodes.append(helper.make_node("Loop", [n_steps.name, self.constant(True).name], [output], body=graph))
        return Value(self, output)

    def arange(self, stop: Value) -> Value:
        """The integers from 0 to `stop` - 1."""
        return self.op("Range", 0, stop, 1)

    def output(self, x: Value, name: str) -> None:
        """Make `x` an output with this name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [x.name], [name]))

    def model(self, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return an `onnx.ModelProto` with these inputs and outputs (see `tensor_info`)."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "cavity", inputs, outputs, list(self._constants.values()))
        versions = {"": OPSET} | {domain: DOMAINS[domain] for domain in sorted(self._domains)}
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _method(kind: str) -> Callable[..., Value]:
    return lambda self, *others: self.graph.op(kind, self, *others)


def _reflected(kind: str) -> Callable[[Value, ArrayLike], Value]:
    return lambda self, other: self.graph.op(kind, other, self)


def _reduction(kind: str) -> Callable[..., Value]:
    return lambda self, *axes, keepdims=False: self.graph.op(kind, self, axes=axes, keepdims=int(keepdims))


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph. The methods are named after those of NumPy and PyTorch."""

    graph: Graph = field(repr=False)
    name: str

    __array_ufunc__ = None  # so that NumPy calls our __rmatmul__ for `array @ value`
    __add__, __radd__ = _method("Add"), _reflected("Add")
    __sub__, __rsub__ = _method("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _method("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _method("Div"), _reflected("Div")
    __matmul__, __rmatmul__ = _method("MatMul"), _reflected("MatMul")
    __lt__, __le__, __ge__ = _method("Less"), _method("LessOrEqual"), _method("GreaterOrEqual")
    maximum, minimum, clip = _method("Max"), _method("Min"), _method("Clip")
    exp, log, sqrt, abs, sin, is_nan = map(_method, ("Exp", "Log", "Sqrt", "Abs", "Sin", "IsNaN"))
    where = _method("Where")  # condition.where(x, y)
    max, min, sum_of_squares = map(_reduction, ("ReduceMax", "ReduceMin", "ReduceSumSquare"))

    def square(self) -> Value:
        return self * self

    def sum(self, axis: int, keepdims: bool = False) -> Value:
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keepdims))

    def prod(self, axis: int, length: int) -> Value:
        """The product along an axis of this length, by halving: not every runtime has ReduceProd for float64."""
        product, rest = self, None
        while length > 1:
            length, odd = divmod(length, 2)
            if odd:
                last = product.slice(2 * length, 2 * length + 1, axis)
                rest = last if rest is None else rest * last
            product = product.slice(0, length, axis) * product.slice(length, 2 * length, axis)
        return product if rest is None else product * rest

    def slice(self, start: Value | int, stop: Value | int, axis: int) -> Value:
        ends = (end.reshape(1) if isinstance(end, Value) else np.array([end]) for end in (start, stop))
        return self.graph.op("Slice", self, *ends, np.array([axis]))

    def argmax(self, axis: int, keepdims: bool = False) -> Value:
        return self.graph.op("ArgMax", self, axis=axis, keepdims=int(keepdims))

    def take(self, index: Value | NDArray[np.int64], axis: int = 0) -> Value:
        return self.graph.op("Gather", self, index, axis=axis)

    def reshape(self, *shape: int) -> Value:
        return self.graph.op("Reshape", self, np.array(shape))

    def unsqueeze(self, axis: int) -> Value:
        return self.graph.op("Unsqueeze", self, np.array([axis]))

    @property
    def T(self) -> Value:
        """The transpose of a matrix."""
        return self.graph.op("Transpose", self, perm=[1, 0])

    def size(self, axis: int) -> Value:
        """The length of an axis, a scalar."""
        return self.graph.op("Squeeze", self.graph.op("Shape", self, start=axis, end=axis + 1), np.array([0]))

    def cast(self, to: str) -> Value:
        """Convert to "BOOL", "DOUBLE", "FLOAT" or "INT64", which truncates."""
        return self.graph.op("Cast", self, to=import_onnx().TensorProto.DataType.Value(to))
