"""A step of the hyper-parameters that goes too far is taken back, wherever it shows."""

import re
from dataclasses import replace

import pytest
import torch

from cavity.inference import EP, SEP
from cavity.numerics.linalg import FactorisationError
from tests.problems import PLAN, random_problem, trainer

PROBLEM = random_problem(seed=3, n_rows=18)
METHODS = pytest.mark.parametrize("method", [EP, SEP])
BATCHES = pytest.mark.parametrize("batch_size", [None, 6])


class Leap:
    """Small steps, but the ones in `wild` (counted from 0) lead out of all bounds."""

    def __init__(self, *wild):
        self.wild, self.visited = wild, []

    def step(self, theta, gradient, progress):
        self.visited.append(theta.clone())
        return theta + (1e6 if len(self.visited) - 1 in self.wild else 0.01 * torch.sign(gradient))

    def shrink(self):
        pass

    def size(self):
        return 0.01


@METHODS
@BATCHES
def test_after_a_leap_training_goes_on_where_it_last_worked(method, batch_size):
    run, leap = trainer(method(), PROBLEM, replace(PLAN, batch_size=batch_size, max_epochs=6)), Leap(2)
    found = run.train(leap)
    assert torch.equal(leap.visited[3], leap.visited[2])
    assert [record["event"] is not None for record in run.history.records].count(True) == 1
    assert found.theta.abs().max() < 100


@METHODS
@BATCHES
def test_a_leap_at_the_very_end_is_taken_back(method, batch_size):
    run = trainer(method(), PROBLEM, replace(PLAN, batch_size=batch_size, max_epochs=3, final_sweeps=5))
    steps = 3 if batch_size is None else 9
    leap = Leap(steps - 1)
    found = run.train(leap)
    assert torch.equal(found.theta, leap.visited[-1])
    assert len(leap.visited) == steps
    assert "went back" in run.history.records[-1]["event"]


@METHODS
def test_a_start_that_never_works_is_an_error(method, monkeypatch):
    """Not a classifier that has learned nothing and keeps silent about it."""
    run = trainer(method(), PROBLEM, replace(PLAN, max_epochs=3))
    monkeypatch.setattr("cavity.inducing.Prior.pull_back", lambda self, rows, gradient: {"Z": self.Z * torch.nan})
    with pytest.raises(FactorisationError, match=r"no step worked: .*not finite"):
        run.train(Leap())
    assert isinstance(run.failure(FactorisationError("this")), ValueError)
    assert re.search(r"this.*scaling=.*kernel.*noise.*n_inducing", str(run.failure(FactorisationError("this"))))
