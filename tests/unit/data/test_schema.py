"""What columns hold, and their cells: the same whatever library a table comes from."""

from __future__ import annotations

import array
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from cavity.data.schema import (
    CATEGORY,
    DATE,
    IDENTIFIER_LEVELS,
    LEFT_OUT,
    MAX_LEVELS,
    NUMBER,
    TIME,
    Column,
    Schema,
    chosen_places,
    count_levels,
    describe_left_out,
    find_schema,
    needs_schema,
    table_columns,
)

NAN = np.nan
DAY = 86_400.0
NOON = datetime(2020, 3, 1, 12)
AT = NOON.replace(tzinfo=UTC).timestamp()


def only(table, categorical="from_dtype"):
    """The column of a table with a single one, and its cells."""
    schema = find_schema(table, categorical)
    return schema.columns[0], schema.read(table)[:, 0].tolist()


def check(table, kind, cells, levels=None):
    column, found = only(table)
    assert (column.kind, column.levels) == (kind, levels)
    np.testing.assert_array_equal(found, cells)


# --- Types ---

BA = [1.0, 0.0, NAN, 1.0]  # the cells of b, a, missing, b
TEXT = {
    "pandas object": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype=object)}),
    "pandas object with NaN": lambda: pd.DataFrame({"x": pd.Series(["b", "a", NAN, "b"], dtype=object)}),
    "pandas object with NA": lambda: pd.DataFrame({"x": pd.Series(["b", "a", pd.NA, "b"], dtype=object)}),
    "pandas object with NaT": lambda: pd.DataFrame({"x": pd.Series(["b", "a", pd.NaT, "b"], dtype=object)}),
    "pandas string": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype="string")}),
    "pandas str": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype="str")}),
    "pandas string of Arrow": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype="string[pyarrow]")}),
    "pandas Arrow": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype=pd.ArrowDtype(pa.string()))}),
    "pandas category": lambda: pd.DataFrame({"x": pd.Series(["b", "a", None, "b"], dtype="category")}),
    "pandas category in another order": lambda: pd.DataFrame({"x": pd.Categorical(["b", "a", None, "b"], ["b", "a"])}),
    "pandas category with unused levels": lambda: pd.DataFrame(
        {"x": pd.Categorical(["b", "a", None, "b"], ["z", "b", "c", "a"], ordered=True)}
    ),
    "polars String": lambda: pl.DataFrame({"x": ["b", "a", None, "b"]}),
    "polars Categorical": lambda: pl.DataFrame({"x": ["b", "a", None, "b"]}, schema={"x": pl.Categorical}),
    "polars Enum": lambda: pl.DataFrame({"x": ["b", "a", None, "b"]}, schema={"x": pl.Enum(["z", "b", "a"])}),
    "Arrow string": lambda: pa.table({"x": ["b", "a", None, "b"]}),
    "Arrow large string": lambda: pa.table({"x": pa.array(["b", "a", None, "b"], pa.large_string())}),
    "Arrow string view": lambda: pa.table({"x": pa.array(["b", "a", None, "b"], pa.string_view())}),
    "Arrow dictionary": lambda: pa.table({"x": pa.array(["b", "a", None, "b"]).dictionary_encode()}),
    "Arrow dictionary of unsigned indices": lambda: pa.table(
        {"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint8()), pa.array(["b", "a"]))}
    ),
    "Arrow dictionary with a null": lambda: pa.table(
        {"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), pa.array(["b", "a", None]))}
    ),
    "Arrow chunks": lambda: pa.table({"x": pa.chunked_array([["b"], [], ["a", None, "b"]])}),
    "Arrow chunks of different dictionaries": lambda: pa.table(
        {"x": pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array(["a", None, "b"]).dictionary_encode()])}
    ),
    "Arrow batch": lambda: pa.record_batch({"x": pa.array(["b", "a", None, "b"])}),
    "Arrow slice": lambda: pa.table({"x": pa.array(["z", "b", "a", None, "b"]).dictionary_encode()}).slice(1),
    "objects": lambda: np.array([["b"], ["a"], [None], ["b"]], dtype=object),
    "objects with NaN": lambda: np.array([["b"], ["a"], [NAN], ["b"]], dtype=object),
    "objects of NumPy": lambda: np.array([[np.str_("b")], ["a"], [np.float64(NAN)], ["b"]], dtype=object),
    "lists": lambda: [["b"], ["a"], [None], ["b"]],
    "tuples": lambda: (("b",), ("a",), (NAN,), ("b",)),
}


