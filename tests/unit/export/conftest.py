"""Graphs run as soon as they are written."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def run():
    """`run(body, x, ...)`: what onnxruntime makes of `body(x, ...)`, one array or several, all optimizations on."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from cavity.export.graph import Graph, Value

    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1

    def free(name):
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None)

    def run(body, *arrays):
        graph, given = Graph(), {f"x{i}": np.asarray(array, dtype=np.float64) for i, array in enumerate(arrays)}
        found = body(*(Value(graph, name) for name in given))
        found = {f"y{i}": value for i, value in enumerate(found if isinstance(found, tuple) else (found,))}
        for name, value in found.items():
            graph.output(value.cast("DOUBLE"), name)
        model = graph.model([free(name) for name in given], [free(name) for name in found])
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        made = session.run(None, given)
        return made[0] if len(made) == 1 else tuple(made)

    return run
