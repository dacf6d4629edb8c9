"""Parquet files: which columns, which lane reads which rows, and what is said of bad files."""

import datetime
import decimal
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from cavity.data import Parquet, Source, read_all, survey
from cavity.data.schema import Column, Schema

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 1000


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "distance": rng.standard_normal(n),
        "delay": np.array(["none", "short", "long"])[rng.integers(0, 3, n)],
        "month": rng.integers(1, 13, n).astype(np.int32),
        "carrier": np.array(["X", "Y"])[rng.integers(0, 2, n)],
    }


@pytest.fixture
def folder(tmp_path):
    """Three files of 1000 rows: one row group, five, and ten."""
    path = tmp_path / "flights"
    path.mkdir()
    for k, size in enumerate((1000, 200, 100)):
        pq.write_table(pa.table(rows_of(N, k)), path / f"part-{k}.parquet", row_group_size=size)
    return path


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def expected_rows():
    parts = [rows_of(N, k) for k in range(3)]
    X = np.concatenate([np.column_stack([part["distance"], part["month"], part["carrier"] == "Y"]) for part in parts])
    return X, np.concatenate([part["delay"] for part in parts])


# --- Rows ---


@pytest.mark.parametrize("lanes", [None, 1, 2, 3, 8, 11])
def test_every_row_is_read_once_and_as_stored_whatever_the_lanes(folder, lanes):
    source = Parquet(folder, target="delay", lanes=lanes)
    assert isinstance(source, Source)
    assert source.lanes == (lanes or 8)
    for found, expected in zip(read_all(source), expected_rows(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_lanes_are_of_nearly_equal_size(folder, lanes):
    source = Parquet(folder, target="delay", lanes=lanes)
    sizes = [sum(len(block.rows) for block in source.blocks(lane)) for lane in range(lanes)]
    assert sum(sizes) == 3 * N
    assert max(sizes) < 1.5 * min(sizes)


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_row_has_the_same_number_in_any_order(folder, lanes, seed):
    source, as_stored = Parquet(folder, target="delay", lanes=lanes), []
    for lane in range(lanes):
        stored = np.concatenate([block.X for block in source.blocks(lane)])
        blocks = list(source.blocks(lane, seed))
        rows = np.concatenate([block.rows for block in blocks])
        assert sorted(rows) == list(range(len(stored)))
        np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), stored[rows])
        as_stored.append((rows == np.arange(len(rows))).all())
    assert all(as_stored) if seed is None else not all(as_stored)


def test_rows_say_where_they_are(folder):
    source = Parquet(folder, lanes=4)
    for seed in (None, 3):
        for lane in range(4):
            for block in source.blocks(lane, seed):
                name, row = block.where(5).split(", row ")
                k = int(name.removeprefix("flights/part-").removesuffix(".parquet"))
                assert rows_of(N, k)["distance"][int(row)] == block.X[5, 0]


def test_a_large_row_group_is_read_in_small_blocks_and_shuffled_in_parts(tmp_path):
    n = 70_000
    path = write(tmp_path / "one.parquet", x=np.arange(float(n)), y=np.zeros(n))
    source = Parquet(path, target="y", lanes=1)
    blocks = list(source.blocks(0, seed=0))
    assert max(len(block.rows) for block in blocks) <= 8192
    rows = np.concatenate([block.rows for block in blocks])
    assert sorted(rows) == list(range(n))
    np.testing.assert_array_equal(np.concatenate([block.X[:, 0] for block in blocks]), rows)
    assert rows[0] != 0 or rows[30_000] != 30_000
    for lanes in (3, 8):  # one row group for several
        assert Parquet(path, target="y", lanes=lanes).lanes == lanes


def test_a_single_file_will_do(folder):
    source = Parquet(str(folder / "part-1.parquet"), target="delay")
    np.testing.assert_array_equal(read_all(source)[1], rows_of(N, 1)["delay"])
    assert next(source.blocks(0)).where(0) == "part-1.parquet, row 0"


def test_empty_files_and_row_groups_are_passed_over(tmp_path):
    schema = pa.schema([("x", pa.float64()), ("y", pa.int64())])
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for values in ([], [1.0, 2.0], [], [3.0]):
            writer.write_table(pa.table({"x": values, "y": [0] * len(values)}, schema))
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    for lanes in (1, 8):
        assert read_all(Parquet(tmp_path, target="y", lanes=lanes))[0].tolist() == [[1.0], [2.0], [3.0]]
    nothing = Parquet(tmp_path / "a.parquet", target="y")
    assert list(nothing.blocks(0)) == []


