"""Files by name, folder and pattern; which columns are used, and why others are not."""

import datetime
import gzip
from decimal import Decimal

import pytest

from cavity.data.csv import CSVFiles
from cavity.data.parquet import ParquetFiles
from cavity.data.tables import choose_columns, find_files

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# --- Columns ---

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


def test_columns_are_features_but_for_lists_and_bytes():
    found = choose_columns(TABLE.schema, "rows", "label")
    assert {column.name: column.kind for column in found.schema.columns} == {
        "whole": "number", "truth": "category", "price": "number", "city": "category", "digits": "category",
        "day": "date", "moment": "date", "hour": "time", "empty": "number",
    }  # fmt: skip
    assert found.features == [column.name for column in found.schema.columns]
    assert found.left_out == {"pair": "lists", "raw": "bytes"}
    assert found.names == [*found.features, "label"]
    assert choose_columns(TABLE.schema, "rows", "label", ["whole", "price"]).schema is None


def test_what_is_dropped_is_not_spoken_of():
    found = choose_columns(TABLE.schema, "rows", "label", drop=["truth", "city", "raw"])
    assert found.features == ["whole", "price", "digits", "day", "moment", "hour", "empty"]
    assert found.left_out == {"pair": "lists"}


@pytest.mark.parametrize(("feature", "held"), [("pair", "lists"), ("raw", "bytes")])
def test_lists_and_bytes_cannot_be_asked_for(feature, held):
    with pytest.raises(ValueError, match=f"feature '{feature}' must hold numbers, text, dates or times, got {held}"):
        choose_columns(TABLE.schema, "rows", "label", ["whole", feature])
    with pytest.raises(ValueError, match=r"at least one feature is required, .*'raw' holds bytes"):
        choose_columns(TABLE.select(["pair", "raw", "label"]).schema, "rows", "label")


def test_numbers_are_categories_where_they_are_named():
    found = choose_columns(TABLE.schema, "rows", "label", ["price", "whole"], categorical=["whole"])
    assert [column.kind for column in found.schema.columns] == ["number", "category"]


def test_features_stay_in_the_order_they_are_named_in():
    found = choose_columns(TABLE.schema, "rows", "label", ["price", "whole"])
    assert found.features == ["price", "whole"]
    assert found.left_out == {}


@pytest.mark.parametrize("features", [["whole", "whole"], ["whole", "label"]])
def test_a_column_cannot_be_named_twice(features):
    with pytest.raises(ValueError, match="must be used once, as a feature or as the target"):
        choose_columns(TABLE.schema, "rows", "label", features)


def test_two_columns_of_one_name_are_refused():
    schema = pa.schema([("a", pa.float64()), ("a", pa.float64()), ("y", pa.int64())])
    with pytest.raises(ValueError, match="2 columns 'a'"):
        choose_columns(schema, "rows", "y")


# --- Files ---


@pytest.fixture
def folder(tmp_path):
    for name in ("b", "a"):
        pq.write_table(pa.table({"x": [1.0, 2.0], "y": [name, name]}), tmp_path / f"{name}.parquet")
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n2,b\n")
    return tmp_path


def read_csv(path, names=None):
    return CSVFiles(path).read(names)


def test_a_folder_has_its_files_in_the_order_of_their_names(folder):
    found = find_files(folder, ParquetFiles.endings, CSVFiles.endings)
    assert [file.path.name for file in found] == ["a.parquet", "b.parquet"]  # no CSV among Parquet
    assert ParquetFiles(found).read(["y"])["y"].to_pylist() == ["a", "a", "b", "b"]
    assert [file.path.name for file in find_files(folder, CSVFiles.endings)] == ["rows.csv"]


def test_a_pattern_and_several_names_mean_their_files(folder):
    by_pattern = find_files(str(folder / "?.parquet"))
    by_name = find_files([folder / "a.parquet", str(folder / "b.parquet")])
    assert by_pattern == by_name == find_files(by_name)
    assert [file.key for file in by_name] == ["a.parquet", "b.parquet"]


def test_a_name_that_is_nearly_right_is_suggested(folder):
    with pytest.raises(FileNotFoundError, match=r"row\.csv does not exist; did you mean .*rows\.csv\?"):
        find_files(folder / "row.csv")
    with pytest.raises(FileNotFoundError, match=r"does not exist$"):
        find_files(folder / "no" / "such")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_in_the_header(mark, tmp_path):
    (tmp_path / "rows.csv").write_text(f"x{mark}y\n1{mark}a\n2.5{mark}b\n")
    assert read_csv(tmp_path / "rows.csv").to_pydict() == {"x": [1.0, 2.5], "y": ["a", "b"]}


def test_packed_files_are_read(tmp_path):
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("x;y\n1;a\n")
    assert read_csv(tmp_path / "rows.csv.gz").to_pydict() == {"x": [1], "y": ["a"]}


def test_a_type_fits_all_rows_not_just_the_first(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,a\n" * 300_000 + "1.5,b\n")
    found = CSVFiles(tmp_path / "rows.csv")
    assert str(found.schema().field("x").type) == "int64"
    assert found.read()["x"][-1].as_py() == 1.5


def test_a_column_that_only_the_first_file_has_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("x,z\n1,a\n")
    with pytest.raises(ValueError, match=r"b\.csv: Column 'y'"):
        read_csv(tmp_path, ["x", "y"])


def test_rows_are_counted_where_that_is_cheap(folder):
    assert CSVFiles(folder / "rows.csv").count_rows() == 2
    assert ParquetFiles(folder).count_rows() == 4
    with gzip.open(folder / "rows.csv.gz", "wt") as file:
        file.write("x,y\n1,a\n")
    assert CSVFiles(folder / "rows.csv.gz").count_rows() is None


def test_a_table_gives_a_source_of_its_files(folder):
    assert ParquetFiles(folder).source("y", ["x"]).feature_names == ["x"]
    assert ParquetFiles(str(folder / "?.parquet")).source("y", ["x"]).fingerprint()["files"][1]["rows"] == 2
    assert CSVFiles(folder / "rows.csv").source("y", ["x"]).n_features == 1


def test_a_schema_of_no_rows_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="has no rows"):
        CSVFiles(tmp_path / "rows.csv").schema()
