"""Models of tables with categories, dates and gaps: an input for each column."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
import torch

from cavity.data.schema import find_schema
from cavity.export import to_onnx
from cavity.fitting.encoding import TableEncoding, fit_encoding
from cavity.gp import probabilities as predict
from cavity.kernels import RBF, Grouped, Linear, Matern32
from tests.models import mixed_model, mixed_table, model, posterior

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

INPUTS = {"size": "double", "color": "string", "when": "double", "town": "string", "at": "double", "label_": "string",
          "count": "double"}  # fmt: skip


def exported(saved, **changes):
    return to_onnx(saved.posterior, saved.encoding, saved.classes, saved.feature_names, schema=saved.schema, **changes)


def session(found):
    return onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])


def expected(saved, table):
    features = saved.encoding.transform(saved.schema.read(table))
    return np.exp(predict.log_probabilities(saved.posterior, torch.from_numpy(features)))


def feed(table, names=None):
    """The columns of an Arrow table, without this library."""
    found = {}
    for name, column in zip(names or table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        if pa.types.is_string(column.type) or pa.types.is_boolean(column.type):
            values = np.array(["no level" if x is None else str(x) for x in values], dtype=object)
        elif pa.types.is_timestamp(column.type):
            values = [np.nan if x is None else x.replace(tzinfo=UTC).timestamp() for x in values]
        elif pa.types.is_time(column.type):
            values = [np.nan if x is None else 3600.0 * x.hour + 60.0 * x.minute + x.second for x in values]
        else:
            values = np.array(values, dtype=np.float64)
        found[name] = np.asarray(values).reshape(-1, 1)
    return found


def mixed_feed(table):
    found = feed(table)
    found["label_"] = found.pop("label")  # the name of an output
    return {name: found[name] for name in INPUTS}


@pytest.mark.parametrize("scaling", ["standard", "quantile", None])
@pytest.mark.parametrize("kernel", [RBF(), Matern32(), RBF() + Linear() * Matern32()], ids=["RBF", "Matern32", "sum"])
def test_probabilities_are_those_of_the_library(kernel, scaling):
    """With gaps, levels that were not in the training rows, and dates before and after those of training."""
    saved, new = mixed_model(kernel, scaling), mixed_table(500, seed=1)
    assert saved.encoding.gaps
    assert saved.encoding.cycles
    assert any(part.by_fold is not None for part in saved.encoding.categories)  # encoded by class frequencies
    assert any(part.by_fold is None for part in saved.encoding.categories)
    ready = session(exported(saved))
    for table in (mixed_table(), new):
        p = ready.run(["probabilities"], mixed_feed(table))[0]
        np.testing.assert_allclose(p, expected(saved, table), rtol=0, atol=1e-10)
        assert p.std(0).min() > 0.02


def test_a_kernel_for_all_classes():
    saved = mixed_model(shared=(True, True))
    p = session(exported(saved)).run(["probabilities"], mixed_feed(mixed_table(seed=1)))[0]
    np.testing.assert_allclose(p, expected(saved, mixed_table(seed=1)), rtol=0, atol=1e-11)


def test_another_runtime_agrees():
    from onnx.reference import ReferenceEvaluator

    saved, table = mixed_model(), mixed_table(30, seed=1)
    p = ReferenceEvaluator(exported(saved)).run(None, mixed_feed(table))[0]
    np.testing.assert_allclose(p, expected(saved, table), rtol=0, atol=1e-11)


def test_every_column_in_use_is_an_input_and_the_metadata_describe_them():
    ready = session(exported(mixed_model()))
    assert {one.name: one.type for one in ready.get_inputs()} == {
        name: f"tensor({kind})" for name, kind in INPUTS.items()
    }
    assert all(one.shape == ["N", 1] for one in ready.get_inputs())
    columns = json.loads(ready.get_modelmeta().custom_metadata_map["columns"])
    assert {one["name"]: one.get("input") for one in columns} == {
        "size": "size", "color": "color", "when": "when", "id": None, "town": "town", "at": "at", "label": "label_",
        "count": "count",
    }  # fmt: skip
    assert {one["kind"]: one["unit"].split(" (")[0] for one in columns if "unit" in one} == {
        "date": "seconds since 1970-01-01T00:00:00", "time": "seconds since midnight"
    }  # fmt: skip
    assert columns[3]["kind"] == "left out"


def test_single_precision_leaves_dates_in_double():
    """A float32 would round a date of today to two minutes."""
    saved, table = mixed_model(), mixed_table(50, seed=1)
    ready = session(exported(saved, dtype="float32"))
    types = {one.name: one.type for one in ready.get_inputs()}
    assert (types["size"], types["when"], types["at"]) == ("tensor(float)", "tensor(double)", "tensor(double)")
    given = mixed_feed(table)
    given["size"], given["count"] = given["size"].astype(np.float32), given["count"].astype(np.float32)
    rounded = table.set_column(0, "size", pa.array(given["size"].ravel().astype(float), from_pandas=True))
    p = ready.run(["probabilities"], given)[0]
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, expected(saved, rounded), rtol=0, atol=6e-8)


def test_any_number_of_rows_and_none():
    ready, given = session(exported(mixed_model())), mixed_feed(mixed_table(5, seed=1))
    assert ready.run(["probabilities"], {name: x[:0] for name, x in given.items()})[0].shape == (0, 3)
    whole = ready.run(["probabilities"], given)[0]
    for i in range(5):
        one = ready.run(["probabilities"], {name: x[i : i + 1] for name, x in given.items()})[0]
        np.testing.assert_allclose(one[0], whole[i], rtol=0, atol=1e-12)


def test_columns_of_different_lengths_raise():
    ready, given = session(exported(mixed_model())), mixed_feed(mixed_table(5, seed=1))
    with pytest.raises(Exception, match="out of"):
        ready.run(None, given | {"town": given["town"][:4]})


def test_infinity_gives_nan():
    ready, given = session(exported(mixed_model())), mixed_feed(mixed_table(5, seed=1))
    given["when"][2] = np.inf
    assert np.isnan(ready.run(["probabilities"], given)[0]).all(1).tolist() == [False, False, True, False, False]


# --- Tables of a few columns ---


def small_model(table, categorical_features="from_dtype"):
    y, rows = np.arange(len(table)) % 3, table
    schema = find_schema(rows, categorical_features)
    encoding = fit_encoding(schema, "standard", schema.read(rows), y, np.ones(len(y)), 3)
    kernel = Grouped(RBF(), encoding.feature_groups) if isinstance(encoding, TableEncoding) else RBF()
    names = [one.name for one in schema.columns]
    names = [str(name) for name in names] if any(isinstance(name, str) for name in names) else None
    about = {"schema": schema, "encoding": encoding, "n_features": len(schema.columns), "feature_names": names}
    return model(posterior=posterior(kernel, rows=encoding.transform(schema.read(rows))), **about)


def test_categories_alone():
    table = pa.table({"a": ["x", "y", None, "z"] * 5, "b": ["u", "v", "u", None] * 5})
    saved = small_model(table)
    assert saved.encoding.scaler is None
    p = session(exported(saved)).run(["probabilities"], feed(table))[0]
    np.testing.assert_allclose(p, expected(saved, table), rtol=0, atol=1e-12)


@pytest.mark.parametrize("has_empty", [True, False])
def test_an_empty_text_is_a_level_if_training_had_it_and_else_missing(has_empty):
    saved = small_model(pa.table({"a": (["", "x", "y"] if has_empty else ["z", "x", "y"]) * 8}))
    p = session(exported(saved)).run(["probabilities"], {"a": np.array([[""], ["unknown"]], dtype=object)})[0]
    same = expected(saved, pa.table({"a": ["" if has_empty else None, None]}))
    np.testing.assert_allclose(p, same, rtol=0, atol=1e-12)
    assert (np.abs(p[0] - p[1]).max() > 1e-6) == has_empty


def test_levels_that_are_numbers_or_truth_values_are_text():
    """Runtimes write 3.0 as "3.0"; for the library 3, 3.0 and "3" are one level."""
    rows = [[3, True], [4, False], [-5, None], [None, True]] * 4
    saved = small_model(rows, [0, 1])
    ready = session(exported(saved))
    assert [(one.name, one.type) for one in ready.get_inputs()] == [("x0", "tensor(string)"), ("x1", "tensor(string)")]
    truths = np.array([["True"], ["False"], [""], ["True"]], dtype=object)
    for texts in (["3", "4", "-5", ""], ["3.0", "4.0", "-5.0", "nan"], [3.0, 4, -5.0, np.nan]):
        p = ready.run(["probabilities"], {"x0": np.array(texts, dtype=object)[:, None], "x1": truths})[0]
        np.testing.assert_allclose(p, expected(saved, rows[:4]), rtol=0, atol=1e-12)


def test_a_level_of_its_own_is_not_another_one():
    saved = small_model([["3", 1.0], ["3.0", 2.0], ["x", 3.0]] * 5)
    given = {"x0": np.array([["3"], ["3.0"]], dtype=object), "x1": np.ones((2, 1))}
    p = session(exported(saved)).run(["probabilities"], given)[0]
    np.testing.assert_allclose(p, expected(saved, [["3", 1.0], ["3.0", 1.0]]), rtol=0, atol=1e-12)
    assert np.abs(p[0] - p[1]).max() > 1e-6


def test_any_name_becomes_a_valid_one_of_its_own():
    names = ["v1", "v2", "probabilities", "probabilities_", "", "two\nlines", "two\tlines", "n" * 10_000, "naïve 小"]
    columns = [pa.array([f"{k % 3}-{j}" for k in range(30)]) for j in range(len(names))]
    table = pa.Table.from_arrays(columns, names=names)
    saved = small_model(table)
    ready = session(exported(saved))
    inputs = [one.name for one in ready.get_inputs()]
    assert inputs == ["v1", "v2", "probabilities_", "probabilities__", "x4", "two_lines", "two_lines_", *names[7:]]
    p = ready.run(["probabilities"], feed(table, inputs))[0]
    np.testing.assert_allclose(p, expected(saved, table), rtol=0, atol=1e-12)


def test_levels_of_any_content():
    levels = ["", " ", "'\"", "a\nb", "a\0b", "小", "x" * 10_000, "None", "nan", "3", "lone \ud800"]
    rows = np.array([[level] for level in levels] * 4, dtype=object)
    saved, rows = small_model(rows), rows[: len(levels) - 1]  # no ONNX string holds a lone surrogate
    p = session(exported(saved)).run(["probabilities"], {"x0": rows})[0]
    np.testing.assert_allclose(p, expected(saved, rows), rtol=0, atol=1e-12)


def test_dates_of_any_type():
    dates = [datetime(1969, 7, 20, 20, 17, 40, 250_000), datetime(2031, 1, 1), None, datetime(2000, 2, 29, 12)] * 5
    saved = small_model(pa.table({"d": dates}))
    seconds = [np.nan if d is None else d.replace(tzinfo=UTC).timestamp() for d in dates]
    p = session(exported(saved)).run(["probabilities"], {"d": np.array(seconds)[:, None]})[0]
    np.testing.assert_allclose(p, expected(saved, pa.table({"d": dates})), rtol=0, atol=1e-11)
    saved = small_model(pa.table({"d": pa.array([date(2000, 1, 1 + k) for k in range(30)], pa.date32())}))
    days = (np.datetime64("2000-01-01") + np.arange(30)).astype("datetime64[s]").astype(float)
    p = session(exported(saved)).run(["probabilities"], {"d": days[:, None]})[0]
    table = pa.table({"d": [date(2000, 1, 1 + k) for k in range(30)]})
    np.testing.assert_allclose(p, expected(saved, table), rtol=0, atol=1e-11)


def test_numbers_with_gaps_have_the_single_input():
    """Gaps in the training rows have an indicator; a column without any value is not used."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    X[::4, 0] = X[:, 1] = np.nan
    y = np.arange(60) % 3
    encoding = fit_encoding(None, "standard", X, y, np.ones(60), 3)
    kernel = Grouped(Matern32(), encoding.feature_groups)
    q = posterior(kernel, rows=encoding.transform(X))
    ready = session(to_onnx(q, encoding, np.arange(3)))
    assert [(one.name, one.shape) for one in ready.get_inputs()] == [("X", ["N", 3])]
    new = np.concatenate([X, np.full((1, 3), np.nan), np.ones((1, 3))])
    p = ready.run(["probabilities"], {"X": new})[0]
    same = np.exp(predict.log_probabilities(q, torch.from_numpy(encoding.transform(new))))
    np.testing.assert_allclose(p, same, rtol=0, atol=1e-11)


