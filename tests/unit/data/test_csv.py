"""CSV files: types from the first rows, and the row of what does not fit them."""

import gzip

import numpy as np
import pytest

from cavity.data import CSV, Source, read_all

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
    assert X.tolist() == [[300.0], [1200.5], [-7.0]]
    assert y.tolist() == ["none", "short", "none"]
    assert (source.feature_names, source.ignored, source.n_features) == (["distance"], ["carrier"], 1)
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
    assert (X.tolist(), y.tolist()) == ([[1.0], [2.0]], ["none", "short"])


def test_empty_files_are_passed_over(folder):
    (folder / "a.csv").touch()
    write(folder / "b.csv", [])
    write(folder / "c.csv", ["1,X,none"])
    assert read_all(CSV(folder, target="delay"))[0].tolist() == [[1.0]]
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
    ("far,X,1", None, "In CSV column 'distance': Row #200003: .*'far'"),
    ("1,X,soon", "delay", "In CSV column 'delay': Row #200003: .*'soon'"),
    ("1,X", None, "Expected 3 columns"),
])  # fmt: skip
def test_what_does_not_fit_is_named_with_file_and_row(folder, bad, target, text):
    rows = ["1,X,1"] * 200_000 + [" 2 ,X,1", bad, "1,X,1"]
    source = CSV(write(folder / "a.csv", rows), target=target, features=["distance"])
    with pytest.raises(ValueError, match=rf"^a\.csv.*{text}"):
        list(source.blocks(0))


@pytest.mark.parametrize("cell", ["", "NA", "nan"])
def test_a_missing_value_is_named_with_file_and_row(folder, cell):
    write(folder / "a.csv", ["1,X,none"])
    write(folder / "b.csv", ["1,X,none", f"{cell},X,none"])
    with pytest.raises(ValueError, match=r"^flights/b\.csv, row 1: feature 'distance' is missing"):
        read_all(CSV(folder, target="delay"))


@pytest.mark.parametrize("rows", [["1,X,a", "1,X,"], ["1,X,1", "1,X,"], ["1,X,0", "1,X,NA"]])
def test_a_missing_label_is_named_with_file_and_row(folder, rows):
    with pytest.raises(ValueError, match=r"^a\.csv, row 1: the label is missing"):
        read_all(CSV(write(folder / "a.csv", rows), target="delay"))


def test_a_column_without_a_value_is_no_feature(folder):
    path = write(folder / "a.csv", [",X,1"])
    assert CSV(path).feature_names == ["delay"]
    with pytest.raises(ValueError, match=r"feature 'distance' must hold numbers, got no values"):
        CSV(path, features=["distance"])


def test_a_file_that_lacks_a_column_is_named(folder):
    write(folder / "a.csv", ["1,X,none"])
    write(folder / "b.csv", ["X,none"], "carrier,delay\n")
    with pytest.raises(ValueError, match=r"^flights/b\.csv has no column 'distance'"):
        read_all(CSV(folder, target="delay"))


@pytest.mark.parametrize(("asked", "text"), [({"features": ["carrier"]}, ": feature 'carrier' must hold numbers"),
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
