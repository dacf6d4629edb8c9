"""The small parts of the front: labels, equal rows, devices. The whole of it is tested in `front` and `equivalence`."""

import ctypes
import sys

import numpy as np
import pytest
import torch

from cavity import GPClassifier, front
from cavity.front import Rows, choose_device, encode, kept_memory, merge_equal_rows, threads_for
from cavity.kernels import RBF
from tests.clock import Clock


def test_labels_become_positions():
    classes = np.array(["ant", "bee", "cat"])
    assert encode(np.array(["cat", "ant", "cat"]), classes).tolist() == [2, 0, 2]


@pytest.mark.parametrize("label", ["aaa", "bat", "dog"])
def test_an_unknown_label_is_named(label):
    with pytest.raises(ValueError, match=f"y holds the label .*{label}"):
        encode(np.array(["ant", label]), np.array(["ant", "bee", "cat"]))


def test_equal_rows_with_equal_labels_become_one():
    X = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0], [1.0, 2.0]])
    found = merge_equal_rows(Rows(X, np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 0.5, 4.0])))
    rows = [(*x, y, w) for x, y, w in zip(found.X.tolist(), found.y, found.weight, strict=True)]
    assert [(x[0], x[1], int(y), float(w)) for *x, y, w in rows] == [
        (0.0, 5.0, 1, 2.0), (1.0, 2.0, 0, 1.5), (1.0, 2.0, 1, 4.0)
    ]  # fmt: skip


def test_merging_keeps_what_is_different_and_all_the_weight():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (60, 2)).astype(float), rng.integers(0, 2, 60)
    found = merge_equal_rows(Rows(X, y, np.ones(60)))
    assert found.weight.sum() == 60
    assert len(found.X) == len({(*x, k) for x, k in zip(X.tolist(), y.tolist(), strict=True)}) < 60


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match="device='abacus' cannot be used"):
        choose_device("abacus")
    assert choose_device("cpu").type == "cpu"


# --- Progress ---


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(front, "time", found)
    return found


def record(epoch, objective=-12.34, event=None):
    return {"epoch": epoch, "objective": objective, "event": event}


def test_without_a_terminal_every_tenth_of_the_epochs_is_a_line(capsys, clock):
    with front.progress("cavity ep", 200, 1) as report:
        for epoch in range(1, 201):
            clock.now += 0.5
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[1] == "cavity ep: epoch 40 of 200, objective=-12.3, 0:20 gone, 1:20 left at most"


def test_where_epochs_take_long_every_half_minute_is_a_line(capsys, clock):
    with front.progress("cavity ep", 10_000, 1) as report:
        for epoch in range(1, 101):
            clock.now += 4.0
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 13  # each eighth epoch, and the last
    assert "epoch 100 of 10000" in lines[-1]
    assert "11:00:00 left" in lines[-1]


def test_the_last_line_is_that_of_the_last_epoch(capsys, clock):
    with front.progress("cavity ep", 100, 1) as report:
        for epoch in range(1, 14):
            report(record(epoch))
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "cavity ep: epoch 10 of 100", "cavity ep: epoch 13 of 100",
    ]  # fmt: skip


def test_the_pace_is_that_since_a_checkpoint(capsys, clock):
    with front.progress("cavity ep", 100, 1) as report:
        clock.now += 2.0
        report(record(81))
    assert "0:02 gone, 0:38 left" in capsys.readouterr().err


def test_events_are_lines_and_further_fits_say_how_long(capsys, clock):
    with front.progress("cavity ep", 100, 1) as report:
        report(record(1, event="went back: log Z is not finite"))
        clock.now += 30.0
        report(record(2, None, event="calibration by 3 more fits"))
    assert capsys.readouterr().err.splitlines() == [
        "epoch 1: went back: log Z is not finite", "epoch 2: calibration by 3 more fits, about 1:00 more",
    ]  # fmt: skip


def test_lines_are_never_written_over(capsys, clock):
    with front.progress("cavity ep", 20, 2) as report:
        for epoch in range(1, 21):
            report(record(epoch))
    err = capsys.readouterr().err
    assert "\r" not in err
    assert len(err.splitlines()) == 20


