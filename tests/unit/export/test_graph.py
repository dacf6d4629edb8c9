"""Values with operators: each says what NumPy says."""

import sys

import numpy as np
import pytest

from cavity.export.graph import Graph, Value, import_onnx

X = np.array([[0.5, -2.0, 3.0], [1.0, 4.0, -0.25]])
A = np.array([[1.5, 2.0, 0.3], [0.7, -1.0, 2.5]])

EXPRESSIONS = {
    "add": lambda x: x + A,
    "added to": lambda x: A + x,
    "subtract": lambda x: x - A,
    "subtracted from": lambda x: A - x,
    "multiply": lambda x: 2.0 * x,
    "divide": lambda x: x / A,
    "divided by": lambda x: A / x,
    "product with a matrix": lambda x: x @ A.T,
    "product of a matrix": lambda x: A.T @ x,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_operators_mean_what_they_mean_in_numpy(run, name):
    np.testing.assert_allclose(run(EXPRESSIONS[name], X), EXPRESSIONS[name](X), rtol=1e-15)


CALLS = {
    "exp": (lambda x: x.exp(), np.exp(X)),
    "log": (lambda x: x.abs().log(), np.log(np.abs(X))),
    "sqrt": (lambda x: x.square().sqrt(), np.abs(X)),
    "maximum": (lambda x: x.maximum(A), np.maximum(X, A)),
    "minimum": (lambda x: x.minimum(0.0), np.minimum(X, 0)),
    "clip": (lambda x: x.clip(-1.0, 2.0), np.clip(X, -1, 2)),
    "less": (lambda x: x < 1.0, X < 1),
    "less or equal": (lambda x: x <= 1.0, X <= 1),
    "where": (lambda x: (x < 0.0).where(0.0, x), np.where(X < 0, 0, X)),
    "is nan": (lambda x: (x / x).is_nan(), np.zeros_like(X)),
    "sum": (lambda x: x.sum(1), X.sum(1)),
    "sum, axis kept": (lambda x: x.sum(0, keepdims=True), X.sum(0, keepdims=True)),
    "max": (lambda x: x.max(0), X.max(0)),
    "max of all": (lambda x: x.max(0, 1), X.max()),
    "min": (lambda x: x.min(1, keepdims=True), X.min(1, keepdims=True)),
    "sum of squares": (lambda x: x.sum_of_squares(0), (X**2).sum(0)),
    "argmax": (lambda x: x.argmax(1), X.argmax(1)),
    "slice": (lambda x: x.slice(1, 3, 1), X[:, 1:3]),
    "slice to a computed end": (lambda x: x.slice(0, x.size(0) - 1, 0), X[:1]),
    "take": (lambda x: x.take(np.array([2, 0]), axis=1), X[:, [2, 0]]),
    "reshape": (lambda x: x.reshape(3, -1), X.reshape(3, 2)),
    "unsqueeze": (lambda x: x.unsqueeze(1), X[:, None]),
    "transpose": (lambda x: x.T, X.T),
    "arange": (lambda x: x.graph.arange(x.size(1)), np.arange(3)),
    "truncate": (lambda x: x.cast("INT64"), np.trunc(X)),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_do_what_their_names_say(run, name):
    call, expected = CALLS[name]
    found = run(call, X)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 10, 100])
def test_a_product_runs_over_all_of_the_axis(run, length):
    x = np.random.default_rng(length).uniform(0.5, 1.5, (2, length, 3))
    found = run(lambda v: v.prod(1, length), x)
    np.testing.assert_allclose(found, x.prod(1, keepdims=True), rtol=1e-13)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loop_stacks_what_its_body_makes(run, count):
    x = np.arange(2.0 * count).reshape(count, 2)
    found = run(lambda v: v.graph.loop(v.size(0), lambda i: v.take(i).sum(0) * i.cast("DOUBLE")), x)
    np.testing.assert_allclose(found.ravel(), x.sum(1) * np.arange(count))


def test_equal_constants_are_kept_once():
    pytest.importorskip("onnx")
    graph = Graph()
    x = Value(graph, "X")
    _ = (x + 2.5) * 2.5 + np.float32(2.5) + np.array([2.5])
    model = graph.model([], [])
    assert len(model.graph.initializer) == 2  # a number, and an array of one


def test_equal_nodes_are_kept_once_and_those_of_a_loop_stay_in_it():
    pytest.importorskip("onnx")
    graph = Graph()
    x = Value(graph, "X")
    _ = x.exp() + x.exp()
    _ = graph.loop(x.size(0), lambda i: x.exp().sqrt())
    _ = x.sqrt(), x.exp().sqrt()
    nodes = graph.model([], []).graph.node
    assert [node.op_type for node in nodes] == ["Exp", "Add", "Shape", "Squeeze", "Loop", "Sqrt", "Sqrt"]
    inner = nodes[4].attribute[0].g.node
    assert [node.op_type for node in inner] == ["Sqrt", "Identity"]
    assert not {node.output[0] for node in inner} & {name for node in nodes for name in node.input}


def test_fractions_are_doubles_and_whole_numbers_int64():
    onnx = pytest.importorskip("onnx")
    graph = Graph()
    for value in (np.float32(0.5), 3, np.array([1, 2], dtype=np.int32)):
        graph.constant(value)
    kinds = [tensor.data_type for tensor in graph.model([], []).graph.initializer]
    assert kinds == [onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.INT64]


def test_without_onnx_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[onnx\]'"):
        import_onnx()
