"""A step of the hyper-parameters that goes too far is taken back, wherever it shows."""

import re
from dataclasses import replace

import pytest
import torch

from cavity.inference import EP, SEP
from cavity.numerics.linalg import FactorizationError
from cavity.training import Event
from cavity.training.optimizers import Adam
from tests.problems import PLAN, MadeUp, random_problem, refresh, trainer

PROBLEM = random_problem(seed=3, n_rows=18)
METHODS = pytest.mark.parametrize("method", [EP, SEP])
BATCHES = pytest.mark.parametrize("batch_size", [None, 6])


class Leap(MadeUp):
    """Small steps, but the ones in `wild` (counted from 0) lead out of all bounds."""

    def __init__(self, *wild):
        self.wild, self.visited = wild, []

    def step(self, theta, gradient, progress):
        self.visited.append(theta.clone())
        return theta + (1e6 if len(self.visited) - 1 in self.wild else 0.01 * torch.sign(gradient))


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
    assert run.history.records[-1]["event"] == Event.STEP_REJECTED


class Gradual(MadeUp):
    """Steps that a rounding error changes by no more than itself."""

    def step(self, theta, gradient, progress):
        return theta + 1e-3 * gradient

    def shrink(self):
        raise AssertionError("a single failure of EP in batches is no reason to shrink")

    def learning_rate(self):
        return 1e-3


def failing_late(name, at):
    """EP, with call number `at` (from 0) of `name` failing after its work is done."""
    made, work, calls = EP(), getattr(EP, name), []

    def broken(*args, **kwargs):
        found = work(made, *args, **kwargs)
        calls.append(name)
        if len(calls) - 1 == at:
            raise FactorizationError("made to fail")
        return found

    setattr(made, name, broken)
    return made


def without_step(plan, skipped):
    """Training as it goes where one step (from 0) is not made at all."""
    run, optimizer = trainer(EP(), PROBLEM, plan), Gradual()
    good = theta, state = run.start()
    n_steps = 0
    for epoch in range(plan.max_epochs):
        for step, draw in enumerate(run.data.draws(plan.batch_size, plan.seed, epoch)):
            if n_steps == skipped:
                theta, state = good
            if step == 0 or n_steps == skipped:
                state = refresh(EP(), run.model.prior(theta), state, run.data.in_order(plan.batch_size))
            if n_steps != skipped:
                state, _, gradient = run.evaluate(theta, state, run.data.batch(draw), epoch)
                good, theta = (theta, state), optimizer.step(theta, gradient, 0.0)
            n_steps += 1
    return run.finish(theta, state, plan.max_epochs)


@pytest.mark.parametrize("name", ["update", "objective"])
@pytest.mark.parametrize("at", [0, 3, 4, 7], ids=["first of all", "first of an epoch", "within one", "in the last"])
def test_a_failed_step_on_a_batch_leaves_no_trace(name, at):
    """θ, q, log Z and the sites of every row are those of training that never made the step."""
    plan = replace(PLAN, batch_size=6, max_epochs=3, damping=0.8)
    run = trainer(failing_late(name, at), PROBLEM, plan)
    found, expected = run.train(Gradual()), without_step(plan, at)
    assert [record["event"] is not None for record in run.history.records].count(True) == 1
    torch.testing.assert_close(found.theta, expected.theta, rtol=0, atol=1e-11)
    for x, y in zip(*([*s.settled().store, s.T, s.t] for s in (found.state, expected.state)), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-10)
    assert found.log_z == pytest.approx(expected.log_z, rel=1e-11)


@METHODS
@BATCHES
def test_the_rate_recovers_after_one_failure(method, batch_size):
    """The history shows the halved rate, and the full one later on."""
    epochs = 100 if batch_size is None else 30
    run = trainer(method(), PROBLEM, replace(PLAN, batch_size=batch_size, max_epochs=epochs))
    optimizer, evaluate, calls = Adam(0.01, decay=False), run.evaluate, []

    def failing_twice(*args):  # the first failure of EP in batches is put down to drift
        calls.append(1)
        if len(calls) in (4, 5):
            raise FactorizationError("made to fail")
        return evaluate(*args)

    run.evaluate = failing_twice
    run.train(optimizer)
    rates = [record["rate"] for record in run.history.records]
    assert min(rates) < 0.008
    assert rates[-1] == 0.01


@METHODS
def test_a_start_that_never_works_is_an_error(method, monkeypatch):
    """Not a classifier that has learned nothing and keeps silent about it."""
    run = trainer(method(), PROBLEM, replace(PLAN, max_epochs=3))
    monkeypatch.setattr("cavity.training.step.pull_back", lambda prior, f, gradient: {"Z": prior.Z * torch.nan})
    with pytest.raises(FactorizationError, match=r"no step worked: .*not finite"):
        run.train(Leap())
    assert isinstance(run.failure(FactorizationError("this")), ValueError)
    assert re.search(r"this.*scaling=.*kernel.*noise.*n_inducing", str(run.failure(FactorizationError("this"))))
