"""Columns that hold anything but finite numbers: the error names the column, a value, its row and a remedy."""

import datetime
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

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
ENCODE = r"make_column_transformer\(\(OneHotEncoder\(handle_unknown='ignore', sparse_output=False\), \[.*\]\)"


def with_cell(value: Any) -> list[Any]:
    return [*NUMBERS[:7], value, *NUMBERS[8:]]


BAD = {
    "text": (["red", "blue"] * 20, rf"must hold numbers, got text, such as 'red' in row 0\. Encode it.*{ENCODE}"),
    "stray text": (with_cell("n/a"), r"got text, such as 'n/a' in row 7\. The other values are numbers: correct this"),
    "NaN": (with_cell(float("nan")), r"missing value \(NaN or None\) in row 7\. Fill it in.*SimpleImputer"),
    "None": (with_cell(None), r"missing value \(NaN or None\) in row 7\. Fill it in.*SimpleImputer"),
    "infinite": (with_cell(float("inf")), r"must be finite, got inf in row 7\. Replace the value or remove the row"),
    "dates": (
        [datetime.datetime(2020, 1, 1) + i * DAY for i in range(N)],
        "got dates or times, such as '2020-01-01 00",
    ),
    "days": ([datetime.date(2020, 1, 1) + i * DAY for i in range(N)], "dates or times, such as '2020-01-01' in row 0"),
    "durations": ([i * DAY for i in range(N)], r"got dates or times.*in row 0\. Convert it to numbers, such as days"),
    "lists": ([[1, 2]] * N, r"got other objects, such as \[1, 2\] in row 0\. Convert it to numbers or leave it out"),
    "bytes": ([b"x"] * N, r"got bytes, such as b'x' in row 0\. Convert it to numbers or leave it out"),
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
    if (form, case) == ("arrow", "stray text"):
        pytest.skip("an Arrow column has one type")
    X, expected = make(GOOD | {"c": cells}), rf"^X: column {name} .*{message}"
    with pytest.raises((ValueError, TypeError), match=expected):
        GPClassifier().fit(X, Y)
    with pytest.raises((ValueError, TypeError), match=expected):
        GPClassifier().partial_fit(X, Y, classes=[0, 1])
    for call in (fitted[form].predict_proba, fitted[form].uncertainty):
        with pytest.raises((ValueError, TypeError), match=expected):
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


@pytest.mark.parametrize("case", ["text", "stray text", "dates", "days", "durations", "NaN", "None"])
def test_sources_read_the_same_columns_as_frames(case, monkeypatch):
    """Also where only later rows say what a column of objects holds."""
    monkeypatch.setattr("cavity.data.arrays.block_rows", lambda n_features, lanes: 10)
    table = pd.DataFrame(GOOD | {"c": BAD[case][0]}).astype({"c": object})
    later = pd.concat([pd.DataFrame(GOOD | {"c": NUMBERS}), table], ignore_index=True)
    for frame, labels in ((table, Y), (later, np.tile(Y, 2))):
        if frame is later and case == "durations":  # which are numbers of seconds
            continue
        if frame is later and case in ("dates", "days"):
            with pytest.raises(TypeError, match=r"^X: column 'c' must hold"):
                read_all(Arrays(frame, labels))
            continue
        schema = survey(Arrays(frame, labels, categorical_features="from_dtype")).schema
        expected = find_schema(frame)
        assert (schema is None and expected.is_numeric) or schema == expected
        np.testing.assert_array_equal(read_all(Arrays(frame, labels))[0][:, :2], frame[["a", "b"]])


def test_all_columns_of_text_are_named_at_once_and_the_remedy_works():
    X = pd.DataFrame({"color": ["red", "blue"] * 20, **GOOD, "city": ["Oslo", "Rome", "Lima", "Oslo"] * 10})
    with pytest.raises(ValueError, match=r"column 'color' \(columns 'city' too\) .*\['color', 'city'\]"):
        GPClassifier().fit(X, Y)
    classifier = GPClassifier(max_epochs=2, n_inducing=3, calibrate=False)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer((encoder, ["color", "city"]), remainder="passthrough")
    make_pipeline(encode, classifier).fit(X, Y)
    make_pipeline(SimpleImputer(add_indicator=True), classifier).fit(objects(GOOD | {"c": with_cell(np.nan)}), Y)


def test_a_row_of_a_pandas_frame_has_its_index_too():
    X = pd.DataFrame(GOOD | {"c": with_cell(np.nan)}, index=[f"k{i}" for i in range(N)])
    with pytest.raises(ValueError, match=r"in row 7, index 'k7'"):
        GPClassifier().fit(X, Y)


@pytest.mark.parametrize("kind", ["Int64", "Float64"])
def test_the_na_of_pandas_is_missing(kind):
    X = pd.DataFrame(GOOD | {"c": pd.array([1, None] * 20, dtype=kind)})
    with pytest.raises(ValueError, match=r"column 'c' has a missing value \(NaN or None\) in row 1 and 19 more"):
        GPClassifier().fit(X, Y)


def test_numbers_as_text_and_in_the_exact_types_are_accepted():
    from decimal import Decimal

    columns = {"a": [str(x) for x in NUMBERS], "b": [Decimal(str(x)) for x in NUMBERS], "c": [x > 0 for x in NUMBERS]}
    GPClassifier(max_epochs=1, n_inducing=3, calibrate=False).fit(pd.DataFrame(columns), Y)


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
