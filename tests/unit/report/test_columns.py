"""Reports on tables with categories, dates and gaps: columns, relevance, rows with their values, map and baselines."""

from collections import Counter
from datetime import datetime, time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cavity import GPClassifier, load
from cavity.data.schema import Column, Schema
from cavity.fitting.encoding import MOST_INDICATORS, RARE_ROWS, Levels, Standard, TableEncoding
from cavity.report.analysis import count_known, examine, take_rows
from cavity.report.baselines import encode_cells
from cavity.report.columns import (
    MAX_EXPLAINED,
    read_rows,
    row_values,
    speaking_columns,
    summarize_columns,
    value_text,
)
from cavity.report.features import LabeledData, column_relevance, feature_names
from cavity.report.page import page
from cavity.runtime.warnings import CavityWarning

pytestmark = pytest.mark.usefixtures("coarse")

N = 240


def table(seed=0, n=N):
    """A table with everything: two categories, one of many levels, numbers with gaps, a date, an id."""
    rng = np.random.default_rng(seed)
    sex, fare = rng.choice(["female", "male"], n), rng.gamma(2.0, 10.0, n)
    age = np.where(rng.random(n) < 0.25, np.nan, rng.normal(40, 10, n))
    port = rng.choice(["Brest", "Cork", "Dover", None], n, p=[0.4, 0.3, 0.2, 0.1])
    shop = np.array([f"shop {i}" for i in range(2 * MOST_INDICATORS)], dtype=object)
    shop = np.concatenate([np.repeat(shop[: MOST_INDICATORS + 1], RARE_ROWS), rng.choice(shop, n)])[:n]
    day = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 800, n), unit="D")
    y = np.where((sex == "female") + (fare > 20) + 0.3 * rng.standard_normal(n) > 0.9, "yes", "no")
    names = [f"person {seed}-{i}" for i in range(n)]
    columns = {"sex": sex, "age": age, "fare": fare, "port": port, "shop": shop, "day": day, "name": names}
    return pd.DataFrame(columns), y


TRAIN, NEW = table(0), table(1)


def classifier(**more):
    settings = {"max_epochs": 10, "calibrate": False, "random_state": 0, "n_inducing": 15, "device": "cpu"}
    return GPClassifier(**(settings | more))


@pytest.fixture(scope="module")
def model():
    with pytest.warns(CavityWarning, match="left out"):
        return classifier().fit(*TRAIN)


def changed():
    """New rows, some with a level and gaps that the training rows do not have."""
    X = NEW[0].copy()
    X.loc[:29, "port"] = "Ystad"
    X.loc[:119, "fare"] = np.nan
    return X


@pytest.fixture(scope="module")
def found(model):
    X, y = changed(), NEW[1]
    return examine(model, X, y, train=TRAIN)


def test_columns_say_how_they_were_read(found):
    columns = {column.name: column for column in found.columns}
    assert list(columns) == list(TRAIN[0].columns)
    assert columns["sex"][1:5] == ("category of 2 levels", "2 indicators", 0.0, 0.0)
    assert columns["age"][1:3] == ("number", "value, missing")
    assert columns["age"].gaps == pytest.approx(TRAIN[0]["age"].isna().mean())
    assert columns["age"].gaps_here == pytest.approx(NEW[0]["age"].isna().mean())
    assert columns["fare"][1:5] == ("number", "value", 0.0, 0.5)
    assert columns["port"].unseen == (("Ystad", 30),)
    assert columns["port"].gaps_here == pytest.approx(NEW[0]["port"].isna()[30:].sum() / N)  # what is unseen is no gap
    assert columns["shop"].features == "50 indicators, class frequencies"
    assert columns["day"][1:3] == ("date", "time, year, week")
    assert columns["name"] == ("name", f"left out (text with {N} different values in {N} rows)", "", None, None, 0, ())


