"""Columns that a model cannot use: the error names the column, a value, its row and a remedy."""

import datetime
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cavity import CavityWarning, GPClassifier
from cavity.data import Arrays, read_all, survey
from cavity.data.schema import find_schema

pa = pytest.importorskip("pyarrow")

N = 40
RNG = np.random.default_rng(0)
GOOD: dict[str, Any] = {"a": RNG.normal(size=N).tolist(), "b": RNG.normal(size=N).tolist()}
Y = np.arange(N) % 2
NUMBERS = RNG.normal(size=N).tolist()
DAY = datetime.timedelta(days=1)


def with_cell(value: Any) -> list[Any]:
    return [*NUMBERS[:7], value, *NUMBERS[8:]]


# Columns that no kind of column can hold.
BAD = {
    "infinite": (with_cell(float("inf")), r"must be finite, got inf in row 7\. Replace the value or remove the row"),
    "lists": ([[1, 2]] * N, r"must hold .*(list|other objects).*Convert it"),
    "bytes": ([b"x"] * N, r"must hold .*(binary|bytes).*Convert it"),
}
# Columns that a model of numbers cannot predict, but another can learn from.
OTHER = {
    "text": (["red", "blue"] * 20, "must hold numbers, got .*'red'"),
    "stray text": (with_cell("n/a"), "must hold numbers, got .*'n/a'.* in row 7"),
    "dates": ([datetime.datetime(2020, 1, 1) + i * DAY for i in range(N)], "must hold numbers, got dates or times"),
    "days": ([datetime.date(2020, 1, 1) + i * DAY for i in range(N)], "must hold numbers, got dates or times"),
}


def objects(columns: dict[str, list[Any]]) -> np.ndarray:
    found = np.empty((N, len(columns)), dtype=object)
    for j, cells in enumerate(columns.values()):
        for i, cell in enumerate(cells):
            found[i, j] = cell
    return found


def rows(columns: dict[str, list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*columns.values(), strict=True)]


