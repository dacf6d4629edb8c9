"""Rows from tables: numbers, labels, missing values, batches to predict, sizes."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from cavity.cli.rows import batches, frame, is_large, open_table, read_rows
from cavity.data.tables import Columns, choose_columns

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
    data = table.read()
    return read_rows(table.name, data, choose_columns(data.schema, table.name, "y"), drop_missing)


def test_numbers_truth_values_and_labels_are_read(made):
    rows = read(made({"n": [1, 2, 3], "t": [True, False, True], "f": [0.5, 1.5, 2.5], "y": ["a", "b", "a"]}))
    assert rows.X.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5], [3.0, 1.0, 2.5]]
    assert rows.y.tolist() == ["a", "b", "a"]
    assert (rows.numbers.tolist(), rows.dropped) == ([1, 2, 3], 0)


def test_a_gap_is_named_by_column_and_row_or_left_out(made):
    data = made({"n": [1, 2, None, 4], "f": [0.5, 1.5, 2.5, 3.5], "y": ["a", "b", "a", None]})
    with pytest.raises(ValueError, match=r"column 'n' has no value in row 3 \(2 rows have missing .*--drop-missing"):
        read(data)
    rows = read(data, drop_missing=True)
    assert (rows.numbers.tolist(), rows.dropped) == ([1, 2], 2)
    assert rows.y.tolist() == ["a", "b"]


def test_a_missing_label_is_a_gap(made):
    with pytest.raises(ValueError, match="column 'y' has no value in row 2"):
        read(made({"n": [1, 2, 3], "y": ["a", None, "b"]}))
    with pytest.raises(ValueError, match="column 'y' has no value in row 2"):
        read(made({"n": [1, 2, 3], "y": [0, None, 1]}))


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


@pytest.mark.usefixtures("small_blocks")
def test_batches_have_all_rows_and_what_is_kept(made):
    columns = {"id": [f"k{i}" for i in range(20)], "n": list(range(20)), "t": [i % 2 == 0 for i in range(20)]}
    found = list(batches(made(columns), ["t", "n"], ["id"], drop_missing=False))
    assert len(found) > 1
    X = np.concatenate([part.X for part in found])
    assert X.tolist() == [[float(i % 2 == 0), float(i)] for i in range(20)]
    assert [name for part in found for name in part.kept["id"].to_pylist()] == columns["id"]


@pytest.mark.usefixtures("small_blocks")
def test_gaps_in_batches_are_named_by_their_row_in_the_file_or_left_out(made):
    data = made({"n": [None if i == 13 else i + 0.5 for i in range(20)], "id": [f"k{i}" for i in range(20)]})
    with pytest.raises(ValueError, match="column 'n' has no value in row 14"):
        list(batches(data, ["n"], [], drop_missing=False))
    found = list(batches(data, ["n"], ["id"], drop_missing=True))
    assert sum(part.dropped for part in found) == 1
    assert "k13" not in [name for part in found for name in part.kept["id"].to_pylist()]


def test_text_kept_from_csv_stays_as_it_is(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x\n007,1\n1e3,2\n")
    (part,) = batches(open_table([str(tmp_path / "rows.csv")]), ["x"], ["id"], drop_missing=False)
    assert part.kept["id"].to_pylist() == ["007", "1e3"]


def test_a_frame_has_names_only_where_the_model_has():
    X = np.arange(4.0).reshape(2, 2)
    assert frame(X, None) is X
    assert frame(X, ["a", "b"]).to_pydict() == {"a": [0.0, 2.0], "b": [1.0, 3.0]}


# --- Labels ---


def labels_of(column):
    """The labels that are read from a column."""
    data = pa.table({"x": np.zeros(len(column)), "y": column})
    return read_rows("rows", data, Columns(["x"], "y", {}), drop_missing=False).y


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
