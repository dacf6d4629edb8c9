"""Ctrl-C once and twice, and what it does afterwards."""

import signal
import threading

import pytest

from cavity.cli.interrupt import stopping


def test_the_first_asks_and_the_second_leaves(capfd):
    with stopping() as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set()
        assert "stopping after this step; again to leave at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_everything_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with stopping():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    with pytest.raises(KeyError), stopping():
        raise KeyError
    assert signal.getsignal(signal.SIGINT) == before


def test_another_thread_just_gets_an_event():
    found = []

    def work():
        with stopping() as asked:
            found.append(asked.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