def test_files_come_by_name_and_hidden_ones_not_at_all(folder):
    shutil.copy(folder / "part-0.parquet", folder / "_metadata.parquet")
    shutil.copy(folder / "part-0.parquet", folder / ".part-9.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "more.parquet").mkdir()  # a folder of that name
    shutil.move(folder / "part-2.parquet", folder / "more.parquet" / "part-2.parquet")
    names = [file["name"] for file in Parquet(folder).fingerprint()["files"]]
    assert names == ["more.parquet/part-2.parquet", "part-0.parquet", "part-1.parquet"]


def test_columns_are_found_by_name_in_every_file(folder):
    table = pa.table(rows_of(N, 1))
    pq.write_table(table.select(["month", "carrier", "delay", "distance"]), folder / "part-1.parquet")
    for found, expected in zip(read_all(Parquet(folder, target="delay")), expected_rows(), strict=True):
        np.testing.assert_array_equal(found, expected)


# --- Columns ---


def test_features_are_all_columns_but_the_target(folder):
    source = Parquet(folder, target="month")
    assert (source.feature_names, source.ignored) == (["distance", "delay", "carrier"], [])
    assert Parquet(folder).feature_names == ["distance", "delay", "month", "carrier"]
    assert Parquet(folder, features=["month", "distance"]).schema is None


def test_features_come_in_the_order_asked_for(folder):
    source = Parquet(folder, features=["month", "distance"])
    assert source.n_features == 2
    part = rows_of(N, 0)
    np.testing.assert_array_equal(next(source.blocks(0)).X[:5], np.column_stack([part["month"], part["distance"]])[:5])
    assert next(source.blocks(0)).y is None


def test_numbers_of_every_kind_are_features(tmp_path):
    write(
        tmp_path / "a.parquet",
        flag=[True, False],
        large=[2**60 + 1, -1],
        small=pa.array([1, 255], pa.uint8()),
        half=pa.array(np.array([0.5, 2.0], dtype=np.float16)),
        price=[decimal.Decimal("1.25"), decimal.Decimal("-3.50")],
        code=pa.array([7, 9]).dictionary_encode(),
        when=[datetime.datetime(2020, 1, 1)] * 2,
        day=[datetime.date(2020, 1, 1)] * 2,
        text=pa.array(["1", "2"]).dictionary_encode(),
        many=[[1.0], [2.0]],
        nothing=pa.nulls(2),
    )
    numeric = Parquet(tmp_path / "a.parquet", features=["large", "small", "half", "price"], lanes=1)
    assert numeric.schema is None
    assert next(numeric.blocks(0)).X.tolist() == [[float(2**60), 1, 0.5, 1.25], [-1, 255, 2.0, -3.5]]
    source = Parquet(tmp_path / "a.parquet", lanes=1)
    assert source.ignored == ["many"]
    assert [column.kind for column in source.schema.columns] == [
        "category", *["number"] * 5, "date", "date", "category", "number"
    ]  # fmt: skip
    levels = {"flag": ("False", "True"), "text": ("1", "2")}
    schema = Schema(tuple(replace(column, levels=levels.get(column.name)) for column in source.schema.columns))
    day = 18262 * 86400.0
    expected = [[1, float(2**60), 1, 0.5, 1.25, 7, day, day, 0], [0, -1, 255, 2.0, -3.5, 9, day, day, 1]]
    X = next(source.with_schema(schema).blocks(0)).X
    assert X[:, :-1].tolist() == expected
    assert np.isnan(X[:, -1]).all()


@pytest.mark.parametrize("y", [
    ["b", "a", "b"], [True, False, True], [3, 1, 3], [0.5, 0.25, 0.5], pa.array(["b", "a", "b"]).dictionary_encode(),
    pa.array(["b", "a", "b"], pa.large_string()), pa.array([3, 1, 3], pa.uint8()), pa.array([b"b", b"a", b"b"]),
    [datetime.date(2021, 1, 1), datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)],
    [decimal.Decimal("1.5"), decimal.Decimal("1.2"), decimal.Decimal("1.5")],
], ids=str)  # fmt: skip
def test_labels_may_be_of_any_type(tmp_path, y):
    found = next(Parquet(write(tmp_path / "a.parquet", x=[1.0, 2.0, 3.0], y=y), target="y", lanes=1).blocks(0)).y
    assert found.tolist() == (y.to_pylist() if isinstance(y, pa.Array) else y)
    classes, place = np.unique(found, return_inverse=True)
    assert (len(classes), place.tolist()) == (2, [1, 0, 1])


