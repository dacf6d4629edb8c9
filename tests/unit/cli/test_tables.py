"""Rows from tables: numbers, gaps, batches for prediction."""

import numpy as np
import pytest

from cavity.cli.columns import choose
from cavity.cli.files import columns_of, find, schema
from cavity.cli.tables import batches, frame, read_rows

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
        return find([str(path)])

    return write


def read(data, drop_missing=False):
    table = columns_of(data, None)
    return read_rows(data, table, choose(table.schema, data.name, "y"), drop_missing)


def test_numbers_truth_values_and_labels_are_read(made):
    rows = read(made({"n": [1, 2, 3], "t": [True, False, True], "f": [0.5, 1.5, 2.5], "y": ["a", "b", "a"]}))
    assert rows.X.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5], [3.0, 1.0, 2.5]]
    assert rows.y.tolist() == ["a", "b", "a"]
    assert (rows.numbers.tolist(), rows.dropped) == ([1, 2, 3], 0)


def test_a_gap_is_named_by_column_and_row_or_left_out(made):
    data = made({"n": [1, 2, None, 4], "f": [0.5, 1.5, 2.5, 3.5], "y": ["a", "b", "a", None]})
    with pytest.raises(ValueError, match=r"column 'n' has no value in row 3 \(2 rows have gaps\); .*--drop-missing"):
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
    with pytest.raises(ValueError, match="column 'n' is infinite in row 2"):
        read(made({"n": [1.5, float("inf"), 3.5], "y": ["a", "b", "b"]}), drop_missing=True)


def test_where_every_row_has_a_gap_nothing_is_left(made):
    with pytest.raises(ValueError, match="no row is left"):
        read(made({"n": [1.5, None], "y": [None, "b"]}), drop_missing=True)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.data.csv_stream.BLOCK_BYTES", 40)
    monkeypatch.setattr("cavity.cli.tables.block_rows", lambda n_features, lanes: 6)


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
    (part,) = batches(find([str(tmp_path / "rows.csv")]), ["x"], ["id"], drop_missing=False)
    assert part.kept["id"].to_pylist() == ["007", "1e3"]


def test_a_frame_has_names_only_where_the_model_has():
    X = np.arange(4.0).reshape(2, 2)
    assert frame(X, None) is X
    assert frame(X, ["a", "b"]).to_pydict() == {"a": [0.0, 2.0], "b": [1.0, 3.0]}


def test_a_schema_of_no_rows_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="has no rows"):
        schema(find([str(tmp_path / "rows.csv")]))