def test_a_terminal_has_a_bar_with_the_time_left(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with front.progress("cavity ep", 50, 1) as report:
        for epoch in range(1, 31):
            report(record(epoch))
        report(record(30, event="stopped"))
    err = capsys.readouterr().err
    assert "\r" in err
    assert "0/50" in err
    assert "30/30" in err
    assert "epoch 30: stopped" in err


def test_nothing_is_shown_unless_asked(capsys):
    with front.progress("cavity ep", 50, 0) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


# --- Threads and memory ---


@pytest.fixture
def threads():
    """More threads than one, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.mark.parametrize(("work", "expected"), [(front.WORK_PER_THREAD - 1, 1), (front.WORK_PER_THREAD, 2)])
def test_small_steps_take_one_thread_and_leave_the_others_for_later(threads, work, expected):
    with threads_for(work):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == threads
    with pytest.raises(KeyError), threads_for(work):
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
        with kept_memory(), kept_memory():
            assert blocks() == expected
        with pytest.raises(KeyError), kept_memory():
            raise KeyError
        assert blocks() == expected


def test_memory_is_kept_within_and_trimmed_behind(monkeypatch):
    """The limit for trimming is back where it can trim; after an error too."""
    libc = Libc()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    with kept_memory():
        within = list(libc.asked)
    kept = ("mallopt", front.M_TRIM_THRESHOLD, front.KEPT_BYTES)
    assert set(within) == {kept, ("mallopt", front.M_MMAP_THRESHOLD, front.LARGEST_HEAP_BLOCK)}
    (_, option, threshold), last = libc.asked[len(within) :]
    assert option == front.M_TRIM_THRESHOLD
    assert threshold < front.KEPT_BYTES
    assert last == ("malloc_trim", 0)
    asked = list(libc.asked)
    with pytest.raises(KeyError), kept_memory():
        raise KeyError
    assert libc.asked == 2 * asked


@pytest.mark.parametrize(("platform", "missing"), [("linux", ["mallopt"]), ("darwin", []), ("win32", [])])
def test_elsewhere_memory_is_left_to_the_system(monkeypatch, platform, missing):
    libc = Libc(*missing)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    with kept_memory():
        pass
    with pytest.raises(KeyError), kept_memory():
        raise KeyError
    assert libc.asked == []


# --- The classifier ---


@pytest.mark.parametrize(
    "points", [np.zeros((4, 3)), np.zeros((2, 4, 2)), np.zeros(4), np.full((4, 2), np.nan), np.zeros((0, 2))]
)
def test_inducing_points_of_the_wrong_shape_are_named(points):
    X, y = np.random.default_rng(0).standard_normal((9, 2)), np.arange(9) % 3
    with pytest.raises(ValueError, match=r"inducing_points has shape .*\(M, 2\) or \(3, M, 2\)"):
        GPClassifier(inducing_points=points).fit(X, y)


def test_fitted_attributes_have_the_shapes_of_the_contract():
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0], np.arange(30) % 3
    fitted = GPClassifier(
        "ep", n_inducing=5, max_epochs=3, share_kernel=True, share_inducing=True, random_state=0, device="cpu"
    ).fit(X, y)
    assert fitted.noise_.shape == (3,)
    assert fitted.inducing_points_.shape == (3, 5, 2)
    assert np.abs(fitted.inducing_points_[..., 1]).max() > 5  # in the units of X
    assert fitted.posterior_.mean.shape == (3, 5)
    assert fitted.posterior_.cov.shape == (3, 5, 5)
    assert isinstance(fitted.kernel_, RBF)
    assert len(fitted.history_) == fitted.n_iter_ == 3
    mean, var = fitted.latent(X)
    assert mean.shape == var.shape == (30, 3)


def test_given_inducing_points_come_back_in_the_units_of_x():
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0] + 7.0, np.arange(30) % 3
    for scaling in ("standard", "quantile", None):
        fitted = GPClassifier(
            inducing_points=X[:4], learn_inducing=False, scaling=scaling, max_epochs=1, device="cpu"
        ).fit(X, y)
        np.testing.assert_allclose(fitted.inducing_points_, np.stack([X[:4]] * 3), rtol=1e-9)


def test_paper_start_values():
    """Variance and noise 1, ℓ² = median distance of the scaled rows, inducing points at rows, apart for each class."""
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0] + 7.0, np.arange(30) % 3
    fitted = GPClassifier.paper(learn_kernel=False, learn_inducing=False, max_epochs=1, random_state=0, device="cpu")
    fitted.fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0, ddof=1)
    median = np.median([np.linalg.norm(a - b) for i, a in enumerate(scaled) for b in scaled[:i]])
    np.testing.assert_allclose(fitted.kernel_.lengthscale, np.full((3, 2), np.sqrt(median)))
    np.testing.assert_allclose(fitted.kernel_.variance, np.ones(3))
    np.testing.assert_allclose(fitted.noise_, np.ones(3))
    assert fitted.inducing_points_.shape == (3, 3, 2)
    distance = np.linalg.norm(fitted.inducing_points_[:, :, None] - X, axis=-1).min(-1)
    assert distance.max() < 1e-12
    assert not np.array_equal(fitted.inducing_points_[0], fitted.inducing_points_[1])
