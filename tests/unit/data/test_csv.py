"""CSV files: types from the first rows, and the row of what does not fit them."""

import gzip

import numpy as np
import pytest

from cavity.data import CSV, Source, read_all, survey
from cavity.data.csv import STREAM_BYTES, CSVFiles
from cavity.data.schema import Column, Schema

pytest.importorskip("pyarrow")

HEAD = "distance,carrier,delay\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "flights"
    path.mkdir()
    return path


def write(path, rows, head=HEAD):
    path.write_text(head + "".join(f"{row}\n" for row in rows))
    return path


def test_rows_of_a_file_come_as_stored(folder):
    path = write(folder / "a.csv", ["300,X,none", "1200.5,Y,short", "-7,X,none"])
    source = CSV(path, target="delay")
    assert isinstance(source, Source)
    X, y = read_all(source)
    assert X.tolist() == [[300.0, 0.0], [1200.5, 1.0], [-7.0, 0.0]]
    assert y.tolist() == ["none", "short", "none"]
    assert (source.feature_names, source.ignored, source.n_features) == (["distance", "carrier"], [], 2)
    assert next(source.blocks(0)).where(1) == "a.csv, row 1"


@pytest.mark.parametrize(
    ("labels", "expected"), [("1 0", [1, 0]), ("true false", [True, False]), ("0.5 1", [0.5, 1.0])]
)
def test_labels_are_what_the_first_rows_say(folder, labels, expected):
    y = read_all(CSV(write(folder / "a.csv", [f"{x},1" for x in labels.split()], "y,x\n"), target="y"))[1]
    assert y.tolist() == expected


def test_every_file_is_in_one_lane_of_8_at_most(folder):
    for k in range(20):
        write(folder / f"{k:02}.csv", [f"{100 * k + i},X,{k}" for i in range(k + 1)])
    source = CSV(folder, target="delay")
    assert source.lanes == 8
    X, y = read_all(source)
    assert X[:, 0].tolist() == [100 * k + i for k in range(20) for i in range(k + 1)]
    assert y.tolist() == [k for k in range(20) for _ in range(k + 1)]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_row_has_the_same_number_in_any_order_of_files(folder, seed):
    for k in range(40):
        write(folder / f"{k:02}.csv", [f"{100 * k + i},X,none" for i in range(1 + k % 3)])
    stored = [np.concatenate([block.X for block in CSV(folder).blocks(lane)]) for lane in range(8)]
    source = CSV(folder)  # which has not counted its rows yet
    for lane in range(8):
        blocks = list(source.blocks(lane, seed))
        rows = np.concatenate([block.rows for block in blocks])
        assert sorted(rows) == list(range(len(stored[lane])))
        np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), stored[lane][rows])


def test_columns_are_found_by_name_in_every_file(folder):
    write(folder / "a.csv", ["1,X,none"])
    write(folder / "b.csv", ["short,9,2,Y"], "delay,more,distance,carrier\n")
    X, y = read_all(CSV(folder, target="delay"))
    assert (X.tolist(), y.tolist()) == ([[1.0, 0.0], [2.0, 1.0]], ["none", "short"])


def test_empty_files_are_passed_over(folder):
    (folder / "a.csv").touch()
    write(folder / "b.csv", [])
    write(folder / "c.csv", ["1,X,none"])
    assert read_all(CSV(folder, target="delay"))[0].tolist() == [[1.0, 0.0]]
    (folder / "c.csv").unlink()
    with pytest.raises(ValueError, match="no rows"):
        CSV(folder)


def test_packed_files_and_other_delimiters_are_read(folder):
    with gzip.open(folder / "a.csv.gz", "wt") as file:
        file.write("x;y\n1.5;0\n")
    for delimiter in (";", None):
        assert read_all(CSV(folder, target="y", delimiter=delimiter))[0].tolist() == [[1.5]]