def test_advice_names_gaps_levels_and_columns_left_out(found):
    what = {piece.what: piece for piece in found.advice}
    (unseen,) = [w for w in what if "levels that the training rows do not have" in w]
    assert "port in 30 rows (Ystad)" in unseen
    assert what[unseen].level == "warning"
    assert "These rows have gaps where the training rows have none: fare (50 % here)." in what
    assert f"name is left out (text with {N} different values in {N} rows)." in what
    assert not any("constant" in w for w in what)  # a column that is left out is not a constant feature


def test_relevance_has_one_entry_for_each_column(model, found):
    assert found.relevance.features == list(TRAIN[0].columns)
    inverse, where = 1 / model.kernel_.lengthscale, [name for name, _ in model.groups_]
    for j, name in enumerate(TRAIN[0].columns):
        own = inverse[:, [g for g, column in enumerate(where) if column == name]]
        np.testing.assert_allclose(found.relevance.values[:, j], np.sqrt((own**2).sum(1)))
    assert (found.relevance.values[:, -1] == 0).all()
    assert (found.relevance.values[:, :-1] > 0).all()


def test_rows_to_review_have_their_original_values(found):
    assert found.uncertain
    X = NEW[0].copy()
    for row in found.uncertain:
        values, given = dict(row.values), X.loc[row.row]
        assert "name" not in values
        assert values.get("sex", given["sex"]) == given["sex"]
        if "port" in values:
            port = "Ystad (not in training)" if row.row < 30 else given["port"]
            assert values["port"] == ("missing" if port is None or port != port else port)
        if "age" in values:
            assert (values["age"] == "missing") == np.isnan(given["age"])
        if "day" in values:
            assert values["day"] == str(given["day"].date())


def test_the_map_shows_encoded_features_under_the_names_of_columns(model, found):
    assert found.map.inducing.shape == (30, 2)
    assert np.isfinite(found.map.rows).all()
    assert np.isfinite(found.map.inducing).all()
    assert any(name in found.map.axes[0] for name in model.feature_names_in_)
    assert found.map.points.shape == (30, 7)
    assert set(found.map.points[:, 0]) <= {"female", "male"}


def test_the_page_shows_it_all(found):
    html = page(found)
    for text in ("How columns were read", "50 indicators, class frequencies", "Ystad (30)", "time, year, week",
                 "Inducing points in the units of the data", "root of the sum of the squared relevances"):  # fmt: skip
        assert text in html


@pytest.mark.parametrize("frame", [pl.from_pandas, pa.Table.from_pandas, lambda X: X.astype(object).to_numpy()])
def test_every_kind_of_table_gives_the_same_findings(frame, model):
    (X, y), (X_new, y_new) = ((frame(part), labels) for part, labels in (TRAIN, NEW))
    expected = examine(model, *NEW, train=TRAIN)
    with pytest.warns(CavityWarning, match="left out"):
        other = classifier().fit(X, y)
    got = examine(other, X_new, y_new, train=(X, y))
    assert got.scores == expected.scores
    assert [column[1:] for column in got.columns] == [column[1:] for column in expected.columns]
    assert [[value for _, value in row.values] for row in got.uncertain] == [
        [value for _, value in row.values] for row in expected.uncertain
    ]


def test_training_rows_with_gaps_are_recognized(model):
    found = examine(model, *TRAIN, train=TRAIN)
    assert found.no_verdict == "the model was trained on these rows"
    assert examine(model, *TRAIN).no_verdict == "the model was trained on these rows"
    some = examine(model, TRAIN[0][:50], TRAIN[1][:50], train=TRAIN)
    assert some.no_verdict == "the model was trained on these rows"


def test_gaps_are_equal_whatever_their_bits():
    gap = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    one, other = (LabeledData(np.array([[1.0, x]]), np.array([0])) for x in (np.nan, gap))
    assert count_known(one, other) == 1


def test_numbers_with_gaps_and_nothing_else():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 2))
    y = (X[:, 0] > 0).astype(int)
    X[rng.random(160) < 0.3, 1] = np.nan
    clf = classifier().fit(X[:80], y[:80])
    found = examine(clf, X[80:], y[80:], train=(X[:80], y[:80]))
    assert [column.features for column in found.columns] == ["value", "value, missing"]
    assert found.relevance.values.shape[1] == 2
    assert dict(found.about)["Inducing points"].startswith("15 ")
    assert len(found.scores) == 4
    for row in found.uncertain:
        assert (dict(row.values)["x1"] == "missing") == np.isnan(X[80 + row.row, 1])
    assert np.isfinite(found.map.rows).all()