FORMS = {
    "pandas": (pd.DataFrame, "'c'"),
    "polars": (lambda columns: pl.DataFrame(columns, strict=False), "'c'"),
    "arrow": (pa.table, "'c'"),
    "numpy": (objects, "2"),
    "list": (rows, "2"),
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, GPClassifier]:
    return {
        form: GPClassifier(max_epochs=2, n_inducing=3, calibrate=False).fit(make(GOOD | {"c": NUMBERS}), Y)
        for form, (make, _) in FORMS.items()
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", BAD)
def test_the_column_is_named_in_every_call(form, case, fitted):
    (cells, message), (make, name) = BAD[case], FORMS[form]
    X, expected = make(GOOD | {"c": cells}), rf"(?s)^X: column {name} .*{message}"
    with pytest.raises((ValueError, TypeError), match=expected):
        GPClassifier().fit(X, Y)
    with pytest.raises((ValueError, TypeError), match=expected):
        GPClassifier().partial_fit(X, Y, classes=[0, 1])
    for call in (fitted[form].predict_proba, fitted[form].uncertainty):
        with pytest.raises((ValueError, TypeError), match=rf"^X: column {name} "):
            call(X)


@pytest.mark.parametrize("case", ["bytes", "lists"])
def test_sources_name_the_column_and_the_row_of_all(case, monkeypatch):
    monkeypatch.setattr("cavity.data.arrays.block_rows", lambda n_features, lanes: 10)
    table = pd.DataFrame(GOOD | {"c": BAD[case][0]})
    with pytest.raises(
        TypeError, match=r"^X: column 'c' must hold numbers, got .* in row 0\. Convert it to numbers or"
    ):
        GPClassifier().fit(Arrays(table, Y))
    later = pd.concat([pd.DataFrame(GOOD | {"c": NUMBERS}), table], ignore_index=True).astype({"c": object})
    with pytest.raises(TypeError, match=r"^X: column 'c' must hold numbers, got .* in row 40\."):
        GPClassifier().fit(Arrays(later, np.tile(Y, 2)))


@pytest.mark.parametrize("case", [*OTHER, "gap"])
def test_sources_read_the_same_columns_as_frames(case, monkeypatch):
    """Also where only later rows say what a column of objects holds."""
    monkeypatch.setattr("cavity.data.arrays.block_rows", lambda n_features, lanes: 10)
    cells = with_cell(None) if case == "gap" else OTHER[case][0]
    table = pd.DataFrame(GOOD | {"c": cells}).astype({"c": object})
    later = pd.concat([pd.DataFrame(GOOD | {"c": NUMBERS}), table], ignore_index=True)
    for frame, labels in ((table, Y), (later, np.tile(Y, 2))):
        if frame is later and case in ("dates", "days"):
            with pytest.raises(TypeError, match=r"^X: column 'c' must hold"):
                read_all(Arrays(frame, labels))
            continue
        schema = survey(Arrays(frame, labels, categorical_features="from_dtype")).schema
        expected = find_schema(frame)
        assert (schema is None and expected.is_numeric) or schema == expected
        np.testing.assert_array_equal(read_all(Arrays(frame, labels))[0][:, :2], frame[["a", "b"]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", OTHER)
def test_a_model_of_numbers_names_the_column_that_holds_something_else(form, case, fitted):
    (cells, message), (make, name) = OTHER[case], FORMS[form]
    if (form, case) == ("arrow", "stray text"):
        pytest.skip("an Arrow column has one type")
    for call in (fitted[form].predict_proba, fitted[form].uncertainty):
        with pytest.raises((ValueError, TypeError), match=rf"^X: column {name} .*{message}"):
            call(make(GOOD | {"c": cells}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", [None, float("nan"), pd.NA, pd.NaT])
def test_gaps_are_accepted_everywhere(form, cell, fitted):
    if form in ("polars", "arrow") and cell is not None and not isinstance(cell, float):
        pytest.skip("an object of pandas")
    X = FORMS[form][0](GOOD | {"c": with_cell(cell)})
    for clf in (fitted[form], GPClassifier(max_epochs=1, n_inducing=3, calibrate=False).fit(X, Y)):
        assert np.isfinite(clf.predict_proba(X)).all()


def test_infinity_is_named_and_not_a_gap_before_it():
    X = pd.DataFrame({"gap": with_cell(np.nan), "far": with_cell(np.inf)})
    for table, name in ((X, "'far'"), (X.to_numpy(), "1")):
        with pytest.raises(ValueError, match=rf"^X: column {name} must be finite, got inf in row 7\. Replace"):
            GPClassifier().fit(table, Y)


@pytest.mark.parametrize("kind", ["Int64", "Float64"])
def test_the_na_of_pandas_is_missing(kind):
    X = pd.DataFrame(GOOD | {"c": pd.array([1, None] * 20, dtype=kind)})
    clf = GPClassifier(max_epochs=1, n_inducing=3, calibrate=False).fit(X, Y)
    assert ("c", "missing") in clf.groups_


def test_numbers_as_text_and_in_the_exact_types_are_accepted():
    from decimal import Decimal

    columns = {"a": [str(x) for x in NUMBERS], "b": [Decimal(str(x)) for x in NUMBERS], "c": [x > 0 for x in NUMBERS]}
    clf = GPClassifier(max_epochs=1, n_inducing=3, calibrate=False).fit(pd.DataFrame(columns), Y)
    assert [column.kind for column in clf.columns_] == ["number", "number", "category"]


def test_wrong_names_are_not_mistaken_for_bad_cells(fitted):
    X = pd.DataFrame(GOOD | {"c": with_cell(np.nan)})
    with pytest.raises(ValueError, match="feature names"):
        fitted["pandas"].predict(X.rename(columns={"a": "z"}))


@pytest.mark.parametrize("X", [pd.Series(NUMBERS), pl.Series(NUMBERS), NUMBERS, np.array(5.0), None, "text", object()])
def test_what_is_no_table_is_left_to_scikit_learn(X):
    with pytest.raises(
        (ValueError, TypeError), match=r"2D array|dimension|Singleton|argument must be|could not convert|batches"
    ):
        GPClassifier().fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([None, "a", "b", None] * 10, r"y has a missing label \(NaN or None\) in row 0 and 19 more; fill it in or"),
        ([0.0, 1.0, np.nan, 1.0] * 10, r"y has a missing label \(NaN or None\) in row 2 and 9 more"),
        (["a", 1] * 20, "y must hold labels of one type, got int and str"),
    ],
)
def test_labels_that_are_missing_or_of_two_types(y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GPClassifier().fit(np.array(rows(GOOD)), np.array(y, dtype=object))


# --- constant columns ---


CONSTANT = GOOD | {"unit": [3.0] * N, "site": [0] * N}
QUICK = {"max_epochs": 2, "n_inducing": 3}


@pytest.mark.parametrize("make", [pd.DataFrame, lambda columns: Arrays(pd.DataFrame(columns), Y)])
def test_constant_columns_are_mentioned_once(make):
    data = make(CONSTANT)
    with pytest.warns(CavityWarning, match="constant in all rows and have no effect: 'unit', 'site'; remove") as seen:
        found = GPClassifier(**QUICK).fit(data, None if isinstance(data, Arrays) else Y)  # and three folds
    assert len(seen) == 1
    events = [record for record in found.history_ if record["event"] == "constant_features"]
    assert [record["features"] for record in events] == ["'unit', 'site'"]


def test_progress_mentions_them_instead(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GPClassifier(**QUICK, verbose=1).fit(pd.DataFrame(CONSTANT), Y)
    assert capsys.readouterr().err.count("'unit', 'site'") == 1


def test_features_without_names_are_only_recorded(recwarn):
    """Some pixels of most images are constant."""
    found = GPClassifier(**QUICK).fit(pd.DataFrame(CONSTANT).to_numpy(), Y)
    assert not recwarn.list
    assert found.history_[0]["features"] == "2, 3"
