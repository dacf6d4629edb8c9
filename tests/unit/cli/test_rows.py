"""Rows from tables: numbers, labels, missing values, batches to predict, sizes."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from cavity.cli.rows import (
    CellCounts,
    Inputs,
    as_levels,
    batches,
    find_columns,
    frame,
    is_large,
    open_table,
    parse_numbers,
    read_rows,
)
from cavity.data.schema import Column

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(params=["csv", "parquet"])
def made(request, tmp_path):
    """What writes a table in either form and finds it."""

    def write(columns):
        path = tmp_path / f"rows.{request.param}"
        if request.param == "parquet":
            pq.write_table(pa.table(columns), path, row_group_size=3)
        else:
            lines = [list(columns), *zip(*columns.values(), strict=True)]
            text = "\n".join(",".join("" if c is None else str(c).lower() for c in line) for line in lines)
            path.write_text(text + "\n")
        return open_table([str(path)])

    return write


def read(table, drop_missing=False):
    data = table.read(target="y")
    X = data.drop_columns(["y"])
    X, _ = Inputs(find_columns(X)).read(table, X)
    return read_rows(table.name, X, "y", data.column("y"), drop_missing)


def test_numbers_truth_values_text_and_labels_are_read(made):
    rows = read(made({"n": [1, 2, 3], "t": [True, False, True], "c": ["p", None, "q"], "y": ["a", "b", "a"]}))
    assert rows.X.column("n").to_pylist() == [1.0, 2.0, 3.0]
    assert rows.X.column("t").to_pylist() == [True, False, True]
    assert rows.X.column("c").to_pylist() == ["p", None, "q"]
    assert rows.y.tolist() == ["a", "b", "a"]
    assert (rows.numbers.tolist(), rows.dropped) == ([1, 2, 3], 0)


def test_gaps_stay_or_their_rows_are_left_out(made):
    columns = {"n": [1, 2, None, 4], "c": [None, "p", "q", "r"], "y": ["a", "b", "a", "b"]}
    rows = read(made(columns))
    assert np.isnan(rows.X.column("n").to_numpy()).tolist() == [False, False, True, False]
    assert (rows.numbers.tolist(), rows.dropped) == ([1, 2, 3, 4], 0)
    rows = read(made(columns), drop_missing=True)
    assert (rows.numbers.tolist(), rows.dropped) == ([2, 4], 2)
    assert rows.y.tolist() == ["b", "b"]


def test_a_missing_label_is_named(made):
    with pytest.raises(ValueError, match=r"column 'y' has no value in row 2; .*--drop-missing"):
        read(made({"n": [1, 2, 3], "y": ["a", None, "b"]}))
    with pytest.raises(ValueError, match=r"column 'y' has no value in row 2 \(2 rows have no label\)"):
        read(made({"n": [1, 2, 3, 4], "y": [0, None, 1, None]}))


def test_an_infinite_number_is_refused(made):
    with pytest.raises(ValueError, match="column 'n' must be finite, got inf in row 2"):
        read(made({"n": [1.5, float("inf"), 3.5], "y": ["a", "b", "b"]}), drop_missing=True)


def test_where_every_row_has_a_gap_nothing_is_left(made):
    with pytest.raises(ValueError, match="every row has missing values"):
        read(made({"n": [1.5, None], "y": [None, "b"]}), drop_missing=True)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.data.csv.STREAM_BYTES", 40)
    monkeypatch.setattr("cavity.data.parquet.block_rows", lambda n_features, lanes: 6)


def all_batches(table, columns, keep=(), drop_missing=False, numeric=()):
    counts = CellCounts(columns)
    return list(batches(table, Inputs(tuple(columns), frozenset(numeric)), keep, drop_missing, counts)), counts


def joined(parts, name):
    return [cell for part in parts for cell in part.X.column(name).to_pylist()]


@pytest.mark.usefixtures("small_blocks")
def test_batches_have_all_rows_and_what_is_kept(made):
    columns = {"id": [f"k{i}" for i in range(20)], "n": list(range(20)), "t": [i % 2 == 0 for i in range(20)]}
    found, counts = all_batches(made(columns), [Column("t"), Column("n")], ["id"])
    assert len(found) > 1
    assert joined(found, "n") == list(range(20))
    assert joined(found, "t") == [float(i % 2 == 0) for i in range(20)]  # a model of numbers takes 1 and 0
    assert [name for part in found for name in part.kept["id"].to_pylist()] == columns["id"]
    assert counts.describe() == ""


@pytest.mark.usefixtures("small_blocks")
def test_gaps_and_unknown_levels_in_batches_are_counted(made):
    colors = ["red", "blue", None, "teal", "mauve", "puce", "plum", "teal"]
    data = made({"n": [None if i % 8 == 3 else i + 0.5 for i in range(24)], "c": colors * 3})
    columns = [Column("n"), Column("c", "category", ("blue", "red"))]
    found, counts = all_batches(data, columns)
    assert sum(len(part.X) for part in found) == 24
    assert counts.missing == {"n": 3, "c": 3}
    assert counts.facts() == {
        "missing": {"n": 3, "c": 3},
        "unseen": {"c": {"cells": 15, "levels": ["teal", "mauve", "puce"]}},
    }
    assert counts.describe() == (
        "15 cells have levels that the model does not know and takes as missing: 'c' (15 cells, such as 'teal', "
        "'mauve', 'puce'); 6 cells are missing: 'n' (3), 'c' (3)"
    )
    found, counts = all_batches(data, columns, drop_missing=True)
    assert sum(part.dropped for part in found) == 6
    assert counts.missing == {}
    assert counts.unseen == {"c": 12}


def test_many_columns_with_gaps_make_a_short_note():
    counts = CellCounts([Column(f"x{j}") for j in range(100)])
    X = np.full((3, 100), np.nan)
    X[0, :] = 1.0
    X[1, :60] = 1.0
    counts.add(pa.table({f"x{j}": X[:, j] for j in range(100)}), {}, "rows")
    assert counts.describe() == "140 cells are missing: 'x60' (2), 'x61' (2), 'x62' (2) and 97 more columns"


def test_text_kept_from_csv_stays_as_it_is(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x\n007,1\n1e3,2\nNA,3\n")
    (part,), _ = all_batches(open_table([str(tmp_path / "rows.csv")]), [Column("x")], ["id"])
    assert part.kept["id"].to_pylist() == ["007", "1e3", "NA"]


def test_a_column_left_out_of_the_model_need_not_be_there(made):
    (part,), _ = all_batches(made({"x": [1.5, 2.5]}), [Column("id", "left out", reason="text"), Column("x")])
    assert part.X.column_names == ["id", "x"]
    assert part.X.column("id").null_count == 2


def test_text_in_a_column_of_numbers_is_an_error_or_a_gap(tmp_path):
    pq.write_table(pa.table({"x": ["1", "2.5", None, "?", "n/a?"]}), tmp_path / "rows.parquet")
    table = open_table([str(tmp_path / "rows.parquet")])
    with pytest.raises(
        ValueError, match=r"column 'x' must hold numbers, as in training, got '\?' in row 4; .*--numeric x"
    ):
        all_batches(table, [Column("x")])
    (part,), counts = all_batches(table, [Column("x")], numeric=["x"])
    assert part.X.column("x").to_numpy()[:2].tolist() == [1.0, 2.5]
    assert counts.facts()["missing"] == {"x": 3}
    assert "also text that is no number: 'x' (2 cells, such as '?' in row 4)" in counts.describe()


@pytest.mark.parametrize("cells", [["1", "x", "-2e3"], ["1,5", "x", "-2e3"]])
def test_numbers_in_text_follow_the_decimals_of_the_file(cells):
    decimal = "," if "," in cells[0] else "."
    found, strays = parse_numbers(pa.array(cells), decimal, first=10)
    assert found.to_pylist()[::2] == [float(cells[0].replace(",", ".")), -2000.0]
    assert strays == (1, 11, "x")


@pytest.mark.parametrize(
    ("levels", "cells", "expected"),
    [
        (("1", "2"), ["1", "01", "2.0", "x", None], ["1", "1", "2", "x", None]),  # were read as numbers
        (("01", "2"), ["1", "01", "2.0"], ["1", "01", "2.0"]),  # were text
        (("2.5", "3"), ["2.50", "3,0"], ["2.5", "3,0"]),
        (("False", "True"), ["true", "FALSE", "maybe"], ["True", "False", "maybe"]),
        (("None", "a"), ["1.0", "None"], ["1.0", "None"]),
        (("12345678901234567",), ["12345678901234567"], ["12345678901234567"]),
        (("1",), ["9" * 5000, "x" * 10_000], ["inf", "x" * 10_000]),
    ],
)
def test_cells_of_csv_files_become_the_levels_that_a_model_knows(levels, cells, expected):
    assert as_levels(pa.array(cells, pa.string()), levels, ".").to_pylist() == expected


def test_a_frame_is_an_array_where_the_model_has_no_names():
    X = pa.table({"a": [0.0, 2.0], "b": [1.0, 3.0]})
    assert frame(X, ["a", "b"]) is X
    assert frame(X, None).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert frame(X.append_column("c", pa.array(["p", None])), None).tolist() == [[0.0, 1.0, "p"], [2.0, 3.0, None]]


# --- Labels ---


def labels_of(column):
    """The labels that are read from a column."""
    return read_rows("rows", pa.table({"x": np.zeros(len(column))}), "y", column, drop_missing=False).y


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([3, 1], np.array([3, 1])),
        ([3.0, 1.0], np.array([3, 1])),
        ([True, False], np.array([True, False])),
        (["b", "a"], np.array(["b", "a"])),
        (pa.array(["b", "a"]).dictionary_encode(), np.array(["b", "a"])),
        ([Decimal("1.50"), Decimal("2")], np.array(["1.50", "2.00"])),
        ([datetime.date(2020, 1, 2)], np.array(["2020-01-02"])),
        ([0.5, 1.0], np.array([0.5, 1.0])),
    ],
)
def test_labels_are_whole_numbers_truth_values_or_text(cells, expected):
    found = labels_of(pa.chunked_array([cells]))
    assert found.dtype.kind == expected.dtype.kind
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("cells", [[b"\xfc"], [[1], [2]]])
def test_bytes_and_lists_are_no_labels(cells):
    with pytest.raises(ValueError, match="one label a row"):
        labels_of(pa.chunked_array([cells]))


# --- Files ---


@pytest.fixture
def folder(tmp_path):
    for name in ("b", "a"):
        pq.write_table(pa.table({"x": [1.0, 2.0], "y": [name, name]}), tmp_path / f"{name}.parquet")
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n2,b\n")
    return tmp_path


def test_several_files_have_one_name(folder):
    found = open_table([str(folder / "a.parquet"), str(folder / "b.parquet")])
    assert [file.path.name for file in found.files] == ["a.parquet", "b.parquet"]
    assert found.name.endswith("a.parquet and 1 more")


def test_csv_and_parquet_do_not_mix(folder):
    with pytest.raises(ValueError, match="must be all CSV or all Parquet, got both"):
        open_table([str(folder / "a.parquet"), str(folder / "rows.csv")])


def test_files_are_large_when_they_take_more_than_their_part_of_memory(folder, monkeypatch):
    data = open_table([str(folder)])  # four rows of two columns: 64 bytes, and as many as an array
    for free, n_processes, expected in ((4 * 128, 1, False), (4 * 128 - 4, 1, True), (4 * 128, 2, True)):
        monkeypatch.setattr("cavity.runtime.memory.available_bytes", lambda device, free=free: free)
        assert is_large(data, n_processes) == expected
    monkeypatch.setattr("cavity.runtime.memory.available_bytes", lambda device: None)
    assert not is_large(data)
