"""Iterables of batches: the same rows each time, and errors that name the batch."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from cavity.data import Batches, Source, read_all, survey
from cavity.data.schema import find_schema

N = 100
X = np.random.default_rng(0).standard_normal((N, 3))
Y = np.random.default_rng(1).integers(0, 4, N)


def some(size=30):
    return [(X[i : i + size], Y[i : i + size]) for i in range(0, N, size)]


def loader(**settings):
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return DataLoader(data, **({"batch_size": 7} | settings))


def frame(n):
    """A category with gaps, and numbers."""
    return pd.DataFrame({"a": [None if k % 5 == 4 else f"level {k % 3}" for k in range(n)], "b": np.arange(n) / 2})


class Again:
    """Can be read again and again."""

    def __iter__(self):
        return iter(some())


@pytest.mark.parametrize("batches", [
    some(), tuple(some(1)), some(N), Again(), lambda: iter(some()), loader(), loader(shuffle=True),
    loader(shuffle=True, drop_last=True),
], ids=["list", "tuple", "one", "iterable", "function", "loader", "shuffled", "dropping"])  # fmt: skip
def test_all_rows_come_in_the_order_of_the_data(batches):
    source = Batches(batches)
    assert isinstance(source, Source)
    assert (source.n_features, source.lanes, source.feature_names) == (3, 1, None)
    for _ in range(2):
        for found, expected in zip(read_all(source), (X, Y), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert survey(source).n_rows == N


def test_small_batches_are_put_together_and_each_row_knows_its_own(monkeypatch):
    monkeypatch.setattr("cavity.data.iterables.MIN_ROWS", 40)
    blocks = list(Batches(some(15)).blocks(0))
    assert [len(block.rows) for block in blocks] == [45, 45, 10]
    assert [blocks[1].where(i) for i in (0, 14, 15, 44)] == [
        "batch 3, row 0", "batch 3, row 14", "batch 4, row 0", "batch 5, row 14"
    ]  # fmt: skip


def test_a_sampler_of_ones_own_is_left_alone():
    sampler = WeightedRandomSampler([1.0] * N, 30)
    assert sum(len(block.rows) for block in Batches(loader(sampler=sampler)).blocks(0)) == 30


def test_rows_without_labels_are_for_prediction():
    for batches in ([X[:50], X[50:]], [(X[:50], None), (X[50:], None)], [[X[:50]], [X[50:]]], [torch.from_numpy(X)]):
        (block,) = Batches(batches).blocks(0)
        np.testing.assert_array_equal(block.X, X)
        assert block.y is None


def test_empty_batches_are_passed_over():
    assert read_all(Batches([(X[:0], Y[:0]), *some(), (X[:0], Y[:0])]))[1].tolist() == Y.tolist()


def test_the_number_of_features_may_be_given():
    """Then no batch is read before it is needed."""

    def never():
        raise AssertionError

    assert Batches(never, n_features=5).n_features == 5
    with pytest.raises(ValueError, match=r"X of batch 0 must have .* 5 columns, got the shape \(30, 3\)"):
        list(Batches(some(), n_features=5).blocks(0))


@pytest.mark.parametrize(
    "once", [iter(some()), (batch for batch in some()), map(tuple, some()), zip(X, Y, strict=True)]
)
def test_what_can_be_read_only_once_is_refused(once):
    with pytest.raises(TypeError, match="only once; give a list of batches, or a function"):
        Batches(once)


@pytest.mark.parametrize(("batches", "error", "text"), [
    (3, TypeError, "must be an iterable of .* batches, got 3"),
    ([], ValueError, "at least one batch"),
    ([{"X": X, "y": Y}], TypeError, "batch 0 must be a pair .* got a dict"),
    ([(X, Y, Y)], TypeError, "batch 0 must be a pair .* got a tuple"),
    ([(X, Y[:-1])], ValueError, r"y of batch 0 must have one label for each of 100 rows, got the shape \(99,\)"),
    ([(X, Y), (X[:, :2], Y)], ValueError, r"X of batch 1 must have .* 3 columns, got the shape \(100, 2\)"),
    ([(X[:, 0], Y)], ValueError, "two dimensions"),
    ([(X, Y), X], ValueError, "batch 1, row 0: the label is missing"),
    ([(X, Y), (X, Y.astype(str))], TypeError, "numbers and strings"),
    ([some()[0], (np.full((2, 3), np.inf), [0, 1])], ValueError, "batch 1, row 0: feature 0 is infinite"),
    ([(frame(4), Y[:4]), (frame(4)[["b", "a"]], Y[:4])], ValueError, r"X of batch 1 must have the columns of batch 0"),
    ([(frame(4), Y[:4]), (frame(4)[["a"]], Y[:4])], ValueError, r"X of batch 1 must have the columns of batch 0"),
    ([(frame(4), Y[:4]), (np.array([["u", "v", "w"]] * 4, object), Y[:4])], ValueError,
     "X of batch 1 must have 2 columns, got 3"),
    ([([[1.0, 2.0]], [0]), ([["x", 2.0]], [1])], ValueError,
     r"X of batch 1: column 0 must hold numbers, got 'x' in row 0.*categorical_features"),
])  # fmt: skip
def test_what_is_no_batch_is_named(batches, error, text):
    with pytest.raises(error, match=text):
        survey(Batches(batches))


# --- Categories and gaps ---


@pytest.mark.parametrize("of", [lambda f: f, lambda f: f.to_numpy(), lambda f: f.to_numpy().tolist()],
                         ids=["frames", "arrays", "lists"])  # fmt: skip
def test_batches_can_have_categories_and_gaps(of):
    whole = frame(40)
    source = Batches([(of(whole[k : k + 8]), Y[k : k + 8]) for k in range(0, 40, 8)])
    found = survey(source)
    assert [column.kind for column in source.schema.columns] == ["category", "number"]
    assert found.schema.columns[0].levels == ("level 0", "level 1", "level 2")
    expected = find_schema(whole).read(whole)
    np.testing.assert_array_equal(read_all(source)[0], expected)
    assert found.statistics.missing.sum(1).tolist() == [8.0, 0.0]
    assert source.feature_names == (["a", "b"] if of(whole) is whole else None)


def test_tensors_have_the_categories_that_are_named():
    codes = torch.from_numpy(np.column_stack([np.arange(N) % 4, X[:, 0]]))
    source = Batches(DataLoader(TensorDataset(codes, torch.from_numpy(Y)), 7), categorical_features=[0])
    assert survey(source).schema.columns[0].levels == ("0", "1", "2", "3")
    np.testing.assert_array_equal(read_all(source)[0], codes.numpy())


def test_gaps_in_tensors_are_kept():
    values = X.copy()
    values[5, 1] = np.nan
    source = Batches(DataLoader(TensorDataset(torch.from_numpy(values), torch.from_numpy(Y)), 7))
    np.testing.assert_array_equal(read_all(source)[0], values)
    assert survey(source).statistics.missing.sum() == 1.0