def test_a_fraction_may_follow_whole_numbers(folder):
    rows = ["1,X,none"] * 200_000 + ["0.5,X,none"]
    source = CSV(write(folder / "a.csv", rows), target="delay")
    blocks = list(source.blocks(0))
    assert len(blocks) > 1
    assert blocks[-1].X[-1, 0] == 0.5
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), np.arange(len(rows)))


@pytest.mark.parametrize(("bad", "target", "text"), [
    ("far,X,1", None, "In CSV column 'distance': Row #200003: .*'far'; .* or name the column in categorical_features"),
    ("1,X,soon", "delay", "In CSV column 'delay': Row #200003: .*'soon'"),
    ("1,X", None, "Expected 3 columns"),
])  # fmt: skip
def test_what_does_not_fit_is_named_with_file_and_row(folder, bad, target, text):
    rows = ["1,X,1"] * 200_000 + [" 2 ,X,1", bad, "1,X,1"]
    source = CSV(write(folder / "a.csv", rows), target=target, features=["distance"])
    with pytest.raises(ValueError, match=rf"^a\.csv.*{text}"):
        list(source.blocks(0))


@pytest.mark.parametrize("cell", ["", "NA", "N/A", "nan", "null", "NULL"])
def test_a_missing_cell_is_a_gap_in_numbers_and_in_text(folder, cell):
    write(folder / "a.csv", ["1,X,none"])
    write(folder / "b.csv", ["1,Y,none", f"{cell},X,none", f"2,{cell},none"])
    source = CSV(folder, target="delay")
    np.testing.assert_array_equal(read_all(source)[0], [[1, 0], [1, 1], [np.nan, 0], [2, np.nan]])
    assert survey(source).schema.columns[1].levels == ("X", "Y")


def test_a_label_can_be_the_text_of_a_missing_value(folder):
    """Namibia is no gap; only an empty cell is."""
    path = write(folder / "a.csv", ["1,X,NA", "2,X,null", "3,NA,b"])
    assert read_all(CSV(path, target="delay"))[1].tolist() == ["NA", "null", "b"]
    table = CSVFiles(path).read(target="delay")
    assert table["delay"].to_pylist() == ["NA", "null", "b"]
    assert table["carrier"].to_pylist() == ["X", "X", None]


@pytest.mark.parametrize("rows", [["1,X,a", "1,X,"], ["1,X,1", "1,X,"], ["1,X,0", "1,X,NA"]])
def test_a_missing_label_is_named_with_file_and_row(folder, rows):
    with pytest.raises(ValueError, match=r"^a\.csv, row 1: the label is missing"):
        read_all(CSV(write(folder / "a.csv", rows), target="delay"))


def test_a_column_without_a_value_is_left_out_by_the_survey(folder):
    path = write(folder / "a.csv", [",X,1", ",Y,0"])
    source = CSV(path, target="delay")
    assert source.feature_names == ["distance", "carrier"]
    found = survey(source)
    assert [(column.kind, column.reason) for column in found.schema.columns] == [
        ("left out", "every value is missing"), ("category", "")
    ]  # fmt: skip
    assert next(source.with_schema(found.schema).blocks(0)).X.tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_a_file_that_lacks_a_column_is_named(folder):
    write(folder / "a.csv", ["1,X,none"])
    write(folder / "b.csv", ["X,none"], "carrier,delay\n")
    with pytest.raises(ValueError, match=r"^flights/b\.csv has no column 'distance'"):
        read_all(CSV(folder, target="delay"))


@pytest.mark.parametrize(("asked", "text"), [({"features": ["carriers"]}, " has no column 'carriers'; did you mean"),
                                             ({"target": "speed"}, " has no column 'speed'")])  # fmt: skip
def test_what_cannot_be_asked_for_is_named(folder, asked, text):
    path = write(folder / "a.csv", ["1,X,none"])
    with pytest.raises(ValueError, match=rf"^a\.csv{text}"):
        CSV(path, **asked)


def test_the_fingerprint_knows_the_files(folder):
    path = write(folder / "a.csv", ["1,X,none"])
    before = CSV(folder).fingerprint()
    assert before["files"] == [{"name": "a.csv", "bytes": path.stat().st_size}]
    write(path, ["1,X,none", "2,X,none"])
    assert CSV(folder).fingerprint() != before