@pytest.mark.parametrize("make", TEXT.values(), ids=TEXT)
def test_text_is_a_category_in_every_library(make):
    table = make()
    assert needs_schema(table, "from_dtype")
    check(table, CATEGORY, BA, ("a", "b"))


@pytest.mark.parametrize("reader", TEXT.values(), ids=TEXT)
def test_a_schema_of_one_library_reads_the_tables_of_all(reader):
    schema = find_schema(pl.DataFrame({"x": ["a", "b", "c"]}))
    np.testing.assert_array_equal(schema.read(reader())[:, 0], BA)


TRUTH = {
    "pandas": lambda: pd.DataFrame({"x": [True, False, True]}),
    "pandas nullable": lambda: pd.DataFrame({"x": pd.array([True, False, True], dtype="boolean")}),
    "pandas objects": lambda: pd.DataFrame({"x": pd.Series([True, False, True], dtype=object)}),
    "polars": lambda: pl.DataFrame({"x": [True, False, True]}),
    "Arrow": lambda: pa.table({"x": [True, False, True]}),
    "objects": lambda: np.array([[True], [False], [np.True_]], dtype=object),
}


@pytest.mark.parametrize("make", TRUTH.values(), ids=TRUTH)
def test_truth_values_are_a_category(make):
    check(make(), CATEGORY, [1.0, 0.0, 1.0], ("False", "True"))


def test_missing_truth_values():
    for table in (
        pd.DataFrame({"x": pd.array([True, None, False], dtype="boolean")}),
        pl.DataFrame({"x": [True, None, False]}),
        [[True], [NAN], [False]],
    ):
        check(table, CATEGORY, [1.0, NAN, 0.0], ("False", "True"))


NUMBERS = {
    "pandas floats": lambda: pd.DataFrame({"x": [1.5, NAN, 3.0]}),
    "pandas Float64": lambda: pd.DataFrame({"x": pd.array([1.5, None, 3.0], dtype="Float64")}),
    "pandas objects": lambda: pd.DataFrame({"x": pd.Series([1.5, None, 3], dtype=object)}),
    "pandas NA": lambda: pd.DataFrame({"x": pd.Series([1.5, pd.NA, 3], dtype=object)}),
    "pandas Arrow": lambda: pd.DataFrame({"x": pd.array([1.5, None, 3.0], dtype=pd.ArrowDtype(pa.float64()))}),
    "pandas sparse": lambda: pd.DataFrame({"x": pd.arrays.SparseArray([1.5, NAN, 3.0])}),
    "polars floats": lambda: pl.DataFrame({"x": [1.5, None, 3.0]}),
    "polars NaN": lambda: pl.DataFrame({"x": [1.5, NAN, 3.0]}),
    "polars decimals": lambda: pl.DataFrame({"x": [Decimal("1.5"), None, Decimal(3)]}),
    "Arrow floats": lambda: pa.table({"x": [1.5, None, 3.0]}),
    "Arrow halves": lambda: pa.table({"x": pa.array(np.array([1.5, NAN, 3.0], dtype=np.float16))}),
    "Arrow decimals": lambda: pa.table({"x": pa.array([Decimal("1.5"), None, Decimal(3)], pa.decimal128(5, 1))}),
    "objects": lambda: np.array([[1.5], [None], [3]], dtype=object),
    "decimals": lambda: [[Decimal("1.5")], [Decimal("NaN")], [Decimal(3)]],
    "types of NumPy": lambda: np.array([[np.float32(1.5)], [NAN], [np.int8(3)]], dtype=object),
}


@pytest.mark.parametrize("make", NUMBERS.values(), ids=NUMBERS)
def test_numbers_are_numbers(make):
    check(make(), NUMBER, [1.5, NAN, 3.0])


def test_frames_and_arrays_of_numbers_need_no_schema():
    numbers = [1.5, NAN, 3.0]
    for table in (
        pd.DataFrame({"x": numbers, "i": [1, 2, 3]}), pl.DataFrame({"x": numbers, "i": [1, None, 3]}),
        pa.table({"x": numbers}), np.array([numbers]), [numbers], torch.tensor([numbers]), [array.array("d", numbers)],
    ):  # fmt: skip
        assert not needs_schema(table, "from_dtype")
        assert not needs_schema(table, None)


