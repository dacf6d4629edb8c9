"""Sources of arrays, and the checks that rows of every source pass."""

import datetime
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from cavity.data import Arrays, Npy, Source, read_all, survey
from cavity.data.schema import Column, Schema
from cavity.data.source import BLOCK_NUMBERS, BLOCK_ROWS, BUFFER_ROWS, block_rows

N, D = 50, 3


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, D))


@pytest.fixture
def y():
    return np.random.default_rng(1).integers(0, 3, N)


def lane(source, number=0, seed=None):
    """All rows of a lane, in the order in which they come."""
    blocks = list(source.blocks(number, seed))
    return np.concatenate([block.X for block in blocks]), np.concatenate([block.rows for block in blocks])


# --- Arrays ---


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_lanes_hold_every_row_once_and_as_stored(X, y, lanes):
    source = Arrays(X, y, lanes)
    assert isinstance(source, Source)
    assert source.lanes == lanes
    for found, expected in zip(read_all(source), (X, y), strict=True):
        np.testing.assert_array_equal(found, expected)
    for number in range(lanes):
        rows = lane(source, number)[1]
        np.testing.assert_array_equal(rows, np.arange(len(rows)))


def test_lanes_are_of_nearly_equal_size(X):
    sizes = [len(lane(Arrays(X, lanes=7), number)[1]) for number in range(7)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "of",
    [
        np.asarray,
        np.asfortranarray,
        torch.from_numpy,
        pd.DataFrame,
        pl.DataFrame,
        list,
        lambda X: pd.DataFrame(X, index=np.arange(N)[::-1]),
    ],
    ids=["array", "by columns", "tensor", "pandas", "polars", "list", "turned"],
)
def test_anything_like_an_array_will_do(X, of):
    source = Arrays(of(X), lanes=3)
    np.testing.assert_array_equal(np.concatenate([lane(source, k)[0] for k in range(3)]), X)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8, bool, object])
def test_values_become_float64(X, kind):
    found = lane(Arrays(X.astype(kind)))[0]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, X.astype(kind).astype(np.float64))


def test_tensors_of_half_precision_are_read():
    X = torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(lane(Arrays(X))[0], [[1.5, -2.0]])


def test_what_is_float64_already_is_not_copied(X):
    assert np.shares_memory(next(Arrays(X).blocks(0)).X, X)


def test_a_memory_map_is_read_a_slice_at_a_time(tmp_path):
    n = 3 * BLOCK_ROWS + 5
    stored = np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="w+", shape=(n, 1))
    stored[:] = np.arange(n)[:, None]
    blocks = list(Arrays(stored).blocks(0))
    assert [len(block.rows) for block in blocks] == [BLOCK_ROWS] * 3 + [5]
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), stored)


def test_a_seed_arranges_the_pieces_and_nothing_else():
    X = np.arange(20.0 * BLOCK_ROWS)[:, None]
    source = Arrays(X)
    found, rows = lane(source, seed=1)
    np.testing.assert_array_equal(found[:, 0], rows)
    assert sorted(rows) == list(range(len(X)))
    np.testing.assert_array_equal(rows.reshape(20, -1), rows[::BLOCK_ROWS, None] + np.arange(BLOCK_ROWS))
    assert not (rows == np.sort(rows)).all()
    np.testing.assert_array_equal(rows, lane(source, seed=1)[1])
    assert (rows != lane(source, seed=2)[1]).any()


@pytest.mark.parametrize(("n_features", "lanes"), [(1, 1), (8, 8), (784, 8), (10**6, 1), (8, 64)])
def test_blocks_of_all_lanes_are_small(n_features, lanes):
    rows = block_rows(n_features, lanes)
    assert rows >= 256
    assert rows == 256 or (rows * n_features <= BLOCK_NUMBERS and rows * lanes <= BUFFER_ROWS)


def test_names_are_those_of_the_frame(X):
    assert Arrays(pd.DataFrame(X, columns=list("abc"))).feature_names == ["a", "b", "c"]
    assert Arrays(pd.DataFrame(X)).feature_names is None
    assert Arrays(X).feature_names is None


