"""Rows held out: by their values alone, a fraction of each label, recognized in any order."""

import numpy as np
import pytest

from cavity.cli.holdout import digest, hold_out, recognize, row_keys
from cavity.cli.rows import Inputs, TableRows, open_table
from cavity.data.schema import Column

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.csv")
pq = pytest.importorskip("pyarrow.parquet")

LABELS = np.array(["a", "b", "c"])


def table(X):
    return pa.table({f"x{j}": column for j, column in enumerate(X.T)})


def some_rows(n=60, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 3))
    return TableRows(table(X), LABELS[np.arange(n) % 3], np.arange(1, n + 1))


def keys(rows):
    return row_keys(rows.cells(), rows.y)


def held(rows, fraction=0.2, seed=0):
    return hold_out(keys(rows), rows.y, fraction, seed)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.9])
def test_each_label_gives_its_share(share):
    found = held(some_rows(), share)
    for label in LABELS:
        assert found[some_rows().y == label].sum() == round(20 * share)


def test_the_seed_alone_decides_and_order_does_not_matter():
    rows, order = some_rows(), np.random.default_rng(1).permutation(60)
    assert np.array_equal(held(rows)[order], held(rows.take(order)))
    assert not np.array_equal(held(rows), held(rows, seed=1))
    assert digest(keys(rows)) == digest(keys(rows.take(order)))


def test_many_seeds_hold_every_row_out_about_equally_often():
    rows = some_rows()
    often = np.mean([held(rows, seed=seed) for seed in range(400)], axis=0)
    assert 0.1 < often.min() < often.max() < 0.3


def test_a_label_is_never_held_out_whole():
    rows = some_rows(4)._replace(y=np.array(["a", "a", "a", "b"]))
    found = held(rows, 0.9)
    assert found.tolist()[3] is False
    assert found.sum() == 2


def test_equal_rows_stay_together_but_at_one_place():
    rows = some_rows(10)
    copies = TableRows(rows.X.take(np.repeat(np.arange(10), 6)), np.repeat(["a"], 60), np.arange(60))
    found = held(copies, 0.3).reshape(10, 6)
    assert sum(len(set(six.tolist())) > 1 for six in found) <= 1


@pytest.mark.parametrize("change", ["value", "label", "fewer"])
def test_another_value_label_or_number_of_rows_is_another_digest(change):
    rows = some_rows()
    other = rows.take(np.arange(60))
    if change == "value":
        cells = other.cells()
        cells[7, 1] += 1e-12
        other = other._replace(X=table(cells))
    elif change == "label":
        other.y[7] = "c" if other.y[7] != "c" else "a"
    else:
        other = other.take(np.arange(59))
    assert digest(keys(rows)) != digest(keys(other))


def test_how_values_are_stored_makes_no_difference():
    X, y = np.array([[0.0, 1.0], [2.0, -0.0]]), np.array([1, 2])
    stored = [(X, y), (X + 0.0, np.array(["1", "2"])), (np.asfortranarray(X), y.astype(float))]
    assert len({digest(row_keys(*rows)) for rows in stored}) == 1


def test_rows_are_recognized_and_others_are_not():
    rows = some_rows()
    about = {"holdout": {"share": 0.2, "seed": 3, "rows": 12, "digest": digest(keys(rows))}}
    assert np.array_equal(recognize(rows.cells(), rows.y, about), held(rows, 0.2, 3))
    other = some_rows(seed=1)
    assert recognize(other.cells(), other.y, about) is None
    for unknown in ({}, {"holdout": None}, {"holdout": {"digest": None}}):
        assert recognize(rows.cells(), rows.y, unknown) is None


def test_the_digest_of_numbers_is_that_of_version_0_1_0():
    X = np.array([[0.5, -0.0], [1e300, 3.0], [-2.25, 7.0]])
    rows = TableRows(table(X), np.array(["a", "b", "a"]), np.arange(1, 4))
    assert digest(keys(rows)) == "e74ae816900fad9aef9e5b755362ddc0"


# --- Tables with text, dates and gaps ---

MIXED = {
    "color": ["red", None, "blue", "red", "green", None],
    "code": [7, 3, 3, None, 12, 7],
    "weight": [1.5, None, 2.0, -0.0, 4.0, 5.25],
    "day": np.array(["2020-01-02", "2021-03-04", "NaT", "2020-01-02", "1969-12-31", "2022-02-02"], "M8[D]"),
    "is_new": [True, False, None, True, True, False],
}


def mixed_rows(path, order=range(6), form="csv"):
    """The rows as a model reads them that knows only some of the levels."""
    data = pa.table(MIXED).take(list(order))
    if form == "csv":
        pc.write_csv(data, path / "rows.csv")
    else:
        types = {"color": pa.dictionary(pa.int8(), pa.string()), "code": pa.float64(), "day": pa.timestamp("ms")}
        for name, kind in types.items() if form == "other types" else ():
            data = data.set_column(data.column_names.index(name), name, data.column(name).cast(kind))
        pq.write_table(data, path / "rows.parquet")
    levels = {"color": ("red",), "code": ("3", "7"), "is_new": ("False", "True")}
    kinds = {"weight": "number", "day": "date"}
    inputs = Inputs(tuple(Column(name, kinds.get(name, "category"), levels.get(name)) for name in MIXED))
    found = open_table([str(path / ("rows.csv" if form == "csv" else "rows.parquet"))])
    X, _ = inputs.read(found, found.read(categories=inputs.text))
    return TableRows(X, np.arange(6)[list(order)] % 2, np.arange(1, 7))


def test_mixed_rows_are_recognized_in_any_order_from_csv_and_parquet(tmp_path):
    expected = keys(mixed_rows(tmp_path))
    assert len(set(expected.tolist())) == 6
    order = [3, 1, 5, 0, 2, 4]
    assert np.array_equal(keys(mixed_rows(tmp_path, order)), expected[order])
    for form in ("parquet", "other types"):
        assert np.array_equal(keys(mixed_rows(tmp_path, form=form)), expected)


@pytest.mark.parametrize(("name", "value"), [("color", "Red"), ("color", None), ("code", 8), ("weight", None)])
def test_another_level_or_gap_is_another_key(name, value, tmp_path, monkeypatch):
    expected = keys(mixed_rows(tmp_path))
    monkeypatch.setitem(MIXED, name, [value, *MIXED[name][1:]])
    assert (keys(mixed_rows(tmp_path)) == expected).tolist() == [False] + [True] * 5
