"""Steps of an epoch: every row once, the same rows on any number of workers, and errors where the data change."""

import numpy as np
import pytest

from cavity.data import Arrays, Batches
from cavity.data.buffer import Buffer, Rows
from cavity.data.labels import Encoded
from cavity.data.shuffle import batches, in_order, steps, taken

N = 1003


@pytest.fixture
def source():
    """A row holds its number."""
    X = np.column_stack([np.arange(float(N)), -np.arange(float(N))])
    return Arrays(X, np.array(["a", "b", "ccc"])[np.arange(N) % 3], lanes=5)


def lane_rows(source):
    return tuple(sum(len(block.rows) for block in source.blocks(lane)) for lane in range(source.lanes))


def epoch(source, size=50, seed=0, number=0, **settings):
    return list(batches(source, lane_rows(source), size, seed, number, **settings))


def order(found):
    """Values of the rows in the order in which they came."""
    return np.concatenate([batch.X[:, 0] for batch in found])


# --- Steps ---


@pytest.mark.parametrize("size", [1, 7, 50, 200, N, 5000])
@pytest.mark.parametrize("buffer_rows", [5, 64, 400, 65_536])
def test_every_row_is_in_one_step(source, size, buffer_rows):
    found = epoch(source, size, buffer_rows=buffer_rows)
    assert sorted(order(found)) == list(range(N))
    assert len(found) == steps(lane_rows(source), size) == -(-N // size)
    assert [batch.step for batch in found] == list(range(len(found)))


def test_steps_take_as_many_rows_of_every_lane(source):
    """As evenly as can be: floor((k + 1) n / steps) − floor(k n / steps)."""
    found, counts = epoch(source, 90), lane_rows(source)
    for k, batch in enumerate(found):
        expected = [(k + 1) * n // len(found) - k * n // len(found) for n in counts]
        assert np.bincount(batch.lane, minlength=5).tolist() == expected
        assert batch.total == sum(expected) == len(batch.row)
    assert taken(counts, len(found), len(found)) == list(counts)


def test_a_batch_holds_the_rows_that_it_says(source):
    stored = [np.concatenate([block.X for block in source.blocks(lane)]) for lane in range(5)]
    for batch in epoch(source):
        for i, (lane, row) in enumerate(zip(batch.lane, batch.row, strict=True)):
            np.testing.assert_array_equal(batch.X[i], stored[lane][row])
        assert batch.y.tolist() == [["a", "b", "ccc"][int(x) % 3] for x in batch.X[:, 0]]


def test_a_batch_says_where_its_rows_are(source):
    batch = epoch(source)[3]
    assert [batch.where(i) for i in (0, 20)] == [f"X, row {int(batch.X[i, 0])}" for i in (0, 20)]


def test_no_rows_make_no_step():
    assert steps([0, 0], 10) == 0
    assert list(batches(Arrays(np.zeros((0, 2)), np.zeros(0)), [0], 10, 0, 0)) == []


# --- Order ---


def test_order_depends_on_seed_and_epoch_alone(source):
    first = order(epoch(source))
    np.testing.assert_array_equal(order(epoch(source)), first)
    for other in (epoch(source, seed=1), epoch(source, number=1)):
        assert (order(other) != first).mean() > 0.9


@pytest.mark.parametrize("buffer_rows", [100, 65_536])
def test_rows_are_well_mixed(buffer_rows):
    """Neighbours come apart, and no place keeps its rows; with a small buffer within its reach."""
    x = np.arange(4000)
    source = Arrays(x[:, None].astype(float), x, lanes=2)
    found = order(epoch(source, 4000, buffer_rows=buffer_rows))
    assert (np.abs(np.diff(found)) == 1).mean() < 0.05
    if buffer_rows > 4000:
        assert abs(np.corrcoef(found[:2000], np.arange(2000))[0, 1]) < 0.1


def test_a_full_buffer_gives_every_order_alike():
    """Where each of 4 rows comes, in 800 epochs of a lane that fits: to about four standard errors."""
    source = Arrays(np.arange(4.0)[:, None], np.zeros(4))
    orders = np.array([order(epoch(source, 4, number=k)) for k in range(800)]).astype(int)
    counts = np.array([np.bincount(orders[:, place], minlength=4) for place in range(4)])
    assert np.abs(counts - 200).max() < 4 * np.sqrt(200 * 0.75)


def test_a_buffer_lets_out_what_came_in_once():
    buffer, seen = Buffer(20, np.random.default_rng(0)), []
    for start in range(0, 100, 10):
        row = np.arange(start, start + 10)
        seen += [out.row for out in buffer.push(Rows(row[:, None].astype(float), row, row))]
        assert sum(map(len, seen)) == max(0, start - 10)
    seen += [out.row for out in buffer.rest()]
    assert sorted(np.concatenate(seen)) == list(range(100))


def test_long_labels_fit_into_a_buffer_of_short_ones(monkeypatch):
    monkeypatch.setattr("cavity.data.iterables.FEWEST_ROWS", 1)
    labels = [np.array(["a", "b"]), np.array(["longer", "b"]), np.array(["a", "longest"], dtype=object)]
    source = Batches([(np.zeros((2, 1)), y) for y in labels])
    for rows in (2, 4, 100):
        found = epoch(source, 2, buffer_rows=rows)
        assert sorted(label for batch in found for label in batch.y) == ["a", "a", "b", "b", "longer", "longest"]


# --- Workers, and going on ---


@pytest.mark.parametrize("workers", [2, 3, 5, 7])
def test_ranks_together_see_what_one_sees(source, workers):
    alone = epoch(source, 33)
    apart = [epoch(source, 33, mine=range(rank, 5, workers)) for rank in range(workers)]
    for step, batch in enumerate(alone):
        parts = [found[step] for found in apart]
        assert {part.total for part in parts} == {batch.total}
        for lane in range(5):
            mine = parts[lane % workers]
            for name in ("X", "y", "row"):
                expected = getattr(batch, name)[batch.lane == lane]
                np.testing.assert_array_equal(getattr(mine, name)[mine.lane == lane], expected)
        assert sum(len(part.row) for part in parts) == len(batch.row)


def test_a_rank_without_rows_has_steps_all_the_same(source):
    for batch in epoch(source, 100, mine=[]):
        assert (batch.X.shape, len(batch.y), len(batch.row)) == ((0, 2), 0, 0)
        assert batch.total >= 90


@pytest.mark.parametrize("first", [0, 1, 10, 20, 21])
def test_an_epoch_goes_on_where_it_was(source, first):
    whole = epoch(source)
    assert len(whole) == 21
    rest = epoch(source, first=first)
    assert [batch.step for batch in rest] == list(range(first, 21))
    for batch, expected in zip(rest, whole[first:], strict=True):
        np.testing.assert_array_equal(batch.X, expected.X)
        assert batch.total == expected.total


@pytest.mark.parametrize("first", [-1, 22])
def test_a_step_that_is_not_there_is_named(source, first):
    with pytest.raises(ValueError, match=f"first={first} cannot be used; the epoch has 21 steps"):
        epoch(source, first=first)


# --- Rows left out ---


def test_rows_to_skip_are_in_no_step(source):
    rng = np.random.default_rng(0)
    skip = {lane: np.sort(rng.choice(n, 40, replace=False)) for lane, n in enumerate(lane_rows(source)) if lane != 2}
    found = epoch(source, skip=skip)
    seen = {(lane, row) for batch in found for lane, row in zip(batch.lane, batch.row, strict=True)}
    everything = {(lane, row) for lane, n in enumerate(lane_rows(source)) for row in range(n)}
    assert seen == everything - {(lane, row) for lane, rows in skip.items() for row in rows}
    assert len(found) == steps(lane_rows(source), 50, skip) == -(-(N - 160) // 50)
    assert sum(batch.total for batch in found) == N - 160
    part = epoch(source, skip=skip, mine=[1, 3])
    np.testing.assert_array_equal(part[2].X, found[2].X[np.isin(found[2].lane, [1, 3])])


def test_a_lane_may_be_skipped_altogether(source):
    found = epoch(source, skip={1: np.arange(lane_rows(source)[1])})
    assert 1 not in np.concatenate([batch.lane for batch in found])


# --- Data that change ---


@pytest.mark.parametrize(("counted", "text"), [(99, "more than 99"), (101, "100, not 101,"), (30, "more than 30")])
@pytest.mark.parametrize("buffer_rows", [10, 1000])
def test_another_number_of_rows_than_surveyed_is_an_error(counted, text, buffer_rows):
    source = Arrays(np.zeros((100, 1)), np.zeros(100))
    with pytest.raises(ValueError, match=f"lane 0 of the source has {text} rows to train on: the data have changed"):
        list(batches(source, [counted], 10, 0, 0, buffer_rows=buffer_rows))


def test_a_label_that_is_new_is_named_with_its_row(source):
    with pytest.raises(ValueError, match=r"X, row 2: the label 'ccc' is not among the classes \['a', 'b'\]"):
        epoch(Encoded(source, np.array(["a", "b"])))


# --- As stored ---


@pytest.mark.parametrize("size", [1, 30, 5000])
def test_in_order_gives_every_row_as_stored(source, size):
    found = list(in_order(source, size=size))
    assert order(found).tolist() == list(range(N))
    assert max(len(batch.row) for batch in found) <= size
    assert all(batch.total == len(batch.row) for batch in found)
    last = found[-1]
    assert last.where(len(last.row) - 1) == f"X, row {N - 1}"


def test_in_order_reads_the_lanes_asked_for(source):
    found = list(in_order(source, [3, 1], 100))
    assert list(dict.fromkeys(np.concatenate([batch.lane for batch in found]).tolist())) == [3, 1]
    assert next(iter(in_order(Arrays(np.zeros((2, 1)))))).y is None