@pytest.mark.parametrize(("asked", "error", "text"), [
    ({"categorical_features": ["speed"]}, ValueError, "X has no column 'speed', its columns are 'distance', 'delay'"),
    ({"categorical_features": ["month"]}, ValueError, "column 'delay' holds text; name it in categorical_features"),
    ({"features": ["distance", "speed"]}, ValueError, "part-0.parquet has no column 'speed'"),
    ({"target": "speed"}, ValueError, "part-0.parquet has no column 'speed'"),
    ({"features": ["month"], "target": "month"}, ValueError, "'month' must be used once, as a feature or"),
    ({"features": ["month", "month"]}, ValueError, "'month' must be used once"),
    ({"features": []}, ValueError, "at least one feature"),
    ({"features": "month"}, TypeError, "must be a list of column names, got 'month'"),
    ({"lanes": 0}, ValueError, "must be 1 or more, got 0"),
])  # fmt: skip
def test_what_cannot_be_asked_for_is_named(folder, asked, error, text):
    with pytest.raises(error, match=text):
        Parquet(folder, **asked)


def test_labels_must_be_one_a_row(tmp_path):
    with pytest.raises(ValueError, match="one label a row"):
        Parquet(write(tmp_path / "a.parquet", x=[1.0], y=[[1, 2]]), target="y")


def test_two_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="2 columns 'x'"):
        Parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize(("columns", "text"), [
    ({"distance": [1.0], "delay": ["none"], "carrier": ["X"]}, " has no column 'month'"),
    ({"distance": [1.0], "month": [1], "carrier": ["X"]}, " has no column 'delay'"),
    ({"distance": ["far"], "month": [1], "delay": ["none"], "carrier": ["X"]},
     ": feature 'distance' must hold numbers, as in flights/part-0.parquet, got text; .*categorical_features"),
    ({"distance": [1.0], "month": [1], "delay": ["none"], "carrier": [3]},
     ": feature 'carrier' must hold a category, as in flights/part-0.parquet, got numbers; .*categorical_features"),
    ({"distance": [1.0], "month": [1], "delay": [3], "carrier": ["X"]},
     ": the target 'delay' must have one type in all files, got numbers, but text in flights/part-0"),
])  # fmt: skip
def test_a_file_unlike_the_others_is_named(folder, columns, text):
    write(folder / "part-7.parquet", **columns)
    with pytest.raises(ValueError, match=rf"^flights/part-7.parquet{text}"):
        Parquet(folder, target="delay")


# --- Bad values and bad files ---


@pytest.mark.parametrize("carrier", [[], ["X"]], ids=["numbers", "with a category"])
def test_an_infinite_value_is_named_with_file_row_and_column(tmp_path, carrier):
    path, values = tmp_path / "flights", [*np.zeros(250), np.inf, *np.zeros(49)]
    path.mkdir()
    columns = {"x": values, "y": [0] * 300} | ({"carrier": carrier * 300} if carrier else {})
    pq.write_table(pa.table(columns), path / "part-0.parquet", row_group_size=100)
    text = r"column 'x' must be finite, got inf in row 250" if carrier else r"row 250: feature 'x' is infinite"
    with pytest.raises(ValueError, match=rf"^flights/part-0\.parquet[,:] {text}"):
        read_all(Parquet(path, target="y", lanes=2))


@pytest.mark.parametrize(("column", "cells"), [
    ([1, None, 2], [1.0, np.nan, 2.0]), ([0.5, None, np.nan], [0.5, np.nan, np.nan]),
    ([True, None, False], [1.0, np.nan, 0.0]), ([decimal.Decimal(1), None, decimal.Decimal(3)], [1.0, np.nan, 3.0]),
    (["b", None, "a"], [1.0, np.nan, 0.0]), (pa.array(["b", None, "a"]).dictionary_encode(), [1.0, np.nan, 0.0]),
    ([datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 3)], [86400.0, np.nan, 172800.0]),
    (["b", None, ""], [1.0, np.nan, 0.0]),
], ids=str)  # fmt: skip
def test_nulls_of_every_type_are_gaps(tmp_path, column, cells):
    source = Parquet(write(tmp_path / "a.parquet", x=column, y=[0, 1, 0]), target="y", lanes=1)
    np.testing.assert_array_equal(read_all(source)[0][:, 0], cells)