INTEGERS = {
    "pandas Int64": lambda: pd.DataFrame({"x": pd.array([2**53, None, -3], dtype="Int64")}),
    "pandas Arrow": lambda: pd.DataFrame({"x": pd.array([2**53, None, -3], dtype=pd.ArrowDtype(pa.int64()))}),
    "polars": lambda: pl.DataFrame({"x": [2**53, None, -3]}),
    "Arrow": lambda: pa.table({"x": [2**53, None, -3]}),
    "objects": lambda: np.array([[2**53], [pd.NA], [-3]], dtype=object),
}


@pytest.mark.parametrize("make", INTEGERS.values(), ids=INTEGERS)
def test_integers_are_numbers(make):
    check(make(), NUMBER, [2.0**53, NAN, -3.0])


def test_integers_beyond_64_bits_are_numbers():
    check([[10**30], [5], [None]], NUMBER, [1e30, 5.0, NAN])
    with pytest.raises(ValueError, match=r"column 0 must hold numbers, got 1000.*… in row 0"):
        find_schema([[10**400], [5]]).read([[10**400], [5]])


def test_a_column_of_integers_can_be_a_category():
    for table in ([[3], [1], [None]], [[3.0], [1.0], [NAN]], [["3"], ["1"], [None]], pa.table({"x": [3, 1, None]})):
        column, cells = only(table, [0])
        assert column.levels == ("1", "3")
        np.testing.assert_array_equal(cells, [1.0, 0.0, NAN])


DATES = {
    "pandas": lambda: pd.DataFrame({"x": pd.to_datetime([NOON, None, NOON + timedelta(days=1)])}),
    "pandas seconds": lambda: pd.DataFrame({"x": pd.Series([NOON, None, NOON + timedelta(1)], dtype="datetime64[s]")}),
    "pandas zone": lambda: pd.DataFrame(
        {"x": pd.to_datetime([NOON, None, NOON + timedelta(1)]).tz_localize("UTC").tz_convert("Asia/Tokyo")}
    ),
    "pandas objects": lambda: pd.DataFrame({"x": pd.Series([NOON, pd.NaT, NOON + timedelta(1)], dtype=object)}),
    "pandas periods": lambda: pd.DataFrame(
        {"x": pd.PeriodIndex(["2020-03-01 12:00", "NaT", "2020-03-02 12:00"], freq="h")}
    ),
    "polars": lambda: pl.DataFrame({"x": [NOON, None, NOON + timedelta(days=1)]}),
    "polars zone": lambda: pl.DataFrame({"x": [NOON, None, NOON + timedelta(1)]}).with_columns(
        pl.col("x").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    ),
    "polars milliseconds": lambda: pl.DataFrame(
        {"x": [NOON, None, NOON + timedelta(1)]}, schema={"x": pl.Datetime("ms")}
    ),
    "Arrow": lambda: pa.table({"x": [NOON, None, NOON + timedelta(days=1)]}),
    "Arrow nanoseconds": lambda: pa.table({"x": pa.array([NOON, None, NOON + timedelta(1)], pa.timestamp("ns"))}),
    "objects": lambda: np.array([[NOON], [None], [NOON + timedelta(days=1)]], dtype=object),
    "NumPy": lambda: np.array([[NOON], [None], [NOON + timedelta(days=1)]], dtype="datetime64[us]"),
    "NumPy hours": lambda: np.array([[NOON], [None], [NOON + timedelta(days=1)]], dtype="datetime64[h]"),
    "objects of NumPy": lambda: np.array(
        [[np.datetime64(NOON)], [np.datetime64("NaT")], [np.datetime64(NOON + timedelta(days=1))]], dtype=object
    ),
    "aware": lambda: [[NOON.replace(tzinfo=UTC)], [None], [(NOON + timedelta(days=1)).replace(tzinfo=UTC)]],
    "aware elsewhere": lambda: [
        [(NOON + timedelta(hours=9)).replace(tzinfo=timezone(timedelta(hours=9)))],
        [None],
        [(NOON + timedelta(days=1)).replace(tzinfo=UTC)],
    ],
}


@pytest.mark.parametrize("make", DATES.values(), ids=DATES)
def test_dates_are_seconds(make):
    check(make(), DATE, [AT, NAN, AT + DAY])


