"""Threads and memory during a fit."""

import ctypes
import sys

import pytest
import torch

from cavity.runtime import threads as module
from cavity.runtime.threads import keep_freed_memory, limit_threads

# --- Threads and memory ---


@pytest.fixture
def threads():
    """More threads than one, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.mark.parametrize(("work", "expected"), [(module.WORK_PER_THREAD - 1, 1), (module.WORK_PER_THREAD, 2)])
def test_small_steps_take_one_thread_and_leave_the_others_for_later(threads, work, expected):
    with limit_threads(work):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == threads
    with pytest.raises(KeyError), limit_threads(work):
        raise KeyError
    assert torch.get_num_threads() == threads


class Libc:
    """A C library that writes down what it is asked."""

    def __init__(self, *missing):
        self.asked, self.missing = [], missing

    def __getattr__(self, name):
        if name in self.missing:
            raise AttributeError(name)
        return lambda *args: self.asked.append((name, *args)) or 1


def blocks():
    """Tensors around the size at which memory comes straight from the system, made and freed twice."""
    total = 0.0
    for _ in range(2):
        made = [torch.ones(2**k, dtype=torch.float64) for k in (10, 16, 20, 22, 23)]
        total += sum(float(x.sum()) for x in made)
    return total


def test_memory_that_is_kept_can_be_used_and_given_back():
    """On this platform, one within another, and after an error."""
    expected = blocks()
    for _ in range(2):
        with keep_freed_memory(), keep_freed_memory():
            assert blocks() == expected
        with pytest.raises(KeyError), keep_freed_memory():
            raise KeyError
        assert blocks() == expected


def test_memory_is_kept_within_and_trimmed_behind(monkeypatch):
    """The limit for trimming is back where it can trim; after an error too."""
    libc = Libc()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    with keep_freed_memory():
        within = list(libc.asked)
    kept = ("mallopt", module.M_TRIM_THRESHOLD, module.KEPT_BYTES)
    assert set(within) == {kept, ("mallopt", module.M_MMAP_THRESHOLD, module.LARGEST_HEAP_BLOCK)}
    (_, option, threshold), last = libc.asked[len(within) :]
    assert option == module.M_TRIM_THRESHOLD
    assert threshold < module.KEPT_BYTES
    assert last == ("malloc_trim", 0)
    asked = list(libc.asked)
    with pytest.raises(KeyError), keep_freed_memory():
        raise KeyError
    assert libc.asked == 2 * asked


@pytest.mark.parametrize(("platform", "missing"), [("linux", ["mallopt"]), ("darwin", []), ("win32", [])])
def test_elsewhere_memory_is_left_to_the_system(monkeypatch, platform, missing):
    libc = Libc(*missing)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    with keep_freed_memory():
        pass
    with pytest.raises(KeyError), keep_freed_memory():
        raise KeyError
    assert libc.asked == []