def test_a_file_without_a_value_in_a_column_is_like_the_others(tmp_path):
    """pandas writes such a column without a type."""
    write(tmp_path / "a.parquet", x=pa.nulls(2), when=pa.nulls(2), z=[1.0, 2.0], y=[0, 1])
    write(tmp_path / "b.parquet", x=["u", "v"], when=[datetime.datetime(1970, 1, 2)] * 2, z=pa.nulls(2), y=[0, 1])
    found = read_all(Parquet(tmp_path, target="y"))[0]
    day, gap = 86400.0, np.nan
    np.testing.assert_array_equal(found, [[gap, gap, 1.0], [gap, gap, 2.0], [0.0, day, gap], [1.0, day, gap]])


def test_levels_are_found_in_all_files_and_lanes(folder):
    write(folder / "part-7.parquet", distance=[1.0], delay=["none"], month=[1], carrier=["Q"])
    found = survey(Parquet(folder, target="delay"))
    assert found.schema.columns[2].levels == ("Q", "X", "Y")
    assert found.statistics.counts[2].sum((0, 2)).tolist()[0] == 1.0


def test_a_copy_with_a_schema_reads_the_columns_that_it_names(folder):
    schema = Schema((Column("carrier", "category", ("Y", "Z")), Column("distance")))
    source, part = Parquet(folder, target="delay").with_schema(schema), rows_of(N, 0)
    block = next(source.blocks(0))
    np.testing.assert_array_equal(block.X[:, 0], np.where(part["carrier"] == "Y", 0.0, np.nan)[: len(block.rows)])
    np.testing.assert_array_equal(block.X[:, 1], part["distance"][: len(block.rows)])
    assert (source.feature_names, block.y.tolist()) == (
        ["carrier", "distance"],
        part["delay"][: len(block.rows)].tolist(),
    )


@pytest.mark.parametrize(
    "y", [[1, None], ["a", None], pa.array(["a", None]).dictionary_encode(), [0.5, np.nan]], ids=str
)
def test_a_label_that_is_missing_is_named(tmp_path, y):
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: the label is missing"):
        read_all(Parquet(write(tmp_path / "a.parquet", x=[1.0, 2.0], y=y), target="y"))


def test_no_file_no_folder_and_no_parquet_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Parquet(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no \.parquet or \.pq file"):
        Parquet(tmp_path)
    (tmp_path / "a.parquet").write_text("hello, this is no Parquet file")
    with pytest.raises(ValueError, match=r"a\.parquet is not a Parquet file"):
        Parquet(tmp_path)


@pytest.mark.parametrize("changed", ["fewer rows", "fewer groups"])
def test_a_file_that_has_changed_is_refused(folder, changed):
    source = Parquet(folder, target="delay", lanes=1)
    n, size = (N - 1, 100) if changed == "fewer rows" else (N, N)
    pq.write_table(pa.table(rows_of(n, 2)), folder / "part-2.parquet", row_group_size=size)
    with pytest.raises(ValueError, match=r"part-2\.parquet: .*has changed"):
        read_all(source)


def test_fewer_lanes_where_reading_takes_much_memory(tmp_path):
    """Columns of fractions come with large dictionaries, which are held while their row group is read."""
    n, rng = 60_000, np.random.default_rng(0)
    fractions = {f"x{j}": rng.standard_normal(n) for j in range(16)}
    small = {f"x{j}": rng.integers(0, 10, n) for j in range(8)}
    assert Parquet(write(tmp_path / "a.parquet", **fractions)).lanes == 2
    assert Parquet(tmp_path / "a.parquet", features=[f"x{j}" for j in range(6)]).lanes == 4
    assert Parquet(write(tmp_path / "b.parquet", **small)).lanes == 8
    assert Parquet(tmp_path / "a.parquet", features=["x1", "x2"]).lanes == 8
    assert Parquet(tmp_path / "a.parquet", lanes=8).lanes == 8


def test_the_fingerprint_moves_with_the_folder_and_tells_data_apart(folder, tmp_path):
    def print_of(path, **asked):
        return json.loads(json.dumps(Parquet(path, **asked).fingerprint()))

    here = print_of(folder, target="delay")
    assert [file["rows"] for file in here["files"]] == [N, N, N]
    elsewhere = shutil.copytree(folder, tmp_path / "deep" / "copy")
    assert print_of(elsewhere, target="delay") == here
    assert print_of(folder) != here
    assert print_of(folder, target="delay", features=["month"]) != here
    assert print_of(folder, target="delay", lanes=2) != here
    pq.write_table(pa.table(rows_of(N - 1)), elsewhere / "part-0.parquet")
    assert print_of(elsewhere, target="delay") != here