def test_a_schema_of_numbers_has_the_single_input():
    rows = np.random.default_rng(0).standard_normal((30, 2)).astype(object)
    saved = small_model(rows)
    ready = session(exported(saved))
    assert [(one.name, one.shape) for one in ready.get_inputs()] == [("X", ["N", 2])]
    assert "columns" not in ready.get_modelmeta().custom_metadata_map
    p = ready.run(["probabilities"], {"X": rows.astype(float)})[0]
    np.testing.assert_allclose(p, expected(saved, rows), rtol=0, atol=1e-11)


def test_an_array_of_numbers_with_an_empty_column_has_the_single_input():
    """In a frame the column is not an input."""
    rows = np.random.default_rng(0).standard_normal((30, 3)).astype(object)
    rows[:, 1] = None
    saved = small_model(rows)
    ready = session(exported(saved))
    assert [(one.name, one.shape) for one in ready.get_inputs()] == [("X", ["N", 3])]
    p = ready.run(["probabilities"], {"X": rows.astype(float)})[0]
    np.testing.assert_allclose(p, expected(saved, rows), rtol=0, atol=1e-11)
    named = exported(replace(saved, feature_names=["a", "b", "c"]))
    assert [one.name for one in session(named).get_inputs()] == ["x0", "x2"]


def test_operators_of_the_standard_and_of_its_part_for_machine_learning():
    found = exported(mixed_model())
    assert [(one.domain, one.version) for one in found.opset_import] == [("", 15), ("ai.onnx.ml", 2)]
    onnx.checker.check_model(onnx.load_from_string(found.SerializeToString()), full_check=True)


def test_names_must_be_those_of_the_columns():
    saved = mixed_model()
    with pytest.raises(ValueError, match="feature_names must have 8 names, got 1"):
        exported(replace(saved, feature_names=["a"]))
