"""The clock, the summary and the data of the case `quality`, on made-up curves and rivals."""

import itertools
import math
import os

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.problems import Options, Size, Start
from benchmarks.quality import Task, find_start, reached, rival_curve, seconds_to, shuffled, task


def record(what, seconds, nll):
    return {"what": what, "data": "mnist", "seconds": seconds, "nll": nll, "error": 0.05}


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.9, 2.0), (0.4, 8.0), (0.3, math.sqrt(8 * 32)), (0.2, 32.0), (0.1, None)]
)
def test_the_time_to_a_threshold_lies_on_the_curve(threshold, expected):
    curve = [(32.0, 0.2), (2.0, 0.8), (8.0, 0.4), (64.0, 0.25)]
    found = seconds_to(curve, threshold)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_summary_has_a_row_for_each_competitor():
    records = [record("a", 10.0, 0.25), record("a", 20.0, 0.09), record("b", 10.0, 0.5), record("b", 30.0, 0.3)]
    header, rows = reached(records)
    of = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert of["a"]["0.30"] == "≤ 10"
    assert 10 < float(of["a"]["0.10"]) < 20
    assert of["a"]["0.08"] == "-"
    assert of["b"]["0.30"] == "30"
    assert (of["b"]["last NLL"], of["b"]["error"], of["b"]["after"]) == ("0.3000", "5.00 %", "30 s")


def test_an_epoch_of_batches_has_no_row_twice():
    batches = list(itertools.islice(shuffled(10, 3), 6))
    for epoch in (batches[:3], batches[3:]):
        assert len({*np.concatenate(epoch)}) == 9
    assert not np.array_equal(batches[:3], batches[3:])


class Slow:
    """A rival that takes a quarter of a second a step on a clock of its own, and ten seconds to be scored."""

    def __init__(self, clock):
        self.clock, self.steps = clock, 0

    def batch(self, rows):
        return rows

    def step(self, batch):
        assert len(batch) == 2
        self.clock.now += 0.25
        self.steps += 1

    def log_proba(self, X):
        self.clock.now += 10.0
        return np.log(np.tile([0.75, 0.25], (len(X), 1)))


def test_scoring_is_outside_the_clock(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr("time.perf_counter", lambda: Clock.now)
    made = []

    def make(*arguments):
        Clock.now += 1.0
        made.append(Slow(Clock))
        return made[0]

    data = Task("digits", np.zeros((4, 1)), np.zeros(4, int), np.zeros((4, 1)), np.array([0, 0, 0, 1]))
    start = Start(np.zeros((2, 1, 1)), 1.0, seconds=0.5)
    options = Options(Size(2, 1, 2, 1), seconds=(4.0, 0.1, 0.2, 2.0))
    points = list(rival_curve("math", make, data, start, options))
    assert [(p.budget, p.setup, p.seconds) for p in points] == [(0.2, 1.75, 1.75), (2.0, 1.75, 2.0), (4.0, 1.75, 4.0)]
    assert made[0].steps == 10
    assert points[0].error == 0.25
    assert points[0].nll == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)


def test_a_rival_that_breaks_is_left_out(monkeypatch):
    def breaks(*arguments):
        raise ArithmeticError("not positive definite")

    monkeypatch.setattr(quality, "available", lambda dtype, device: {"math": breaks})
    monkeypatch.setattr(quality, "METHODS", {"digits": ()})
    records = list(quality.measure(Options(Size(10, 3, 50, 64), data="digits", seconds=(0.1,))))
    assert [r["skipped"] for r in records] == ["ArithmeticError: not positive definite"]


def test_the_start_is_timed_and_the_same_for_every_class():
    X = np.random.default_rng(0).standard_normal((200, 3))
    start = find_start(X, 4, 5)
    assert start.Z.shape == (4, 5, 3)
    assert np.ptp(start.Z, axis=0).max() == 0
    assert start.seconds > 0
    assert start.lengthscale == pytest.approx(find_start(2 * X, 4, 5).lengthscale / 2)


def test_digits_need_no_data_folder():
    data = task("digits")
    assert (len(data.X), len(data.X_test)) == (1347, 450)
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)


def test_satellite_is_the_authors_split_scaled_by_its_training_rows():
    if "CAVITY_DATA" not in os.environ:
        pytest.skip("the authors' splits are in the data folder")
    data = task("satellite")
    assert (len(data.X), len(data.X_test)) == (1287, 5148)
    assert data.X.mean(0) == pytest.approx(np.zeros(36), abs=1e-12)
    assert data.X.std(0) == pytest.approx(np.ones(36))
    raw = quality.load("satellite")
    train, test = raw.splits[0]
    again = (raw.X[test] - raw.X[train].mean(0)) / raw.X[train].std(0)
    assert data.X_test == pytest.approx(again)
    assert np.array_equal(data.y_test, raw.y[test])