def test_gaps_that_only_new_rows_have():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = (X[:, 0] > 0).astype(int)
    clf = classifier().fit(X[:80], y[:80])
    new = X[80:].copy()
    new[::2, 1] = np.nan
    found = examine(clf, new, y[80:], train=(X[:80], y[:80]))
    assert any("gaps where the training rows have none: x1 (50 % here)" in piece.what for piece in found.advice)
    assert np.isfinite(found.map.rows).all()
    np.testing.assert_allclose(found.map.rows[::2, 1], X[:80, 1].mean())  # drawn at the typical value
    assert found.columns[1].gaps == 0.0


def test_numbers_beside_a_column_left_out_are_drawn_in_their_units():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"id": [f"n{i}" for i in range(120)], "u": rng.normal(50, 5, 120), "v": rng.normal(-9, 2, 120)})
    y = (X["u"] > 50).astype(int)
    with pytest.warns(CavityWarning, match="left out"):
        clf = classifier().fit(X[:60], y[:60])
    found = examine(clf, X[60:], y[60:], train=(X[:60], y[:60]))
    assert found.map.axes == ("u", "v")
    np.testing.assert_allclose(found.map.rows, X[["u", "v"]][60:])
    assert 30 < found.map.inducing[:, 0].mean() < 70


def test_a_single_category():
    sex = np.array(["a", "b"])[np.arange(80) % 2][:, None].astype(object)
    y = (np.arange(80) % 2) ^ (np.arange(80) % 7 == 0)
    clf = classifier(n_inducing=2).fit(sex[:40], y[:40])
    found = examine(clf, sex[40:], y[40:], train=(sex[:40], y[:40]))
    assert np.isfinite(found.map.rows).all()
    assert "Rows of equal values lie on top of each other." in page(found)


def test_a_model_from_a_file_says_the_same(model, tmp_path):
    model.save(tmp_path / "m.cavity")
    assert examine(load(tmp_path / "m.cavity"), *NEW).columns == examine(model, *NEW).columns


def test_plain_numbers_need_no_table_of_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    found = examine(classifier().fit(X, X[:, 0] > 0), X, X[:, 0] > 0)
    assert found.columns == []
    assert "How columns were read" not in page(found)


# --- By hand ---


def made():
    """A model of three columns: a number with gaps, a category with two rare levels, one left out."""
    columns = (Column("u"), Column("c", "category", ("a", "b", "x", "y")), Column("id", "left out", reason="text"))
    indicators = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]]) * 1.5
    encoding = TableEncoding(3, (0,), Standard(np.zeros(1), np.ones(1)), (), (Levels(1, indicators),))
    clf = classifier()
    clf._schema, clf._encoding, clf.columns_ = Schema(columns), encoding, list(columns)
    return clf


def test_rare_levels_are_those_that_share_an_indicator():
    cells, unseen = np.array([[0.0, np.nan, 0.0], [np.nan, 1.0, 0.0]]), {"c": Counter({"z": 1})}
    u, c, left = summarize_columns(made(), ["u", "c", "id"], cells, unseen, None)
    assert (c.n_rare, c.features, c.unseen, c.gaps, c.gaps_here) == (2, "3 indicators", (("z", 1),), None, 0.0)
    assert (u.gaps, u.gaps_here) == (0.0, 0.5)
    assert left.reading == "left out (text)"


def test_values_are_those_of_the_table():
    row = pd.DataFrame({"u": [1234.5], "c": ["new"], "id": ["q"]})
    assert row_values(made(), row, ["u", "c", "id"], [0, 1]) == (("u", "1,234"), ("c", "new (not in training)"))
    row.loc[0, "c"], row.loc[0, "u"] = None, np.nan
    assert row_values(made(), row, ["u", "c", "id"], [1, 0]) == (("c", "missing"), ("u", "missing"))
    assert value_text(datetime(2026, 1, 2, 3, 4)) == "2026-01-02 03:04"
    assert value_text(time(3, 4, 5)) == "03:04:05"
    assert value_text("x" * 500).endswith("…")