@pytest.mark.parametrize(("bad", "error", "text"), [
    ((np.zeros(3),), ValueError, "two dimensions"),
    ((np.zeros((3, 2)), np.zeros(2)), ValueError, "as many rows, got X with 3 and y with 2"),
    ((np.zeros((3, 2)), None, 0), ValueError, "must be 1 or more, got 0"),
    ((sparse.eye(3).tocsr(),), TypeError, "sparse"),
])  # fmt: skip
def test_what_cannot_be_a_source_is_named(bad, error, text):
    with pytest.raises(error, match=text):
        Arrays(*bad)


@pytest.mark.parametrize(("bad", "error"), [([[1j, 2j]], TypeError), (np.array([[b"a", 1]], object), TypeError),
                                            (np.array([[(1, 2), 1]] * 2, object), TypeError)])  # fmt: skip
def test_what_is_no_number_and_no_text_is_refused(bad, error):
    with pytest.raises(error, match="number"):
        list(Arrays(bad).blocks(0))


def test_text_is_refused_where_nothing_is_a_category():
    source = Arrays(np.array([["1", 1], ["a", 2]], dtype=object), categorical_features=None, name="rows")
    with pytest.raises(ValueError, match=r"^rows: column 0 must hold numbers, got 'a' in row 1.*categorical_features"):
        list(source.blocks(0))


# --- Missing values ---


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_value_that_is_infinite_is_named_with_its_row(X, lanes):
    X[17, 1] = np.inf
    with pytest.raises(ValueError, match=r"^X, row 17: feature 1 is infinite \(inf\); fill it in"):
        read_all(Arrays(X, np.zeros(N), lanes))
    with pytest.raises(ValueError, match=r"^X, row 17: feature 'b'"):
        read_all(Arrays(pd.DataFrame(X, columns=list("abc")), np.zeros(N), lanes))


def gap(bits):
    return np.array([bits], dtype=np.uint64).view(np.float64)[0]


def test_gaps_are_kept_and_have_one_bit_pattern(X):
    """Rows are compared by their bits, so all gaps must have the same."""
    X[17, 1], X[30, 0] = gap(0xFFF8000000000001), gap(0x7FF8000000000002)
    found = read_all(Arrays(X, np.zeros(N), lanes=3))[0]
    np.testing.assert_array_equal(found, X)
    assert len(set(found[np.isnan(found)].view(np.uint64).tolist())) == 1


@pytest.mark.parametrize("of", [
    lambda X: pd.DataFrame(X).convert_dtypes(), lambda X: pd.DataFrame(X, dtype=object), np.array,
    lambda X: pl.DataFrame(X, orient="row"), list,
], ids=["nullable", "objects", "array", "polars", "list"])  # fmt: skip
def test_missing_numbers_of_every_library_are_gaps(of):
    source = Arrays(of([[1.0, None], [None, 2.0], [3.0, 4.0]]), [0, 1, 0])
    np.testing.assert_array_equal(read_all(source)[0], [[1.0, np.nan], [np.nan, 2.0], [3.0, 4.0]])
    assert source.schema is None


# --- Categories and dates ---

MIXED = {
    "size": [1.5, 2.5, None, 4.5],
    "color": ["red", "blue", None, "red"],
    "day": [datetime.date(2020, 1, 1), None, datetime.date(1970, 1, 2), datetime.date(2020, 1, 1)],
    "truth": [True, False, True, None],
}
DAY = 86_400.0
CELLS = np.array(
    [[1.5, 1, 18262 * DAY, 1], [2.5, 0, np.nan, 0], [np.nan, np.nan, DAY, 1], [4.5, 1, 18262 * DAY, np.nan]]
)


@pytest.mark.parametrize("of", [
    pd.DataFrame, lambda m: pd.DataFrame(m).astype({"color": "category", "truth": "boolean"}), pl.DataFrame, pa.table,
], ids=["pandas", "category", "polars", "arrow"])  # fmt: skip
@pytest.mark.parametrize("lanes", [1, 3])
def test_frames_give_cells(of, lanes):
    source = Arrays(of(MIXED), list("abab"), lanes)
    assert [column.kind for column in source.schema.columns] == ["number", "category", "date", "category"]
    assert source.schema.has_unknown_levels
    assert source.feature_names == list(MIXED)
    np.testing.assert_array_equal(read_all(source)[0], CELLS)


