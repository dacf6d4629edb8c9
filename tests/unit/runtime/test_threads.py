"""Threads and memory during a fit."""

import ctypes
import os
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.runtime import threads as module
from cavity.runtime.threads import keep_freed_memory, limit_threads, one_blas_thread, spin_when_idle

# --- Threads and memory ---


@pytest.fixture
def threads():
    """More threads than one, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def granted(monkeypatch):
    """Two processors, whatever the machine."""
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    monkeypatch.setattr(module, "_idle_seconds", dict)  # and none of them known to be busy


@pytest.mark.parametrize(("work", "expected"), [(module.WORK_PER_THREAD - 1, 1), (module.WORK_PER_THREAD, 2)])
def test_small_steps_take_one_thread_and_leave_the_others_for_later(threads, work, expected):
    with limit_threads(work):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == threads
    with pytest.raises(KeyError), limit_threads(work):
        raise KeyError
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("idle", "expected"), [({"cpu0": 0.0, "cpu3": 0.0}, 1), ({"cpu0": 0.0, "cpu3": 0.09}, 2), ({}, 2)]
)
def test_where_all_processors_are_busy_a_fit_takes_one_thread(threads, monkeypatch, idle, expected):
    """Several threads would wait for each other most of the time."""
    looks = iter([dict.fromkeys(idle, 5.0), {name: 5.0 + seconds for name, seconds in idle.items()}])
    monkeypatch.setattr(module, "_idle_seconds", lambda: next(looks))
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    with limit_threads(module.WORK_PER_THREAD):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == threads


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no /proc/stat")
def test_the_time_that_processors_are_idle_is_read(monkeypatch):
    monkeypatch.undo()
    found = module._idle_seconds()
    assert set(found) == {f"cpu{i}" for i in os.sched_getaffinity(0)}
    assert min(found.values()) >= 0.0


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


# --- Two fits in two threads ---


class Meeting:
    """Lets a thread enter a context and leave it when it is asked."""

    def __init__(self, context):
        self.entered, self.leave, self.threads = threading.Event(), threading.Event(), []
        self.thread = threading.Thread(target=self.attend, args=(context,))
        self.thread.start()
        assert self.entered.wait(60)

    def attend(self, context):
        before = torch.get_num_threads()
        with context:
            self.threads.append(torch.get_num_threads())
            self.entered.set()
            self.leave.wait(60)
            self.threads.append(torch.get_num_threads())
        self.threads.append((before, torch.get_num_threads()))

    def end(self):
        self.leave.set()
        self.thread.join()


def of_a_new_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


SMALL, LARGE = 1, module.WORK_PER_THREAD


@pytest.mark.parametrize(("first", "second"), [(SMALL, LARGE), (LARGE, SMALL), (SMALL, SMALL), (LARGE, LARGE)])
@pytest.mark.parametrize("leaves_first", [0, 1])
def test_threads_of_two_fits_are_restored_by_the_last(threads, monkeypatch, first, second, leaves_first):
    fits = [Meeting(limit_threads(first)), Meeting(limit_threads(second))]
    wanted = [1 if work == SMALL else threads for work in (first, second)]
    assert of_a_new_thread() == max(wanted)
    fits[leaves_first].end()
    assert of_a_new_thread() == wanted[1 - leaves_first]  # of the one that still runs
    fits[1 - leaves_first].end()
    assert of_a_new_thread() == torch.get_num_threads() == threads
    for fit, count in zip(fits, wanted, strict=True):
        assert fit.threads[:2] == [count, count]  # whatever the other does
        assert fit.threads[2][1] == threads


def test_threads_never_exceed_the_processors_of_a_container(threads, monkeypatch):
    torch.set_num_threads(4)
    monkeypatch.setattr(module, "cpu_count", lambda: 3)
    with limit_threads(LARGE):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 4


def test_memory_is_trimmed_by_the_last_of_two_fits(monkeypatch):
    libc = Libc()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    fits = [Meeting(keep_freed_memory()), Meeting(keep_freed_memory())]
    fits[0].end()
    assert ("malloc_trim", 0) not in libc.asked
    fits[1].end()
    assert libc.asked.count(("malloc_trim", 0)) == 1


def test_threads_of_blas_are_restored_by_the_last_of_two_fits(monkeypatch):
    """And by the thread that changed them: threadpoolctl does not let another."""
    seen = []

    @contextmanager
    def limits(count, user_api):
        seen.append(("limited", count, user_api, threading.get_ident()))
        yield
        seen.append(("restored", threading.get_ident()))

    monkeypatch.setattr(module, "threadpool_limits", limits)
    fits = [Meeting(one_blas_thread()), Meeting(one_blas_thread())]
    fits[0].end()
    ((*asked, holder),) = seen
    assert asked == ["limited", 1, "blas"]
    fits[1].end()
    assert seen[1:] == [("restored", holder)]


# --- Spinning ---


class Machine(threading.Event):
    """A machine whose threads wait for a processor as `busy` says, trial by trial; it writes down what happens."""

    def __init__(self, monkeypatch, busy):
        super().__init__()
        self.busy, self.now, self.waited, self.seen, self.spins = list(busy), 0, 0, [], True
        monkeypatch.setattr(module, "_waited_ns", lambda: {"1": self.waited, "2": 0})
        monkeypatch.setattr(module.time, "monotonic_ns", lambda: self.now)
        monkeypatch.setattr(module, "_without_spinning", self.without_spinning)

    @contextmanager
    def without_spinning(self):
        self.spins = False
        yield
        self.spins = True

    def is_set(self):
        return not self.busy

    def wait(self, seconds=None):
        self.seen.append((self.spins, seconds))
        self.now += int(1e9 * seconds)
        if self.spins:
            self.waited += int(1e9 * seconds * self.busy.pop(0))
        return not self.busy


TRIAL = (True, module.TRIAL_SECONDS)


def test_threads_spin_as_long_as_the_machine_is_idle(monkeypatch):
    machine = Machine(monkeypatch, [0.0, 0.05, 0.0, 0.0])
    module._adapt_spinning(machine)
    assert machine.seen == [TRIAL] * 4


def test_threads_do_not_spin_on_a_busy_machine_but_for_short_and_rare_trials(monkeypatch):
    machine = Machine(monkeypatch, [0.5] * 6 + [0.0, 0.5, 0.0])
    module._adapt_spinning(machine)
    sleeps = [(False, seconds) for seconds in (1.0, 2.0, 4.0, 8.0, 8.0, 8.0)]
    expected = [step for sleep in sleeps for step in (TRIAL, sleep)]
    assert machine.seen == [*expected, TRIAL, TRIAL, (False, 1.0), TRIAL]


def test_threads_do_not_spin_where_waiting_is_unknown(monkeypatch):
    machine = Machine(monkeypatch, [0.0, 0.0])
    monkeypatch.setattr(module, "_waited_ns", dict)
    module._adapt_spinning(machine)
    assert machine.seen == [TRIAL, (False, 1.0), TRIAL]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_time_that_threads_wait_for_a_processor_is_read():
    found = module._waited_ns()
    assert str(threading.get_native_id()) in found
    assert min(found.values()) >= 0


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "cavity-spin"]


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU OpenMP")
def test_one_watch_serves_all_fits_and_ends_with_the_last(threads, monkeypatch):
    monkeypatch.setattr(module, "_waited_ns", dict)  # so that pools are held
    monkeypatch.setattr(module, "TRIAL_SECONDS", 0.0)
    before = threading.active_count()
    fits = [Meeting(limit_threads(LARGE)), Meeting(limit_threads(LARGE))]
    assert len(watchers()) == 1
    fits[0].end()
    assert len(watchers()) == 1
    fits[1].end()
    assert threading.active_count() == before


def test_one_thread_needs_no_watch(threads):
    with limit_threads(SMALL), spin_when_idle():
        assert not watchers()


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU OpenMP")
def test_a_fit_has_the_same_bits_whether_threads_spin_or_not(threads, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2100, 4)), rng.integers(0, 10, 2100)

    def fitted():
        model = GPClassifier("sep", n_inducing=60, batch_size=400, max_epochs=2, calibrate=False, random_state=0)
        return model.fit(X, y).posterior_.mean

    expected, held = fitted(), []
    hold = module._without_spinning
    monkeypatch.setattr(module, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(module, "_waited_ns", dict)
    monkeypatch.setattr(module, "_without_spinning", lambda: held.append(1) or hold())
    assert np.array_equal(fitted(), expected)
    assert held
