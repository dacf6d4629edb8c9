"""Steps of an epoch: every row once, the same rows on any number of workers, errors where the data change; prefetch."""

import itertools
import threading
import time

import numpy as np
import pytest

from cavity.data import Arrays
from cavity.data.shuffle import LaneRows, ShuffleBuffer, Skip, batches, in_order, n_steps, prefetch, taken
from cavity.data.source import row_hashes

N = 1003
CLASSES = np.array(["a", "b", "ccc"])


@pytest.fixture
def source():
    """A row holds its number."""
    X = np.column_stack([np.arange(float(N)), -np.arange(float(N))])
    return Arrays(X, CLASSES[np.arange(N) % 3], lanes=5)


def lane_rows(source):
    return tuple(sum(len(block.rows) for block in source.blocks(lane)) for lane in range(source.lanes))


def epoch(source, size=50, seed=0, number=0, classes=CLASSES, **settings):
    return list(batches(source, classes, lane_rows(source), size, seed, number, **settings))


def order(found):
    """Values of the rows in the order in which they came."""
    return np.concatenate([batch.X[:, 0] for batch in found])


# --- Steps ---


@pytest.mark.parametrize("size", [1, 7, 50, 200, N, 5000])
@pytest.mark.parametrize("buffer_rows", [5, 64, 400, 65_536])
def test_every_row_is_in_one_step(source, size, buffer_rows):
    found = epoch(source, size, buffer_rows=buffer_rows)
    assert sorted(order(found)) == list(range(N))
    assert len(found) == n_steps(lane_rows(source), size) == -(-N // size)


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
        assert batch.y.tolist() == [int(x) % 3 for x in batch.X[:, 0]]


def test_no_rows_make_no_step():
    assert n_steps([0, 0], 10) == 0
    assert list(batches(Arrays(np.zeros((0, 2)), np.zeros(0)), np.zeros(1), [0], 10, 0, 0)) == []


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
    found = order(epoch(source, 4000, classes=x, buffer_rows=buffer_rows))
    assert (np.abs(np.diff(found)) == 1).mean() < 0.05
    if buffer_rows > 4000:
        assert abs(np.corrcoef(found[:2000], np.arange(2000))[0, 1]) < 0.1


def test_a_full_buffer_gives_every_order_alike():
    """Where each of 4 rows comes, in 800 epochs of a lane that fits: to about four standard errors."""
    source = Arrays(np.arange(4.0)[:, None], np.zeros(4))
    orders = np.array([order(epoch(source, 4, number=k, classes=np.zeros(1))) for k in range(800)]).astype(int)
    counts = np.array([np.bincount(orders[:, place], minlength=4) for place in range(4)])
    assert np.abs(counts - 200).max() < 4 * np.sqrt(200 * 0.75)


def test_a_buffer_lets_out_what_came_in_once():
    buffer, seen = ShuffleBuffer(20, 1, np.random.default_rng(0)), []
    for start in range(0, 100, 10):
        row = np.arange(start, start + 10)
        seen += [out.row for out in buffer.push(LaneRows(row[:, None].astype(float), row, row))]
        assert sum(map(len, seen)) == max(0, start - 10)
    seen += [out.row for out in buffer.rest()]
    assert sorted(np.concatenate(seen)) == list(range(100))


# --- Workers, and going on ---


@pytest.mark.parametrize("workers", [2, 3, 5, 7])
def test_workers_together_see_what_one_sees(source, workers):
    alone = epoch(source, 33)
    apart = [epoch(source, 33, lanes=range(rank, 5, workers)) for rank in range(workers)]
    for step, batch in enumerate(alone):
        parts = [found[step] for found in apart]
        assert {part.total for part in parts} == {batch.total}
        for lane in range(5):
            mine = parts[lane % workers]
            for name in ("X", "y", "row"):
                expected = getattr(batch, name)[batch.lane == lane]
                np.testing.assert_array_equal(getattr(mine, name)[mine.lane == lane], expected)
        assert sum(len(part.row) for part in parts) == len(batch.row)


def test_a_worker_without_rows_has_steps_all_the_same(source):
    for batch in epoch(source, 100, lanes=[]):
        assert (batch.X.shape, len(batch.y), len(batch.row)) == ((0, 2), 0, 0)
        assert batch.total >= 90


@pytest.mark.parametrize("first", [0, 1, 10, 20, 21])
def test_an_epoch_goes_on_where_it_was(source, first):
    whole = epoch(source)
    assert len(whole) == 21
    rest = epoch(source, first=first)
    for batch, expected in zip(rest, whole[first:], strict=True):
        np.testing.assert_array_equal(batch.X, expected.X)
        assert batch.total == expected.total


@pytest.mark.parametrize("first", [-1, 22])
def test_a_step_that_is_not_there_is_named(source, first):
    with pytest.raises(ValueError, match=f"must be between 0 and 21, the steps of an epoch, got {first}"):
        epoch(source, first=first)


# --- Rows left out ---


def skipping(source, rows):
    """Leave out these rows of each lane, all of which differ from the others."""
    X = [block.X[np.isin(block.rows, rows.get(lane, []))] for lane in range(5) for block in source.blocks(lane)]
    counts = np.array([len(rows.get(lane, [])) for lane in range(5)])
    return Skip(np.sort(row_hashes(np.concatenate(X))), counts, np.zeros(0, dtype=np.int64))


def test_rows_to_skip_are_in_no_step(source):
    rng = np.random.default_rng(0)
    left_out = {lane: rng.choice(n, 40, replace=False) for lane, n in enumerate(lane_rows(source)) if lane != 2}
    skip = skipping(source, left_out)
    found = epoch(source, skip=skip)
    seen = {(lane, row) for batch in found for lane, row in zip(batch.lane, batch.row, strict=True)}
    everything = {(lane, row) for lane, n in enumerate(lane_rows(source)) for row in range(n)}
    assert seen == everything - {(lane, row) for lane, rows in left_out.items() for row in rows}
    assert len(found) == n_steps(lane_rows(source), 50, skip) == -(-(N - 160) // 50)
    assert sum(batch.total for batch in found) == N - 160
    part = epoch(source, skip=skip, lanes=[1, 3])
    np.testing.assert_array_equal(part[2].X, found[2].X[np.isin(found[2].lane, [1, 3])])


def test_a_lane_may_be_skipped_altogether(source):
    found = epoch(source, skip=skipping(source, {1: np.arange(lane_rows(source)[1])}))
    assert 1 not in np.concatenate([batch.lane for batch in found])


# --- Data that change ---


@pytest.mark.parametrize(("counted", "text"), [(99, "more than 99"), (101, "100"), (30, "more than 30")])
@pytest.mark.parametrize("buffer_rows", [10, 1000])
def test_another_number_of_rows_than_surveyed_is_an_error(counted, text, buffer_rows):
    source = Arrays(np.zeros((100, 1)), np.zeros(100))
    with pytest.raises(
        ValueError,
        match=f"Lane 0 of the source must have {counted} rows to train on, got {text}: the data have changed",
    ):
        list(batches(source, np.zeros(1), [counted], 10, 0, 0, buffer_rows=buffer_rows))


def test_a_label_that_is_new_is_named_with_its_row(source):
    with pytest.raises(ValueError, match=r"X, row 2: label 'ccc' is not one of the classes 'a', 'b'"):
        epoch(source, classes=CLASSES[:2])


# --- As stored ---


@pytest.mark.parametrize("size", [1, 30, 5000])
def test_in_order_gives_every_row_as_stored(source, size):
    found = list(in_order(source, CLASSES, size))
    assert order(found).tolist() == list(range(N))
    assert max(len(batch.row) for batch in found) <= size
    assert all(batch.total == len(batch.row) for batch in found)


def test_in_order_reads_the_lanes_asked_for(source):
    found = list(in_order(source, CLASSES, 100, lanes=[3, 1]))
    assert list(dict.fromkeys(np.concatenate([batch.lane for batch in found]).tolist())) == [3, 1]
    with pytest.raises(ValueError, match="no labels"):
        next(in_order(Arrays(np.zeros((2, 1))), CLASSES))


# --- Prefetch ---


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("cavity-prefetch")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not threads()


@pytest.mark.parametrize("depth", [1, 4, 100])
def test_items_come_in_order(depth):
    assert list(prefetch(range(50), depth)) == list(range(50))
    assert list(prefetch([], depth)) == []


def test_the_work_is_done_elsewhere():
    (worker,) = prefetch(threading.current_thread() for _ in range(1))
    assert worker is not threading.current_thread()


def test_no_more_than_depth_items_are_waiting():
    made = []

    def items():
        for i in range(100):
            made.append(i)
            yield i

    reader = prefetch(items(), 3)
    next(reader)
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(made) == 4  # one read, three waiting
    reader.close()


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise KeyError("broken")

    reader = prefetch(items())
    assert next(reader) == 1
    with pytest.raises(KeyError, match="broken"):
        next(reader)


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("taken", [0, 1, 10])
def test_a_reader_that_stops_early_ends_the_thread_and_closes_the_items(depth, taken):
    closed = threading.Event()

    def items():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    reader = prefetch(items(), depth)
    assert list(itertools.islice(reader, taken)) == list(range(taken))
    reader.close()
    assert closed.is_set() == (taken > 0)  # where nothing was asked for, nothing was begun
    assert not threads()


def test_an_error_of_the_reader_ends_the_thread():
    def read():
        for i in prefetch(itertools.count()):
            if i == 3:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        read()


def test_nothing_begins_before_the_first_item_is_asked_for():
    prefetch(itertools.count())
    assert not threads()
