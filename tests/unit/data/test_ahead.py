"""Reading ahead in a thread: the same items, the same errors, and no thread left."""

import itertools
import threading
import time

import pytest

from cavity.data.ahead import ahead


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "cavity-ahead"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not threads()


@pytest.mark.parametrize("depth", [1, 4, 100])
def test_items_come_in_order(depth):
    assert list(ahead(range(50), depth)) == list(range(50))
    assert list(ahead([], depth)) == []


def test_the_work_is_done_elsewhere():
    (worker,) = ahead(threading.current_thread() for _ in range(1))
    assert worker is not threading.current_thread()


def test_it_stays_no_more_than_so_many_ahead():
    made = []

    def items():
        for i in range(100):
            made.append(i)
            yield i

    reader = ahead(items(), 3)
    next(reader)
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert len(made) == 5  # one read, three waiting, one at the door
    reader.close()


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise KeyError("broken")

    reader = ahead(items())
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

    reader = ahead(items(), depth)
    assert list(itertools.islice(reader, taken)) == list(range(taken))
    reader.close()
    assert closed.is_set() == (taken > 0)  # where nothing was asked for, nothing was begun
    assert not threads()


def test_an_error_of_the_reader_ends_the_thread():
    def read():
        for i in ahead(itertools.count()):
            if i == 3:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        read()


def test_nothing_begins_before_the_first_item_is_asked_for():
    ahead(itertools.count())
    assert not threads()
