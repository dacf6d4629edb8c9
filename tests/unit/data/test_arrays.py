"""Rows in memory: batches that cover every row once, and the sums that methods start from."""

import numpy as np
import pytest
import torch

from cavity.data import ArrayData
from tests.problems import shuffled

N, C = 23, 4


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X, y = torch.from_numpy(rng.standard_normal((N, 2))), torch.from_numpy(rng.integers(0, 3, N))  # no row of class 3
    return ArrayData(X, y, torch.from_numpy(rng.uniform(0.5, 2.0, N)), C)


def batches(data, size, order):
    if order == "shuffled":
        return shuffled(data, size, torch.Generator().manual_seed(0))
    return list(data.in_order(size))


@pytest.mark.parametrize("order", ["shuffled", "in order"])
@pytest.mark.parametrize("size", [1, 5, 7, 22, 23, 100])
def test_batches_cover_every_row_once_in_nearly_equal_parts(data, size, order):
    parts = batches(data, size, order)
    index = torch.cat([batch.positions for batch in parts])
    assert sorted(index.tolist()) == list(range(N))
    sizes = [len(batch.positions) for batch in parts]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-N // size)  # and no more parts than that takes


@pytest.mark.parametrize("order", ["shuffled", "in order"])
def test_a_batch_holds_its_rows(data, order):
    for batch in batches(data, 5, order):
        assert torch.equal(batch.X, data.X[batch.positions])
        assert torch.equal(batch.weight, data.weight[batch.positions])
        assert torch.equal(batch.own.int().argmax(0), data.y[batch.positions])
        assert batch.own.shape == (C, len(batch.positions))
        assert (batch.own.sum(0) == 1).all()
        assert batch.scale == N / len(batch.positions)
        assert not batch.is_full


def test_everything_at_once(data):
    for batch in (data.full, *data.in_order(None)):
        assert batch.is_full
        assert batch.scale == 1
        assert torch.equal(batch.X, data.X)
        assert torch.equal(batch.positions, torch.arange(N))


def test_scaled_sums_over_batches_are_unbiased(data):
    """Σ_b (1/n_batches) ρ_b Σ_{i∈b} x_i = Σ_i x_i where all parts are equal: ρ of eq. (12)."""
    parts = batches(data, 1, "shuffled")
    total = sum(batch.scale * batch.X.sum(0) for batch in parts) / len(parts)
    torch.testing.assert_close(total, data.X.sum(0))


def test_shuffling_follows_seed_and_epoch(data):
    first, again, other, later = (
        torch.cat([draw.positions for draw in data.draws(5, *which)]) for which in ((0, 0), (0, 0), (1, 0), (0, 1))
    )
    assert not torch.equal(first, later)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_own_weight_against_loops(data):
    expected = [sum(float(w) for w, y in zip(data.weight, data.y, strict=True) if y == k) for k in range(C)]
    np.testing.assert_allclose(data.own_weight, expected, rtol=1e-14)
    assert expected[3] == 0