def test_dates_without_a_time():
    expected = [AT - DAY / 2, NAN]
    for table in (
        pl.DataFrame({"x": [date(2020, 3, 1), None]}), pa.table({"x": [date(2020, 3, 1), None]}),
        pa.table({"x": pa.array([date(2020, 3, 1), None], pa.date64())}), [[date(2020, 3, 1)], [None]],
        np.array([["2020-03-01"], ["NaT"]], dtype="datetime64[D]"),
        pd.DataFrame({"x": pd.PeriodIndex(["2020-03-01", "NaT"], freq="D")}),
    ):  # fmt: skip
        check(table, DATE, expected)


def test_times_are_seconds_since_midnight():
    noon, late = time(12), time(23, 59, 59, 500_000)
    for table in (
        pl.DataFrame({"x": [noon, None, late]}), pa.table({"x": [noon, None, late]}),
        pa.table({"x": pa.array([noon, None, late], pa.time32("ms"))}), [[noon], [None], [late]],
        pd.DataFrame({"x": pd.Series([noon, None, late], dtype=object)}),
    ):  # fmt: skip
        check(table, TIME, [DAY / 2, NAN, DAY - 0.5])


def test_durations_are_numbers_of_seconds():
    day = timedelta(days=1, seconds=1)
    for table in (
        pd.DataFrame({"x": pd.to_timedelta([day, None])}), pl.DataFrame({"x": [day, None]}),
        pa.table({"x": [day, None]}), [[day], [None]], np.array([[day], [None]], dtype="timedelta64[s]"),
    ):  # fmt: skip
        assert needs_schema(table, "from_dtype") or not isinstance(table, np.ndarray)
        check(table, NUMBER, [DAY + 1, NAN])


def test_intervals_and_enumerations_are_categories():
    bins = pd.cut(pd.Series([1.0, 5.0, NAN, 1.0]), [0, 2, 10])
    check(pd.DataFrame({"x": bins}), CATEGORY, [0.0, 1.0, NAN, 0.0], ("(0, 2]", "(2, 10]"))
    check(pd.DataFrame({"x": pd.arrays.IntervalArray(bins)}), CATEGORY, [0.0, 1.0, NAN, 0.0],
          ("(0.0, 2.0]", "(2.0, 10.0]"))  # fmt: skip

    class Color(StrEnum):
        RED = "red"

    check([[Color.RED], ["blue"]], CATEGORY, [1.0, 0.0], ("blue", "red"))


# --- Columns of several types ---


def test_text_among_numbers_makes_a_category():
    check([[3], ["3"], [3.0], [True], ["x"], [None], [2.5], [Decimal(3)]], CATEGORY, [1, 1, 1, 2, 3, NAN, 0, 1],
          ("2.5", "3", "True", "x"))  # fmt: skip
    check(pd.DataFrame({"x": [3, "3", np.int64(3)]}, dtype=object), CATEGORY, [0, 0, 0], ("3",))


def test_truth_values_among_numbers_are_numbers():
    check([[True], [2], [0.5]], NUMBER, [1.0, 2.0, 0.5])


def test_dates_and_moments_in_one_column_are_dates():
    check([[date(2020, 3, 1)], [NOON]], DATE, [AT - DAY / 2, AT])
    check([[NOON], [date(2020, 3, 1)]], DATE, [AT, AT - DAY / 2])


@pytest.mark.parametrize(
    "cells", [[NOON, 5], [5, NOON], [time(1), 5], [b"x", b"y"], [[1], [2, 3]], [{1}, {2}], [1j, 2j], [..., 1],
              [NOON, time(3)]],
    ids=str,
)  # fmt: skip
def test_what_is_no_number_is_named(cells):
    table = np.empty((2, 1), dtype=object)
    table[:, 0] = cells
    with pytest.raises((TypeError, ValueError), match=r"column 0 must hold numbers"):
        find_schema(table).read(table)


@pytest.mark.parametrize("cells", [[b"x", b"y"], [[1], [2, 3]], [{1}, {2}], [1j, 2j], [..., 1]], ids=str)
def test_what_has_no_text_is_no_level(cells):
    table = np.empty((2, 1), dtype=object)
    table[:, 0] = cells
    with pytest.raises(TypeError, match=r"column 0 must hold text or numbers, got"):
        find_schema(table, [0])


