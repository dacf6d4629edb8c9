"""The loop: ascent, stopping, going back after a failure, time limits."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.inference import EP, SEP, VI
from cavity.numerics.linalg import FactorizationError
from cavity.training import loop, step
from cavity.training.fixed_point import relative_change
from cavity.training.history import Event, describe
from cavity.training.lbfgs import LBFGS, train_lbfgs
from cavity.training.loop import MAX_FAILURES
from cavity.training.optimizers import Adam
from cavity.training.parameters import HyperPrior
from cavity.training.plan import TrainingError
from tests.problems import PLAN, MadeUp, objective, random_problem, refresh, trainer, update

PROBLEM = random_problem(seed=3, n_rows=18)
METHODS = pytest.mark.parametrize("method", [EP, SEP])
BATCHES = replace(PLAN, batch_size=6, damping=1.0)


def adam(run, rate=0.05):
    return Adam(rate, decay=False)


def failing(method, name, fails):
    """The method, with `name` raising on the calls (counted from 1) for which `fails` is true."""
    made, work, calls = method(), getattr(method, name), [0]

    def broken(*args, **kwargs):
        calls[0] += 1
        if fails(calls[0]):
            raise FactorizationError("made to fail")
        return work(made, *args, **kwargs)

    setattr(made, name, broken)
    return made


class Recorder(MadeUp):
    """An optimizer that writes down where it was and how often it was told to shrink."""

    def __init__(self, rate=0.05):
        self.rate, self.visited, self.shrunk, self.progress = rate, [], 0, []

    def step(self, theta, gradient, progress):
        self.visited.append(theta.clone())
        self.progress.append(progress)
        return theta + self.rate * torch.sign(gradient)

    def shrink(self):
        self.shrunk += 1
        self.rate *= 0.5

    def learning_rate(self):
        return self.rate


# --- Training ---


@METHODS
@pytest.mark.parametrize("updates", ["inner", "inner-exact", "outer"])
def test_training_raises_the_objective(method, updates):
    run = trainer(method(), PROBLEM, replace(PLAN, updates=updates, max_epochs=15, outer_sweeps=30))
    trained = run.train(adam(run))
    start = trainer(method(), PROBLEM, replace(PLAN, max_epochs=300, sweep_tol=1e-8)).infer()
    assert trained.log_z > start.log_z + 0.5
    assert trained.epochs == len(trained.history.records) == 15


@METHODS
def test_training_in_batches_raises_the_objective(method):
    run = trainer(method(), PROBLEM, replace(BATCHES, max_epochs=15))
    start = trainer(method(), PROBLEM, replace(PLAN, max_epochs=300, sweep_tol=1e-8)).infer()
    assert run.train(adam(run)).log_z > start.log_z + 0.5


def test_records_say_what_happened():
    run = trainer(EP(), PROBLEM, replace(PLAN, max_epochs=3, damping_decay=0.9))
    records = run.train(adam(run, rate=0.02)).history.records
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert all(record["rate"] == pytest.approx(0.02) and record["event"] is None for record in records)
    assert [record["damping"] for record in records] == pytest.approx([0.45, 0.405, 0.3645])
    assert all(np.isfinite(record["objective"]) for record in records)
    assert np.all(np.diff([record["seconds"] for record in records]) > 0)


def test_damping_has_a_floor():
    run = trainer(EP(), PROBLEM, replace(PLAN, max_epochs=5, damping_decay=0.1, damping_floor=0.2))
    damping = [record["damping"] for record in run.train(adam(run)).history.records]
    assert damping == pytest.approx([0.2] * 5)


def test_the_objective_is_log_z_plus_the_log_prior():
    spec = {"lengthscale": (0.3, 0.5), "noise": (5.0, 0.5)}
    values = []
    for each in ({}, spec):
        run = trainer(SEP(), PROBLEM, PLAN, each)
        theta, state = run.start()
        _, objective, gradient = run.evaluate(theta, state, run.data.full, 0)
        values.append((float(objective), gradient))
    prior = run.hyper_prior
    assert values[1][0] - values[0][0] == pytest.approx(float(prior.log_density(theta)))
    torch.testing.assert_close(values[1][1] - values[0][1], prior.add_gradient(theta, torch.zeros_like(theta)))


def test_stops_when_the_objective_settles():
    run = trainer(SEP(), PROBLEM, replace(PLAN, max_epochs=200, tol=10.0))
    assert run.train(adam(run)).epochs == 20  # as soon as two windows of ten can be compared


def test_tolerance_is_per_row_by_weight(monkeypatch):
    asked = []
    monkeypatch.setattr("cavity.training.history.History.has_settled", lambda self, tol: asked.append(tol))
    weighted = replace(PROBLEM, weight=np.linspace(0.5, 3.0, 18))
    run = trainer(SEP(), weighted, replace(PLAN, max_epochs=2, tol=0.01))
    run.train(adam(run))
    assert asked == pytest.approx([0.01 * weighted.weight.sum()] * 2)


def test_progress_runs_from_zero_towards_one():
    run, recorder = trainer(SEP(), PROBLEM, replace(BATCHES, max_epochs=4)), Recorder()
    run.train(recorder)
    np.testing.assert_allclose(recorder.progress, np.arange(12) / 12, atol=1e-12)


@METHODS
def test_inference_ends_at_the_fixed_point(method):
    plan = replace(PLAN, max_epochs=2000, sweep_tol=1e-11)
    run = trainer(method(), PROBLEM, plan, learned=(False, False))
    found = run.infer()
    prior, rows = run.model.prior(found.theta), run.model.prior(found.theta).conditional(run.data.X)
    again = update(run.method, prior, rows, found.state, run.data.full, 1.0)
    assert relative_change(found.state, again) < 1e-9
    assert found.epochs < 2000
    assert len(found.theta) == 0


@METHODS
def test_final_sweeps_reach_the_fixed_point(method):
    plan = replace(PLAN, max_epochs=3, final_sweeps=2000, sweep_tol=1e-10)
    run = trainer(method(), PROBLEM, plan)
    found = run.train(adam(run))
    prior = run.model.prior(found.theta)
    again = update(run.method, prior, prior.conditional(run.data.X), found.state, run.data.full, 1.0)
    assert relative_change(found.state, again) < 1e-8


@METHODS
@pytest.mark.parametrize("batch_size", [None, 5])
def test_log_z_of_the_result_is_that_of_all_rows(method, batch_size):
    """Batch by batch, of unequal size too, the estimates average to the full objective."""
    run = trainer(method(), PROBLEM, replace(PLAN, max_epochs=2, batch_size=batch_size))
    found = run.train(adam(run))
    prior = run.model.prior(found.theta)
    full = objective(run.method, prior, prior.conditional(run.data.X), found.state, run.data.full, False)
    assert found.log_z == pytest.approx(float(full.log_z), rel=1e-10)


def test_batches_follow_the_seed():
    def theta(seed):
        run = trainer(SEP(), PROBLEM, replace(BATCHES, seed=seed))
        return run.train(adam(run)).theta

    assert torch.equal(theta(1), theta(1))
    assert not torch.equal(theta(1), theta(2))


# --- A pass that only adds up ---


def sizes(run):
    return [len(batch.X) for batch in run._pass()]


def test_a_pass_takes_larger_pieces_than_the_steps(monkeypatch):
    """So many elements of a block: classes × inducing points × rows, here 3 × 4 a row."""
    run = trainer(EP(), PROBLEM, replace(PLAN, batch_size=4))
    assert sizes(run) == [18]
    monkeypatch.setattr(loop, "PASS_ELEMENTS", 9 * 12)
    assert sizes(run) == [9, 9]
    monkeypatch.setattr(loop, "PASS_ELEMENTS", 0)
    assert max(sizes(run)) == 4
    assert sum(sizes(run)) == 18
    assert [batch.is_full for batch in trainer(EP(), PROBLEM, PLAN)._pass()] == [True]


@pytest.mark.parametrize("method", [EP, SEP, VI])
def test_larger_pieces_give_the_same_log_z_and_the_same_sums(method, monkeypatch):
    run = trainer(method(), PROBLEM, replace(BATCHES, batch_size=4, max_epochs=2))
    trained = run.train(adam(run))
    prior, found = run.model.prior(trained.theta), []
    for elements in (0, 7 * 12, loop.PASS_ELEMENTS):
        monkeypatch.setattr(loop, "PASS_ELEMENTS", elements)
        state = refresh(run.method, prior, trained.state, run._pass())
        q = run.method.posterior(prior, state)
        found.append((run.inference.log_z(prior, trained.state, run._pass()), q.mean, q.cov))
    for each in found[1:]:
        for a, b in zip(found[0], each, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_sums_of_ep_made_anew_are_the_same_from_larger_pieces(monkeypatch):
    """From sites that are far from their sums, so that there is something to make."""
    run = trainer(EP(), PROBLEM, replace(BATCHES, batch_size=4, max_epochs=2))
    trained = run.train(adam(run))
    prior, sums = run.model.prior(trained.theta + 0.1), []
    for elements in (0, loop.PASS_ELEMENTS):
        monkeypatch.setattr(loop, "PASS_ELEMENTS", elements)
        sums.append(refresh(run.method, prior, trained.state, run._pass()))
    assert not torch.allclose(sums[0].T, trained.state.T, rtol=1e-3)
    torch.testing.assert_close(sums[0].T, sums[1].T, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sums[0].t, sums[1].t, rtol=1e-10, atol=1e-10)


def test_sweeps_keep_to_the_size_of_the_steps():
    """An update changes q on its way: larger pieces would be another method."""
    seen = []

    class Counting(SEP):
        def update(self, f, state, natural, batch, damping):
            seen.append(len(batch.X))
            return super().update(f, state, natural, batch, damping)

    trainer(Counting(), PROBLEM, replace(BATCHES, max_epochs=1), learned=(False, False)).infer()
    assert seen == [6, 6, 6]


# --- Failure ---


@METHODS
@pytest.mark.parametrize("name", ["update", "objective"])
def test_a_failure_is_recorded_halves_rates_and_damping_and_training_goes_on(method, name):
    run = trainer(failing(method, name, lambda call: call == 3), PROBLEM, replace(PLAN, max_epochs=6))
    recorder = Recorder()
    found = run.train(recorder)
    events = [record for record in found.history.records if record["event"] is not None]
    assert len(events) == 1
    assert (events[0]["event"], events[0]["reason"]) == (Event.STEP_REJECTED, "made to fail")
    assert events[0]["damping"] == PLAN.damping / 2
    assert (recorder.shrunk, events[0]["rate"]) == (1, 0.025)
    assert found.epochs == 6
    assert len(recorder.visited) == 5
    assert np.isfinite(found.log_z)
    assert found.history.records[-1]["damping"] == PLAN.damping  # only the step after the failure was damped more


@METHODS
@pytest.mark.parametrize("name", ["update", "objective"])
def test_failures_in_batches(method, name):
    """Two in a row: both recorded, the second at the latest halves rates and damping, and training goes on."""
    run = trainer(failing(method, name, lambda call: call in (3, 4)), PROBLEM, replace(BATCHES, max_epochs=6))
    recorder = Recorder()
    found = run.train(recorder)
    events = [record for record in found.history.records if record["event"] is not None]
    assert len(events) == 2
    assert events[1]["damping"] <= BATCHES.damping / 2
    assert events[1]["rate"] <= 0.025
    assert len(recorder.visited) == 18 - 2
    assert np.isfinite(found.log_z)
    assert found.history.records[-1]["damping"] == BATCHES.damping


@METHODS
@pytest.mark.parametrize("batch_size", [None, 3, 9], ids=["full", "within an epoch", "at the start of an epoch"])
def test_after_a_failure_theta_is_the_last_that_worked(method, batch_size):
    """The third step fails, so the next starts where the second did."""
    plan = replace(PLAN, batch_size=batch_size, max_epochs=4)
    run, recorder = trainer(failing(method, "objective", lambda call: call == 3), PROBLEM, plan), Recorder()
    run.train(recorder)
    assert torch.equal(recorder.visited[2], recorder.visited[1])
    assert not torch.equal(recorder.visited[1], recorder.visited[0])


@METHODS
def test_theta_that_has_gone_too_far_is_left(method):
    """A first step into infinity: K holds NaN there, whatever the damping."""
    run, recorder = trainer(method(), PROBLEM, replace(PLAN, max_epochs=30)), Recorder(rate=2.0**13)
    found = run.train(recorder)
    assert recorder.shrunk > 3
    assert np.isfinite(found.log_z)
    assert torch.isfinite(found.theta).all()


@METHODS
def test_a_last_step_that_has_gone_too_far_is_undone(method):
    """Nothing is evaluated after the last step; the result is at the θ before it."""
    run, recorder = trainer(method(), PROBLEM, replace(PLAN, max_epochs=1)), Recorder(rate=1e9)
    found = run.train(recorder)
    assert torch.equal(found.theta, recorder.visited[0])
    assert found.history.records[-1]["event"] == Event.STEP_REJECTED
    assert np.isfinite(found.log_z)


@METHODS
def test_repeated_failures_halve_again_until_one_step_works(method):
    run = trainer(failing(method, "update", lambda call: 3 <= call <= 6), PROBLEM, replace(PLAN, max_epochs=12))
    recorder = Recorder(rate=0.64)
    records = run.train(recorder).history.records
    failed = [record for record in records if record["event"] is not None]
    assert [record["damping"] for record in failed] == [0.25, 0.125, 0.0625, 0.03125]
    assert recorder.rate == 0.04
    assert records[-1]["damping"] == 0.5


@METHODS
def test_a_gradient_that_is_not_finite_is_a_failure(method, monkeypatch):
    run, work, calls = trainer(method(), PROBLEM, PLAN), step.pull_back, [0]

    def broken(*args):
        calls[0] += 1
        return {name: by * (float("nan") if calls[0] == 2 else 1.0) for name, by in work(*args).items()}

    monkeypatch.setattr(step, "pull_back", broken)
    found = run.train(adam(run))
    assert ["not finite" in record.get("reason", "") for record in found.history.records].count(True) == 1
    assert torch.isfinite(found.theta).all()


@METHODS
@pytest.mark.parametrize("plan", [PLAN, BATCHES], ids=["full", "batches"])
def test_failure_without_end_is_an_error_that_says_what_to_try(method, plan):
    run = trainer(failing(method, "update", lambda call: call > 2), PROBLEM, replace(plan, max_epochs=1000))
    advice = r"made to fail.*Try scaling='standard'.*noise.*learning_rate.*inducing"
    with pytest.raises(TrainingError, match=advice) as raised:
        run.train(Recorder())
    assert isinstance(raised.value.__cause__, FactorizationError)
    assert len([record for record in run.history.records if record["event"]]) >= MAX_FAILURES
    assert len(run.history.records) < 3 * MAX_FAILURES


@METHODS
def test_failures_that_come_and_go_do_not_end_the_training(method):
    """Only failures in a row count: every third step fails here, more often than may fail in a row."""
    n_epochs = 3 * (MAX_FAILURES + 5)
    run = trainer(failing(method, "update", lambda call: call % 3 == 0), PROBLEM, replace(PLAN, max_epochs=n_epochs))
    records = run.train(Recorder()).history.records
    assert sum(record["event"] is not None for record in records) == MAX_FAILURES + 5


# --- Time ---


@METHODS
@pytest.mark.parametrize("batch_size", [None, 3])
def test_max_seconds_ends_the_training(method, batch_size):
    plan = replace(PLAN, max_epochs=100_000, max_seconds=0.3, batch_size=batch_size)
    run = trainer(method(), PROBLEM, plan)
    started = time.perf_counter()
    found = run.train(adam(run, rate=1e-4))
    assert 0.3 <= time.perf_counter() - started < 5.0
    assert 1 <= found.epochs < 100_000


@pytest.fixture
def now(monkeypatch):
    """Set the time."""
    found = [0.0]
    monkeypatch.setattr("cavity.training.history.time.perf_counter", lambda: found[0])
    return found


def test_max_seconds_ends_a_long_epoch(now):
    """The clock is read after every batch, not after every epoch."""
    run = trainer(SEP(), PROBLEM, replace(BATCHES, batch_size=1, max_epochs=1000, max_seconds=5.0))
    recorder = Recorder(rate=1e-4)

    def step(*args):
        now[0] += 0.2  # 5.0 seconds pass in the second epoch of 18 steps
        return Recorder.step(recorder, *args)

    recorder.step = step
    assert run.train(recorder).epochs == 2
    assert len(recorder.visited) == 25


@METHODS
@pytest.mark.parametrize("batch_size", [None, 1, 6])
def test_the_first_epoch_sees_every_row_whatever_the_limit(method, batch_size):
    """And the history says that training was cut short."""
    run = trainer(method(), PROBLEM, replace(PLAN, batch_size=batch_size, max_epochs=1000, max_seconds=1e-9))
    recorder = Recorder(rate=1e-4)
    found = run.train(recorder)
    assert found.epochs == 1
    assert len(recorder.visited) == {None: 1, 1: 18, 6: 3}[batch_size]
    last = found.history.records[-1]
    assert (last["event"], last["epoch"], last["max_epochs"]) == (Event.TIME_LIMIT, 1, 1000)
    assert describe(last) == "cut short by max_seconds: 1 of 1000 epochs"


def test_a_first_step_that_fails_is_retried_whatever_the_limit():
    broken = failing(SEP, "update", lambda call: call == 1)
    run = trainer(broken, PROBLEM, replace(PLAN, max_epochs=1000, max_seconds=1e-9))
    assert run.train(Recorder()).epochs >= 1


def test_more_epochs_can_be_exempt_from_the_limit():
    run = trainer(SEP(), PROBLEM, replace(PLAN, max_epochs=4, min_epochs=4, max_seconds=1e-9))
    found = run.train(Recorder())
    assert found.epochs == 4
    assert [record["event"] for record in found.history.records] == [None] * 4


def test_a_run_that_ends_before_the_limit_is_not_cut_short():
    run = trainer(SEP(), PROBLEM, replace(PLAN, max_epochs=3, max_seconds=1e9))
    assert [record["event"] for record in run.train(Recorder()).history.records] == [None] * 3


@pytest.mark.parametrize("epochs", [1, 30])
def test_q_converges_after_a_short_training(epochs):
    """Epochs and final sweeps are 50 together: a few sweeps leave EP far from its fixed point."""
    plan = replace(PLAN, max_epochs=10**6, min_epochs=epochs, max_seconds=1e-9, final_sweeps=50, sweep_tol=0.0)
    method, count = EP(), []
    update = method.update
    method.update = lambda *args: count.append(1) or update(*args)
    trainer(method, PROBLEM, plan).train(Recorder(rate=1e-4))
    assert 50 <= len(count) <= 52  # an extrapolation that is undone does not count


def test_inference_sweeps_a_while_whatever_the_limit():
    plan = replace(PLAN, max_epochs=10**6, max_seconds=1e-9, sweep_tol=0.0)
    found = trainer(SEP(), PROBLEM, plan, learned=(False, False)).infer()
    assert found.epochs == 50
    assert [record["event"] for record in found.history.records] == [None] * 50 + [
        Event.TIME_LIMIT,
        Event.NOT_CONVERGED,
    ]
    found = trainer(SEP(), PROBLEM, replace(plan, sweep_tol=1e-2), learned=(False, False)).infer()
    assert {record["event"] for record in found.history.records} == {None}


def test_seconds_count_from_the_first_step(now):
    """Not from reading the rows and starting a device."""
    method = SEP()
    init = method.init

    def slow(*args):
        now[0] += 1000.0
        return init(*args)

    method.init = slow
    run = trainer(method, PROBLEM, replace(PLAN, max_epochs=3, max_seconds=5.0))
    now[0] += 1000.0
    found = run.train(Recorder())
    assert [record["event"] for record in found.history.records] == [None] * 3
    assert [record["seconds"] for record in found.history.records] == [0.0] * 3


def test_max_seconds_ends_inference_and_final_sweeps():
    plan = replace(PLAN, max_epochs=10**6, max_seconds=0.2, sweep_tol=0.0, final_sweeps=10**6)
    started = time.perf_counter()
    trainer(SEP(), PROBLEM, plan, learned=(False, False)).infer()
    assert time.perf_counter() - started < 5.0


# --- L-BFGS ---


def lbfgs(run, memory=20):
    return train_lbfgs(run, LBFGS(run.model.full({}, 1.0), memory))


@METHODS
def test_lbfgs_improves_log_z(method):
    plan = replace(PLAN, updates="outer", max_epochs=3, tol=1e-4, sweep_tol=1e-6)
    run = trainer(method(), PROBLEM, plan)
    start = trainer(method(), PROBLEM, replace(PLAN, max_epochs=1000, sweep_tol=1e-9), learned=(False, False)).infer()
    found = lbfgs(run)
    assert found.log_z > start.log_z + 1.0
    objectives = [record["objective"] for record in found.history.records]
    assert found.log_z == pytest.approx(max(objectives), abs=1e-3)


def test_lbfgs_steps_back_from_a_failure():
    broken = failing(EP, "objective", lambda call: call == 3)
    run = trainer(broken, PROBLEM, replace(PLAN, updates="outer", max_epochs=6, tol=1e-6, outer_sweeps=300))
    found = lbfgs(run)
    assert sum(record["event"] == Event.EVALUATION_REJECTED for record in found.history.records) == 1
    first = found.history.records[0]["objective"]
    assert found.log_z > first + 1.0


def test_lbfgs_damps_more_where_the_start_fails():
    broken = failing(EP, "objective", lambda call: call <= 2)
    run = trainer(broken, PROBLEM, replace(PLAN, updates="outer", max_epochs=3, tol=1e-6, outer_sweeps=300))
    found = lbfgs(run)
    rejected = Event.EVALUATION_REJECTED
    assert [record["event"] for record in found.history.records[:3]] == [rejected, rejected, None]
    assert run.scale == 0.25


def test_lbfgs_gives_up_where_nothing_helps():
    run = trainer(failing(EP, "objective", lambda call: True), PROBLEM, replace(PLAN, updates="outer"))
    with pytest.raises(FactorizationError, match="no step worked"):
        lbfgs(run)


def test_lbfgs_in_other_units_climbs_the_same_hill():
    """Another scale of the variables is another path: the first step differs, the top does not."""
    plan = replace(PLAN, updates="outer", max_epochs=400, tol=1e-9, sweep_tol=1e-9, outer_sweeps=300)
    runs = [trainer(EP(), PROBLEM, plan, learned=(True, False)) for _ in range(2)]
    units = [run.model.full({"lengthscale": length}, 1.0) for run, length in zip(runs, (1.0, 0.5), strict=True)]
    spec = {"lengthscale": (None, 0.5), "variance": (None, 0.5), "noise": (None, 0.5)}  # one top
    for run in runs:
        run.hyper_prior = HyperPrior(run.model, spec)
    a, b = (train_lbfgs(run, LBFGS(unit)) for run, unit in zip(runs, units, strict=True))
    torch.testing.assert_close(a.theta, b.theta, rtol=0, atol=1e-3)
    second = [run.history.records[1]["objective"] for run in runs]
    assert second[0] != second[1]


def test_lbfgs_says_that_it_was_cut_short():
    plan = replace(PLAN, updates="outer", max_epochs=10_000, max_seconds=1e-9, tol=0.0)
    found = lbfgs(trainer(EP(), PROBLEM, plan))
    assert [record["event"] for record in found.history.records] == [None, Event.TIME_LIMIT]


def test_lbfgs_stops_in_time():
    plan = replace(PLAN, updates="outer", max_epochs=10_000, max_seconds=0.2, tol=0.0)
    started = time.perf_counter()
    lbfgs(trainer(EP(), PROBLEM, plan))
    assert time.perf_counter() - started < 5.0
