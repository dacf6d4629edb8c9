"""ONNX graphs written as arithmetic: values with operators, each of which adds a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

OPSET = 15  # of 2021: nothing newer is needed
IR_VERSION = 8


def onnx_library() -> Any:
    """The package `onnx`, which is an extra."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("the export needs onnx: pip install 'cavity[onnx]'") from error
    return onnx


def info(name: str, kind: str, *shape: str | int) -> Any:
    """An input or an output of a model: name, kind ("DOUBLE", "INT64", …) and lengths, those that are free by name."""
    onnx = onnx_library()
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(kind), shape)


class Graph:
    """A graph under construction. Constants belong to the whole, nodes to it or to the body of a loop."""

    def __init__(self) -> None:
        self._onnx = onnx_library()
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}
        self._count = 0

    def constant(self, value: ArrayLike) -> Value:
        """An array, kept once however often it is asked for; fractions are float64, whole numbers int64."""
        array = np.asarray(value)
        array = array.astype({"f": np.float64, "i": np.int64}.get(array.dtype.kind, array.dtype))
        content = tuple(array.ravel()) if array.dtype.kind == "O" else array.tobytes()
        key = array.dtype.str, array.shape, content
        if key not in self._constants:
            self._constants[key] = self._onnx.numpy_helper.from_array(array, self._name())
        return Value(self, self._constants[key].name)

    def op(self, kind: str, *inputs: Value | ArrayLike, **attributes: Any) -> Value:
        """A node of one output."""
        names = [self.value(x).name for x in inputs]
        made = Value(self, self._name())
        self._nodes.append(self._onnx.helper.make_node(kind, names, [made.name], **attributes))
        return made

    def value(self, x: Value | ArrayLike) -> Value:
        """`x` itself, or as a constant."""
        return x if isinstance(x, Value) else self.constant(x)

    def stacked(self, count: Value, body: Callable[[Value], Value]) -> Value:
        """`body(0)`, `body(1)`, …, one after the other and along a new first axis; float64 all."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        index, go_in, go_out, made = (self._name() for _ in range(4))
        outside, self._nodes = self._nodes, []
        found = body(Value(self, index))
        inside, self._nodes = self._nodes, outside
        inside.append(helper.make_node("Identity", [go_in], [go_out]))
        arguments = [info(index, "INT64"), info(go_in, "BOOL")]
        results = [info(go_out, "BOOL"), helper.make_tensor_value_info(found.name, types.DOUBLE, None)]
        of_body = helper.make_graph(inside, "body", arguments, results)
        self._nodes.append(helper.make_node("Loop", [count.name, self.constant(True).name], [made], body=of_body))
        return Value(self, made)

    def counted(self, count: Value) -> Value:
        """0, 1, … up to `count`, left out."""
        return self.op("Range", 0, count, 1)

    def named(self, x: Value, name: str) -> None:
        """Give a result its name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [x.name], [name]))

    def model(self, inputs: list[Any], outputs: list[Any]) -> Any:
        """The whole as an `onnx.ModelProto` with these inputs and outputs, as `info` makes them."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "cavity", inputs, outputs, list(self._constants.values()))
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that will be there when the graph runs. Numbers and arrays beside it become constants."""

    graph: Graph = field(repr=False)
    name: str

    __array_ufunc__ = None  # so that NumPy leaves `array @ value` to us

    def __add__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("Add", self, other)

    def __radd__(self, other: ArrayLike) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: ArrayLike) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("Mul", self, other)

    def __rmul__(self, other: ArrayLike) -> Value:
        return self.graph.op("Mul", other, self)

    def __truediv__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: ArrayLike) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("MatMul", self, other)

    def __rmatmul__(self, other: ArrayLike) -> Value:
        return self.graph.op("MatMul", other, self)

    def __lt__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("Less", self, other)

    def __le__(self, other: Value | ArrayLike) -> Value:
        return self.graph.op("LessOrEqual", self, other)

    def exp(self) -> Value:
        return self.graph.op("Exp", self)

    def log(self) -> Value:
        return self.graph.op("Log", self)

    def sqrt(self) -> Value:
        return self.graph.op("Sqrt", self)

    def abs(self) -> Value:
        return self.graph.op("Abs", self)

    def square(self) -> Value:
        return self * self

    def at_least(self, other: Value | ArrayLike) -> Value:
        """The larger of both, entry by entry."""
        return self.graph.op("Max", self, other)

    def at_most(self, other: Value | ArrayLike) -> Value:
        """The smaller of both, entry by entry."""
        return self.graph.op("Min", self, other)

    def clip(self, low: float, high: float) -> Value:
        return self.graph.op("Clip", self, low, high)

    def where(self, yes: Value | ArrayLike, no: Value | ArrayLike) -> Value:
        """Of a truth value: `yes` where it holds, `no` elsewhere."""
        return self.graph.op("Where", self, yes, no)

    def sum(self, axis: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keep))

    def max(self, *axes: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceMax", self, axes=axes, keepdims=int(keep))

    def min(self, axis: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceMin", self, axes=[axis], keepdims=int(keep))

    def sum_of_squares(self, axis: int) -> Value:
        return self.graph.op("ReduceSumSquare", self, axes=[axis], keepdims=0)

    def is_nan(self) -> Value:
        return self.graph.op("IsNaN", self)

    def product(self, axis: int, length: int) -> Value:
        """Along an axis of known length, by halves: not every runtime multiplies float64 along an axis."""
        whole, rest = self, None
        while length > 1:
            length, odd = divmod(length, 2)
            if odd:
                last = whole.slice(2 * length, 2 * length + 1, axis)
                rest = last if rest is None else rest * last
            whole = whole.slice(0, length, axis) * whole.slice(length, 2 * length, axis)
        return whole if rest is None else whole * rest

    def slice(self, start: Value | int, stop: Value | int, axis: int) -> Value:
        """From `start` up to `stop` along an axis."""
        ends = (end.reshape(1) if isinstance(end, Value) else np.array([end]) for end in (start, stop))
        return self.graph.op("Slice", self, *ends, np.array([axis]))

    def argmax(self, axis: int, keep: bool = False) -> Value:
        """The place of the largest along an axis, the first of several."""
        return self.graph.op("ArgMax", self, axis=axis, keepdims=int(keep))

    def take(self, index: Value | NDArray[np.int64], axis: int = 0) -> Value:
        return self.graph.op("Gather", self, index, axis=axis)

    def reshape(self, *shape: int) -> Value:
        """One length may be -1."""
        return self.graph.op("Reshape", self, np.array(shape))

    def grow(self, axis: int) -> Value:
        """With a new axis of length 1."""
        return self.graph.op("Unsqueeze", self, np.array([axis]))

    @property
    def mT(self) -> Value:
        """The transpose of a matrix."""
        return self.graph.op("Transpose", self, perm=[1, 0])

    def length(self, axis: int) -> Value:
        """Of an axis, a number."""
        return self.graph.op("Squeeze", self.graph.op("Shape", self, start=axis, end=axis + 1), np.array([0]))

    def cast(self, to: str) -> Value:
        """As "DOUBLE", "FLOAT" or "INT64", which cuts off what is behind the point."""
        return self.graph.op("Cast", self, to=onnx_library().TensorProto.DataType.Value(to))
