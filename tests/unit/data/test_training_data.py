"""The rows that training sees: every row once in an epoch, in memory or streamed, on any number of workers."""

import numpy as np
import pytest
import torch

from cavity.data import Arrays, survey
from cavity.data.surveys import find_copies
from cavity.data.training_data import ArrayData, StreamData
from cavity.fitting.encoding import Standard
from cavity.runtime.distributed import Workers
from tests.problems import shuffled

N, C = 23, 4
N_STREAMED, LANES = 103, 4
CPU = torch.device("cpu")


# --- Rows in memory ---


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


# --- Rows of a source ---


def ranked(rank, size):
    made = Workers()
    made.rank, made.size = rank, size
    return made


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_STREAMED, 3)) * [1.0, 10.0, 0.1] + 5.0
    return X, np.array(["a", "b", "c"])[rng.integers(0, 3, N_STREAMED)]


def streamed(rows, held=0, workers=None):
    source = Arrays(*rows, lanes=LANES)
    found = survey(source, sample_rows=40, seed=1)
    skip = find_copies(source, found, held, held)
    weight = np.array([1.0, 2.0, 0.5])
    scaler = Standard(found.mean, found.sd)
    return StreamData(source, found, scaler.transform, weight, skip, CPU, torch.float64, workers or Workers()), found


def ids(data, batches):
    """Which rows they are, whoever reads them."""
    return np.concatenate([data.row_ids[batch.positions].numpy() for batch in batches])


@pytest.mark.parametrize("held", [0, 7])
@pytest.mark.parametrize("size", [1, 10, 25, 200])
def test_an_epoch_has_every_row_that_is_learned_from_once(rows, size, held):
    data, found = streamed(rows, held)
    batches = list(data.draws(size, seed=3, epoch=0))
    assert len(batches) == data.steps(size) == -(-(N_STREAMED - held) // size)
    seen = ids(data, batches)
    assert len(seen) == len(set(seen)) == N_STREAMED - held
    first = np.cumsum([0, *found.lane_rows])
    left_out = first[found.sample.lane[:held]] + found.sample.row[:held]
    assert not set(left_out) & set(seen)


def test_a_batch_holds_the_rows_it_names_scaled_and_weighed(rows):
    data, found = streamed(rows)
    X, y = rows
    for batch in data.draws(20, seed=3, epoch=1):
        places = data.row_ids[batch.positions].numpy()  # lanes one after the other are the rows as stored
        np.testing.assert_allclose(batch.X, (X[places] - found.mean) / found.sd, rtol=1e-12)
        labels = batch.own.int().argmax(0).numpy()
        assert (found.classes[labels] == y[places]).all()
        assert (batch.weight.numpy() == np.array([1.0, 2.0, 0.5])[labels]).all()


def test_scaled_batches_count_all_rows(rows):
    data, _ = streamed(rows, held=3)
    for batch in data.draws(20, seed=0, epoch=0):
        assert batch.scale * len(batch.positions) == pytest.approx(N_STREAMED - 3)


def test_own_weight_is_that_of_the_rows_learned_from(rows):
    data, found = streamed(rows, held=9)
    total = sum((batch.own * batch.weight).sum(1) for batch in data.in_order(30))
    torch.testing.assert_close(data.own_weight, total)
    whole, _ = streamed(rows)
    assert whole.own_weight.sum() > total.sum()
    assert len(found.sample.y) == 40


def test_in_order_counts_the_rows_of_this_rank(rows):
    for rank in range(3):
        data, _ = streamed(rows, held=9, workers=ranked(rank, 3))
        shares = [1.0 / batch.scale for batch in data.in_order(10)]
        assert sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_together_see_what_one_process_sees(rows, size):
    alone, _ = streamed(rows, held=5)
    shared = [streamed(rows, held=5, workers=ranked(rank, size))[0] for rank in range(size)]
    assert sum(map(len, shared)) == len(alone) == N_STREAMED
    for data in shared:
        torch.testing.assert_close(data.own_weight, alone.own_weight)
    steps = zip(*(data.draws(20, seed=3, epoch=2) for data in (alone, *shared)), strict=True)
    for whole, *parts in steps:
        together = np.concatenate([ids(data, [part]) for data, part in zip(shared, parts, strict=True)])
        assert sorted(together) == sorted(ids(alone, [whole]))
        assert {part.scale for part in parts} == {whole.scale}


def test_an_epoch_can_begin_in_its_middle(rows):
    data, _ = streamed(rows)
    whole = list(data.draws(20, seed=3, epoch=2))
    rest = list(data.draws(20, seed=3, epoch=2, first=2))
    for one, other in zip(whole[2:], rest, strict=True):
        assert torch.equal(one.positions, other.positions)
        assert torch.equal(one.X, other.X)


def test_epochs_and_seeds_have_orders_of_their_own(rows):
    data, _ = streamed(rows)
    orders = [ids(data, data.draws(20, seed, epoch)).tolist() for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != orders[3]
