"""Which columns are used, and what is said of the others."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from cavity.cli.columns import choose, counters, explained, listed

pa = pytest.importorskip("pyarrow")

TABLE = pa.table(
    {
        "whole": [1, 2],
        "truth": [True, False],
        "price": [Decimal("1.5"), Decimal("2.5")],
        "city": ["Bonn", "Rome"],
        "digits": ["1", "2"],
        "day": [datetime.date(2020, 1, 1)] * 2,
        "moment": [datetime.datetime(2020, 1, 1)] * 2,
        "hour": [datetime.time(3)] * 2,
        "pair": [[1, 2], [3]],
        "empty": pa.nulls(2),
        "raw": [b"a", b"b"],
        "label": ["x", "y"],
    }
)


def test_numbers_and_truth_values_are_features_and_the_rest_is_named():
    found = choose(TABLE.schema, "rows", "label")
    assert found.features == ["whole", "truth", "price"]
    assert found.left_out == {
        "city": "text", "digits": "text", "day": "dates", "moment": "dates", "hour": "times", "pair": "lists",
        "empty": "nothing", "raw": "bytes",
    }  # fmt: skip
    assert found.names == [*found.features, "label"]


def test_what_is_dropped_is_not_spoken_of():
    found = choose(TABLE.schema, "rows", "label", drop=["truth", "city"])
    assert found.features == ["whole", "price"]
    assert "city" not in found.left_out


def test_features_stay_in_the_order_they_are_named_in():
    found = choose(TABLE.schema, "rows", "label", ["price", "whole"])
    assert found.features == ["price", "whole"]
    assert found.left_out == {}


@pytest.mark.parametrize("features", [["whole", "whole"], ["whole", "label"]])
def test_a_column_cannot_be_named_twice(features):
    with pytest.raises(ValueError, match="each may be named once"):
        choose(TABLE.schema, "rows", "label", features)


def test_two_columns_of_one_name_are_refused():
    schema = pa.schema([("a", pa.float64()), ("a", pa.float64()), ("y", pa.int64())])
    with pytest.raises(ValueError, match="2 columns 'a'"):
        choose(schema, "rows", "y")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2", "?", "4"], "text: row 3 has '?'"),
        (["3,5", "4,5"], "text"),
        (["1", "2"], "text that looks like numbers"),
        (["a", "1", "b"], "text"),
        (["", None], "text"),
    ],
)
def test_text_that_is_mostly_numbers_is_explained(cells, expected):
    table = pa.table({"age": pa.array(cells, pa.string()), "x": [1.0] * len(cells)})
    columns = choose(table.schema, "rows", None)
    assert explained(columns, table) == {"age": expected}


def test_columns_that_count_the_rows_are_found():
    X = np.column_stack([np.arange(5), np.arange(5) * 2, np.arange(7, 12), np.ones(5)]).astype(float)
    assert counters(X, ["a", "b", "c", "d"]) == ["a", "c"]
    assert counters(X[:2], ["a", "b", "c", "d"]) == []


def test_long_lists_are_cut_short():
    assert listed(list(range(14))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