def test_relevance_of_a_column_adds_the_squares_of_its_groups():
    from cavity.fitting.encoding import Gap
    from cavity.kernels import RBF

    clf = made()
    clf._encoding = TableEncoding(3, (0,), clf._encoding.scaler, (Gap(0, 0.5, 2.0),), clf._encoding.categories)
    clf.kernel_ = RBF(np.array([[0.5, 1.0, 4.0]]))  # of u, of its gaps, of c
    np.testing.assert_allclose(column_relevance(clf), [[np.sqrt(4 + 1), 0.25, 0.0]])


def test_baselines_see_indicators_and_filled_gaps():
    X = np.array([[0.0, 1.0], [1.0, np.nan], [np.nan, 3.0], [1.0, 5.0]])
    old, new = encode_cells(X, np.array([[2.0, np.nan], [0.0, 2.0]]), np.array([True, False]))
    np.testing.assert_array_equal(old[:, :3], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(old[:, 3:], [[1, 0], [3, 1], [3, 0], [5, 0]])
    np.testing.assert_array_equal(new, [[0, 0, 0, 3, 1], [1, 0, 0, 2, 0]])
    plain = encode_cells(old, new, np.zeros(5, dtype=bool))
    assert plain[0] is old


def test_a_list_of_rows_keeps_numbers_beside_text():
    rows = [["a", 1.5], ["b", None]] * 20
    clf = classifier(n_inducing=2, max_epochs=2).fit(rows, [0, 1] * 20)
    cells, unseen = read_rows(clf, np.asarray(rows, dtype=object))
    assert not unseen
    assert examine(clf, rows, [0, 1] * 20).n_rows == 40
    np.testing.assert_array_equal(cells[0], [0.0, 1.5])


# --- What speaks for a label ---


def test_rows_to_review_say_what_speaks_for_the_predicted_label_and_the_next(model, found):
    order = [row.row for row in found.uncertain]
    explained = model.explain(changed().loc[order])
    assert any(row.speaks for row in found.uncertain)
    for i, row in enumerate(found.uncertain):
        assert [row.top[0][0], row.top[1][0]] == [str(explained.label[i]), str(explained.against[i])]
        parts = dict(zip(explained.columns, explained.contributions[i], strict=True))
        signs = [by > 0 for *_, by in row.speaks]
        assert signs == sorted(signs, reverse=True)
        assert sum(signs) <= 3
        assert len(signs) - sum(signs) <= 3
        assert {name: by for name, _, by in row.speaks} == pytest.approx({name: parts[name] for name, *_ in row.speaks})
        largest = max(parts, key=lambda name: abs(parts[name]))
        assert largest in [name for name, *_ in row.speaks]
        values = dict(row.values) | {name: value for name, value, _ in row.speaks}
        assert values.get("sex", "?") in ("?", NEW[0].loc[row.row]["sex"])


def test_the_page_lists_them_with_the_label_they_speak_for(found):
    html, row = page(found), next(row for row in found.uncertain if row.speaks)
    assert "“For” lists the columns that speak most" in html
    assert f"for <bdi>{row.top[0 if row.speaks[0][2] > 0 else 1][0]}</bdi>:" in html


def test_tables_of_many_columns_are_not_explained_in_the_report():
    X = np.random.default_rng(0).standard_normal((40, MAX_EXPLAINED + 1))
    model = GPClassifier(n_inducing=5, max_epochs=2, calibrate=False).fit(X, X[:, 0] > 0)
    assert speaking_columns(model, X[:3], feature_names(model)) == [(), (), ()]
    assert speaking_columns(object(), X[:2, :2], ["a", "b"]) == [(), ()]


def test_rows_are_taken_in_the_order_asked_for():
    X = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(take_rows(X, np.array([2, 0, 1])), X[[2, 0, 1]])
    assert take_rows(X, np.arange(3)) is X
