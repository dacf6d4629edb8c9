"""What counts as a source."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader, TensorDataset

from cavity.data import Arrays, Batches, Source
from cavity.data.source import as_source, is_source

X = np.random.default_rng(0).standard_normal((100, 3))
Y = np.random.default_rng(1).integers(0, 4, 100)


def some():
    return [(X[:50], Y[:50]), (X[50:], Y[50:])]


def loader():
    return DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=7)


class Again:
    """Can be read again and again."""

    def __iter__(self):
        return iter(some())


@pytest.mark.parametrize("obj", [
    Arrays(X, Y), Batches(some()), loader(), some(), tuple(some()), Again(), Again().__iter__,
    [[torch.zeros(2, 2), torch.zeros(2)]],
], ids=lambda obj: type(obj).__name__)  # fmt: skip
def test_sources_are_known_and_used(obj):
    assert is_source(obj)
    source = as_source(obj)
    assert isinstance(source, Source)
    assert source is obj or isinstance(source, Batches)


@pytest.mark.parametrize("obj", [
    X, X.tolist(), X[0].tolist(), pd.DataFrame(X), pl.DataFrame(X), pd.Series(Y), sparse.csr_matrix(X), sparse.eye(3),
    torch.from_numpy(X), [], [X[0], X[1]], [[1, 2], [3, 4]], [([1.0, 2.0], 0)], None, 3, "path", {"a": 1},
    np.memmap, [X[:2]], [["a", "b"]],
], ids=lambda obj: type(obj).__name__)  # fmt: skip
def test_rows_themselves_are_no_source(obj):
    assert not is_source(obj)


def test_an_iterator_is_taken_for_a_source_so_that_the_remedy_is_told():
    assert is_source(iter(some()))
    with pytest.raises(TypeError, match="only once"):
        as_source(iter(some()))