def test_bytes_arrays_are_text():
    check(np.array([[b"b"], [b"\xc3\xa9"]]), CATEGORY, [0.0, 1.0], ("b", "é"))


# --- Prediction ---


def test_a_level_that_is_unknown_is_missing_and_counted():
    schema = find_schema([["a", "x"], ["b", "y"]])
    cells, unknown = schema.read_counted([["c", "x"], ["c", None], [None, "z"], ["b", "x"]])
    np.testing.assert_array_equal(cells, [[NAN, 0], [NAN, NAN], [NAN, NAN], [1, 0]])
    assert unknown == {0: Counter(c=2), 1: Counter(z=1)}


def test_levels_in_another_order_or_unused_change_nothing():
    schema = find_schema(pd.DataFrame({"x": pd.Categorical(["b", "a"], ["b", "a"])}))
    new = pd.DataFrame({"x": pd.Categorical(["a", "q", None, "b"], ["q", "unused", "b", "a"])})
    cells, unknown = schema.read_counted(new)
    np.testing.assert_array_equal(cells[:, 0], [0, NAN, NAN, 1])
    assert unknown == {"x": Counter(q=1)}


@pytest.mark.parametrize("kind", [NUMBER, CATEGORY, DATE, TIME])
def test_a_column_without_any_value_is_missing_whatever_its_type(kind):
    schema = Schema((Column("x", kind, ("a",) if kind == CATEGORY else None),))
    for table in (
        pd.DataFrame({"x": [NAN, NAN]}), pd.DataFrame({"x": pd.Series([None, None], dtype=object)}),
        pd.DataFrame({"x": pd.to_datetime([None, None])}), pd.DataFrame({"x": pd.Series([None, None], dtype="string")}),
        pd.DataFrame({"x": pd.Categorical([None, None])}), pl.DataFrame({"x": [None, None]}),
        pa.table({"x": pa.nulls(2)}), pa.table({"x": pa.nulls(2, pa.float64())}), [[None], [NAN]],
        pd.DataFrame({"x": pd.array([None, None], dtype="Int64")}),
    ):  # fmt: skip
        np.testing.assert_array_equal(schema.read(table)[:, 0], [NAN, NAN])


def test_no_rows():
    schema = find_schema(pd.DataFrame({"x": ["a"], "y": [1.5]}))
    assert schema.read(pd.DataFrame({"x": [], "y": []})).shape == (0, 2)
    assert schema.read(np.empty((0, 2), dtype=object)).shape == (0, 2)


def test_text_is_read_as_numbers_and_dates_if_training_had_these():
    schema = Schema((Column("n"), Column("d", DATE)))
    cells = schema.read([["1.5", "2020-03-01T12:00:00"], [" 2 ", None]])
    np.testing.assert_array_equal(cells, [[1.5, AT], [2.0, NAN]])


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [(NUMBER, "abc", ValueError), (NUMBER, "", ValueError), (DATE, "yesterday", (TypeError, ValueError)),
     (DATE, 5.0, TypeError), (DATE, time(1), TypeError), (TIME, "noon", TypeError), (TIME, NOON, TypeError),
     (NUMBER, NOON, TypeError)],
)  # fmt: skip
def test_what_does_not_fit_the_column_raises_with_its_name(kind, value, error):
    with pytest.raises(error, match=f"X: column 'x' must hold {kind}s"):
        Schema((Column("x", kind),)).read(pa.table({"x": pa.array([value])}))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_raises_with_its_row(value):
    with pytest.raises(ValueError, match=r"test.csv: column 'x' must be finite, got -?inf in row 12"):
        Schema((Column("x"),)).read(pa.table({"x": [1.0, None, value]}), "test.csv", first=10)


def test_another_number_of_columns_raises():
    with pytest.raises(ValueError, match="X must have 2 columns, got 1"):
        find_schema([["a", 1]]).read([["a"]])


# --- Dates out of range ---


def test_dates_of_any_year():
    far = np.array([["-9999-01-01"], ["30000-01-01"], ["0001-01-01"]], dtype="datetime64[s]")
    column, cells = only(far)
    assert column.kind == DATE
    np.testing.assert_array_equal(cells, far[:, 0].astype(np.int64))
    shown = Schema((column,)).decode(np.array(cells)[:, None])
    assert shown[:, 0].tolist() == [None, None, datetime(1, 1, 1)]
    check([[datetime(1, 1, 1)], [datetime(9999, 12, 31)]], DATE, [-62135596800.0, 253402214400.0])
    assert Schema((Column("x", DATE),)).decode(np.array([[1e300], [-1e300]])).tolist() == [[None], [None]]