def test_levels_are_those_of_the_schema_whatever_the_rows():
    levels = Schema((Column("color", "category", ("blue", "green", "red")),))
    source = Arrays(pd.DataFrame({"color": ["red", "pink", None, "blue"]})).with_schema(levels)
    np.testing.assert_array_equal(lane(source)[0][:, 0], [2.0, np.nan, np.nan, 0.0])


def test_objects_are_judged_by_all_rows():
    """A column that holds text only in its last row is a category, and its numbers are levels."""
    values = np.array([[k % 3, 0.5] for k in range(3 * BLOCK_ROWS)] + [["x", 0.5]], dtype=object)
    source = Arrays(values, np.arange(len(values)) % 2, lanes=2)
    assert [column.kind for column in source.schema.columns] == ["category", "number"]
    assert survey(source).schema.columns[0].levels == ("0", "1", "2", "x")


def test_numbers_are_categories_where_they_are_named(X):
    X[:, 1] = np.arange(N) % 4
    for chosen in ([1], [False, True, False]):
        source = Arrays(X, np.arange(N) % 2, categorical_features=chosen)
        assert survey(source).schema.columns[1].levels == ("0", "1", "2", "3")
        np.testing.assert_array_equal(read_all(source)[0], X)


@pytest.mark.parametrize("y", [
    np.array([1.0, np.nan, 2.0]), np.array(["a", None, "b"], dtype=object), np.array(["a", np.nan, "b"], dtype=object),
    pd.Series(["a", pd.NA, "b"]), np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"),
    pl.Series(["a", None, "b"]),
], ids=["nan", "None", "nan in objects", "NA", "NaT", "null"])  # fmt: skip
def test_a_label_that_is_missing_is_named_with_its_row(y):
    with pytest.raises(ValueError, match=r"^X, row 1: the label is missing"):
        read_all(Arrays(np.zeros((3, 1)), y))


def test_a_column_of_labels_will_do(X, y):
    np.testing.assert_array_equal(read_all(Arrays(X, y[:, None]))[1], y)
    with pytest.raises(ValueError, match="one label"):
        read_all(Arrays(X, np.zeros((N, 2))))


def test_to_read_all_labels_are_needed(X):
    with pytest.raises(ValueError, match="no labels"):
        read_all(Arrays(X))


# --- Files of arrays ---


@pytest.fixture
def saved(tmp_path, X, y):
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    return tmp_path


def test_files_give_the_rows_of_their_arrays(saved, X, y):
    for labels in (saved / "y.npy", str(saved / "y.npy"), y):
        source = Npy(saved / "X.npy", labels, lanes=4)
        assert isinstance(source, Source)
        found, found_labels = read_all(source)
        np.testing.assert_array_equal(found, X.astype(np.float32))
        np.testing.assert_array_equal(found_labels, y)


def test_a_block_does_not_hold_on_to_the_file(saved):
    block = next(Npy(saved / "X.npy").blocks(0))
    assert type(block.X) is np.ndarray
    assert block.X.base is None or not isinstance(block.X.base, np.memmap)
    assert block.where(2) == "X.npy, row 2"


def test_a_file_of_several_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "both.npz", X=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"both\.npz must hold one array"):
        Npy(tmp_path / "both.npz")


# --- Fingerprints ---


def test_fingerprints_are_for_json_and_tell_data_apart(saved, X):
    def print_of(source):
        return json.loads(json.dumps(source.fingerprint()))

    assert print_of(Arrays(X)) == print_of(Arrays(X + 1))  # the values themselves are in that of a survey
    assert print_of(Arrays(X)) != print_of(Arrays(X[:-1]))
    assert print_of(Arrays(X)) != print_of(Arrays(X, lanes=2))
    assert print_of(Npy(saved / "X.npy")) != print_of(Npy(saved / "X.npy", saved / "y.npy"))
    moved = saved / "elsewhere"
    moved.mkdir()
    np.save(moved / "X.npy", X.astype(np.float32))
    assert print_of(Npy(moved / "X.npy")) == print_of(Npy(saved / "X.npy"))
