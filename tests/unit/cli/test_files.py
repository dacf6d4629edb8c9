"""Files by name, folder and pattern; separators; sizes."""

import gzip

import pytest

from cavity.cli import files
from cavity.cli.files import columns_of, find, is_large, schema, source

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def folder(tmp_path):
    for name in ("b", "a"):
        pq.write_table(pa.table({"x": [1.0, 2.0], "y": [name, name]}), tmp_path / f"{name}.parquet")
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n2,b\n")
    return tmp_path


def test_a_folder_has_its_files_in_the_order_of_their_names(folder):
    found = find([str(folder)])
    assert [file.path.name for file in found.files] == ["a.parquet", "b.parquet"]  # no CSV among Parquet
    assert not found.is_csv
    assert columns_of(found, ["y"])["y"].to_pylist() == ["a", "a", "b", "b"]


def test_a_pattern_and_several_names_mean_their_files(folder):
    by_pattern = find([str(folder / "?.parquet")])
    by_name = find([str(folder / "a.parquet"), str(folder / "b.parquet")])
    assert [file.path for file in by_pattern.files] == [file.path for file in by_name.files]
    assert by_name.name.endswith("a.parquet and 1 more")


def test_csv_and_parquet_do_not_mix(folder):
    with pytest.raises(ValueError, match="either the ones or the others"):
        find([str(folder / "a.parquet"), str(folder / "rows.csv")])


def test_a_name_that_is_nearly_right_is_suggested(folder):
    with pytest.raises(FileNotFoundError, match=r"is .*rows\.csv meant\?"):
        find([str(folder / "row.csv")])
    with pytest.raises(FileNotFoundError, match=r"no such file or folder$"):
        find([str(folder / "no" / "such")])


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_separator_is_found_in_the_line_of_names(mark, tmp_path):
    (tmp_path / "rows.csv").write_text(f"x{mark}y\n1{mark}a\n2.5{mark}b\n")
    found = columns_of(find([str(tmp_path / "rows.csv")]), None)
    assert found.to_pydict() == {"x": [1.0, 2.5], "y": ["a", "b"]}


def test_packed_files_are_read(tmp_path):
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("x;y\n1;a\n")
    assert columns_of(find([str(tmp_path / "rows.csv.gz")]), None).to_pydict() == {"x": [1], "y": ["a"]}


def test_a_type_fits_all_rows_not_just_the_first(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,a\n" * 300_000 + "1.5,b\n")
    found = find([str(tmp_path / "rows.csv")])
    assert str(schema(found).field("x").type) == "int64"
    assert columns_of(found, None)["x"][-1].as_py() == 1.5


def test_a_column_that_only_the_first_file_has_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("x,z\n1,a\n")
    with pytest.raises(ValueError, match=r"b\.csv: Column 'y'"):
        columns_of(find([str(tmp_path)]), ["x", "y"])


def test_files_are_large_when_they_take_more_than_their_part_of_memory(folder, monkeypatch):
    data = find([str(folder)])  # four rows of two columns: 64 bytes, and as many as an array
    for free, n_processes, expected in ((4 * 128, 1, False), (4 * 128 - 4, 1, True), (4 * 128, 2, True)):
        monkeypatch.setattr(files, "available_bytes", lambda device, free=free: free)
        assert is_large(data, n_processes) == expected
    monkeypatch.setattr(files, "available_bytes", lambda device: None)
    assert not is_large(data)


def test_a_source_needs_one_file_or_folder(folder):
    assert source(find([str(folder)]), "y", ["x"]).feature_names == ["x"]
    assert source(find([str(folder / "rows.csv")]), "y", ["x"]).n_features == 1
    with pytest.raises(ValueError, match="put them into a folder"):
        source(find([str(folder / "?.parquet")]), "y", ["x"])