# --- Categories and dates ---


def test_numbers_with_text_in_later_rows_can_be_read_as_a_category(folder):
    """The remedy that the error names; the levels are as they are written."""
    rows = [f"{k % 7:02},X,1" for k in range(STREAM_BYTES // 4)] + ["far,X,1", "NA,X,0"]
    source = CSV(write(folder / "a.csv", rows), target="delay", categorical_features=["distance", "carrier"])
    found = survey(source)
    assert found.schema.columns[0].levels == ("00", "01", "02", "03", "04", "05", "06", "far")
    assert len(list(source.blocks(0))) > 1
    last = list(source.with_schema(found.schema).blocks(0))[-1].X[-3:, 0]
    np.testing.assert_array_equal(last, [(STREAM_BYTES // 4 - 1) % 7, 7.0, np.nan])


def test_dates_times_and_truth_values_are_read(folder):
    path = write(folder / "a.csv", ["2020-01-01,10:30,true,a", "1970-01-02 00:00:00.5,00:00:01,NA,b", ",,false,a"],
                 "day,hour,flag,y\n")  # fmt: skip
    source = CSV(path, target="y")
    assert [column.kind for column in source.schema.columns] == ["date", "time", "category"]
    expected = [[18262 * 86400.0, 37800.0, 1.0], [86400.5, 1.0, np.nan], [np.nan, np.nan, 0.0]]
    np.testing.assert_array_equal(read_all(source)[0], expected)
    np.testing.assert_array_equal(survey(source).schema.read(CSVFiles(path).read(["day", "hour", "flag"])), expected)


def test_fractions_of_seconds_may_follow_whole_days(folder):
    rows = ["2020-01-01,a"] * (STREAM_BYTES // 13 + 10) + ["1970-01-02T00:00:00.25,b"]
    source = CSV(write(folder / "a.csv", rows, "day,y\n"), target="y")
    blocks = list(source.blocks(0))
    assert (blocks[0].X[0, 0], blocks[-1].X[-1, 0]) == (18262 * 86400.0, 86400.25)


def test_a_date_that_is_none_is_named(folder):
    rows = ["2020-01-01,a"] * (STREAM_BYTES // 13 + 10) + ["soon,b"]
    source = CSV(write(folder / "a.csv", rows, "day,y\n"), target="y")
    with pytest.raises(ValueError, match=r"^a\.csv: In CSV column 'day': .*'soon'"):
        list(source.blocks(0))


def test_a_model_finds_its_columns_by_name_and_reads_them_as_in_training(folder):
    """Another file has the columns in another order, more of them, and other types in its first rows."""
    schema = Schema((Column("code", "category", ("007", "8", "x")), Column("flag", "category", ("False", "True")),
                     Column("day", "date"), Column("size", "number")))  # fmt: skip
    path = write(folder / "a.csv", ["1,true,,007,2", "2,false,,8,NA", "3,true,,9,1"], "id,flag,day,code,size\n")
    source = CSV(path).with_schema(schema)
    assert source.feature_names == ["code", "flag", "day", "size"]
    expected = [[0, 1, np.nan, 2], [1, 0, np.nan, np.nan], [np.nan, 1, np.nan, 1]]
    np.testing.assert_array_equal(next(source.blocks(0)).X, expected)
    with pytest.raises(ValueError, match=r"^a\.csv has no column 'sizes'; did you mean 'size'"):
        CSV(path).with_schema(Schema((Column("sizes"),)))


def test_batches_for_prediction_have_the_same_gaps_and_categories(folder):
    path = write(folder / "a.csv", ["1,NA,NA", "02,X,b"])
    (batch,) = CSVFiles(path).batches(["distance", "carrier"], ["delay"], ["distance"])
    assert batch.to_pydict() == {"delay": ["NA", "b"], "distance": ["1", "02"], "carrier": [None, "X"]}