# --- Levels and identifiers ---


def test_levels_of_any_content():
    levels = ["", " ", "'", '"', "\n", ",", "\0", "小", "x" * 10_000, "None", "nan", "lone \ud800"]
    rows = np.array([[level] for level in levels], dtype=object)
    column, cells = only(rows)
    assert column.levels == tuple(sorted(levels))
    assert [column.levels[int(k)] for k in cells] == levels
    assert only(pd.DataFrame({"x": pd.Categorical.from_codes(range(12), pd.Index(levels, dtype=object))}))[1] == cells


def test_identifiers_are_left_out_with_a_reason():
    n = 3 * IDENTIFIER_LEVELS
    table = {"id": [f"u{i}" for i in range(n)], "x": ["a", "b"] * (n // 2), "none": [None] * n}
    for frame in (pd.DataFrame(table), pl.DataFrame(table), pa.table(table)):
        schema = find_schema(frame)
        assert [column.kind for column in schema.columns] == [LEFT_OUT, CATEGORY, LEFT_OUT]
        assert schema.columns[0].levels is None
        assert describe_left_out(schema) == (
            f"'id' (text with {n} different values in {n} rows), 'none' (every value is missing)"
        )
        np.testing.assert_array_equal(schema.read(frame)[:, [0, 2]], 0.0)
        assert find_schema(frame, ["id", "x"]).columns[0].kind == CATEGORY
        assert find_schema(frame, [0, 1]).columns[0].kind == CATEGORY


def test_a_place_is_not_the_name_of_another_column():
    n = 3 * IDENTIFIER_LEVELS
    frame = pd.DataFrame({1: [f"u{i}" for i in range(n)], 0: ["a", "b"] * (n // 2)})
    with pytest.raises(ValueError, match="column 1 holds text; name it in categorical_features"):
        find_schema(frame, [1])
    assert [column.kind for column in find_schema(frame).columns] == [LEFT_OUT, CATEGORY]


def test_few_rows_are_no_identifiers():
    assert only([[f"u{i}"] for i in range(IDENTIFIER_LEVELS)])[0].kind == CATEGORY


def test_gaps_do_not_count_as_rows_of_an_identifier():
    n = 3 * IDENTIFIER_LEVELS
    assert only([[f"u{i}"] for i in range(n)] + [[None]] * 10 * n)[0].kind == LEFT_OUT


def test_too_many_levels_are_left_out_even_if_named(monkeypatch):
    import cavity.data.schema as module

    assert MAX_LEVELS >= 10_000
    monkeypatch.setattr(module, "MAX_LEVELS", 30)
    column = find_schema([[f"u{i}"] for i in range(31)], [0]).columns[0]
    assert column.kind == LEFT_OUT
    assert column.reason.startswith("text with more than 30 different values")


def test_levels_are_counted_by_their_text():
    values = table_columns([[3], ["3"], [3.0], ["x"], [None]], "X")[0][1]
    assert count_levels(values) == Counter({"3": 3, "x": 1})


# --- categorical_features ---

FRAME = pd.DataFrame({"n": [1.0, 2.0], "c": ["a", "b"], "k": [3, 4], "d": pd.to_datetime(["2020", "2021"])})


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ("from_dtype", [NUMBER, CATEGORY, NUMBER, DATE]),
        ([False, True, True, False], [NUMBER, CATEGORY, CATEGORY, DATE]),
        (np.array([False, True, True, False]), [NUMBER, CATEGORY, CATEGORY, DATE]),
        ([1, 2], [NUMBER, CATEGORY, CATEGORY, DATE]),
        (np.array([1, -2]), [NUMBER, CATEGORY, CATEGORY, DATE]),
        (["c", "k"], [NUMBER, CATEGORY, CATEGORY, DATE]),
        (pd.Index(["c", "k"]), [NUMBER, CATEGORY, CATEGORY, DATE]),
        (("c", "d"), [NUMBER, CATEGORY, NUMBER, CATEGORY]),
    ],
    ids=str,
)
def test_categorical_features_in_every_form(given, kinds):
    assert needs_schema(FRAME, given)
    assert [column.kind for column in find_schema(FRAME, given).columns] == kinds


def test_no_categories_makes_numbers_of_truth_values_and_refuses_text():
    table = pd.DataFrame({"b": [True, False], "n": [1.0, 2.0]})
    for given in (None, []):
        schema = find_schema(table, given)
        assert schema.is_numeric
        np.testing.assert_array_equal(schema.read(table), [[1, 1], [0, 2]])
    with pytest.raises(ValueError, match=r"column 'c' must hold numbers, got 'a' in row 0\..*categorical_features"):
        find_schema(FRAME, None).read(FRAME)
    with pytest.raises(ValueError, match="column 'c' holds text; name it in categorical_features"):
        find_schema(FRAME, [])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("c", "must be 'from_dtype', None, a mask, or places or names of columns, got 'c'"),
        ([[0, 1]], "must be 'from_dtype'"),
        ([True, False], "the mask must have 4 entries, got 2"),
        ([0, 4], "places must be below 4, the number of columns, got 4"),
        ([-5], "places must be below 4.* got -5"),
        (["c", "q"], "X has no column 'q', its columns are 'n', 'c', 'k', 'd'"),
        ([1.5], "X has no column 1.5"),
        ({"c"}, "must be 'from_dtype'"),
        (3, "must be 'from_dtype'"),
    ],
    ids=str,
)
def test_categorical_features_that_are_wrong(given, reason):
    with pytest.raises(ValueError, match=f"categorical_features must be.*{reason.removeprefix('must be')}"):
        find_schema(FRAME, given)


def test_places_of_columns():
    assert chosen_places("from_dtype", ["a"]) is chosen_places(None, ["a"]) is None
    assert chosen_places([], ["a"]) == set()
    assert chosen_places([0, -1, 2], ["a", "b", "c"]) == {0, 2}


# --- Tables ---


def test_text_is_no_row_and_rows_have_one_length():
    for table in (["ab", "cd"], pd.Series(["ab", "cd"]), pl.Series(["ab", "cd"])):
        with pytest.raises(ValueError, match="X must have two dimensions"):
            find_schema(table)
    with pytest.raises(ValueError, match="two dimensions, got the shape"):
        find_schema(np.array(["ab", "cd"], dtype=object))
    with pytest.raises(ValueError, match="X must have rows of one length"):
        find_schema([["a", "b"], ["c"]])


def test_sparse_matrices_are_left_to_scikit_learn():
    sparse = pytest.importorskip("scipy.sparse")
    assert not needs_schema(sparse.eye(3).tocsr(), "from_dtype")
    assert not needs_schema(sparse.eye(3).tocsr(), [0])


def test_cells_can_be_decoded():
    rows = [["b", 1.5, NOON, time(12, 30), True], ["a", None, None, None, None]]
    schema = find_schema(rows)
    cells = schema.read(rows)
    assert schema.decode(cells).tolist() == [["b", 1.5, NOON, time(12, 30), "True"], ["a", None, None, None, None]]
    assert schema.decode(np.stack([cells, cells])).shape == (2, 2, 5)
    np.testing.assert_array_equal(schema.read(schema.decode(cells)), cells)


def test_columns_describe_themselves():
    columns = [Column("x"), Column("x", CATEGORY, ("a",)), Column("x", CATEGORY, ("a", "b")), Column("x", DATE),
               Column("x", LEFT_OUT, reason="it is boring")]  # fmt: skip
    assert [column.describe() for column in columns] == [
        "number", "category of 1 level", "category of 2 levels", "date", "left out (it is boring)"
    ]  # fmt: skip


def test_rows_that_are_equal_have_equal_bits():
    """Whatever NaN a table has: rows are compared by their bits."""
    odd = np.array([NAN, -NAN, np.frombuffer(np.uint64(0x7FF8000000000123).tobytes())[0]])
    for table in (pa.table({"x": odd, "c": ["a"] * 3}), pd.DataFrame({"x": odd, "c": ["a"] * 3}),
                  pl.DataFrame({"x": odd, "c": ["a"] * 3})):  # fmt: skip
        cells = Schema((Column("x"), Column("c", CATEGORY, ("a",)))).read(table)
        assert len({row.tobytes() for row in cells}) == 1
