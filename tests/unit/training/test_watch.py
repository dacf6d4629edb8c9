"""Looking at a model while it trains: when, what is seen, and that it leaves no trace."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from cavity import GPClassifier
from cavity.inference import EP, SEP, VI
from cavity.numerics.linalg import FactorizationError
from cavity.training.history import Watch
from cavity.training.lbfgs import LBFGS, train_lbfgs
from cavity.training.optimizers import Adam
from tests.problems import PLAN, MadeUp, random_problem, refresh, trainer

PROBLEM = random_problem(seed=3, n_rows=18)
ALWAYS = np.linspace(0.0, 20.0, 200_001)  # more often than there are steps
X, Y = load_iris(return_X_y=True)


class Timed(MadeUp):
    """An optimizer whose steps take a second each, of a clock that only it and `wait` move."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("cavity.training.history.time.perf_counter", lambda: self.now)

    def train(self, run):
        run.clock.started = self.now
        return run.train(self)

    def wait(self, seconds):
        self.now += seconds

    def step(self, theta, gradient, progress):
        self.wait(1.0)
        return theta + 0.01 * torch.sign(gradient)


@pytest.fixture
def timed(monkeypatch):
    return Timed(monkeypatch)


# --- When ---


@pytest.mark.parametrize("batch_size", [None, 6], ids=["full", "batches"])
def test_looks_come_after_the_first_step_past_each_moment(timed, batch_size):
    """Moments in any order; those that one step has passed together are one look; the last is never reached."""
    seen = []
    watch = Watch([7.2, 2.5, 0.5, 7.1, 1000.0], lambda q, seconds: seen.append(seconds))
    plan = replace(PLAN, batch_size=batch_size, max_epochs=10 if batch_size is None else 4)
    timed.train(trainer(SEP(), PROBLEM, plan, watch=watch))
    assert seen == [1.0, 3.0, 8.0]


def test_a_moment_that_a_step_ends_at_is_not_missed(timed):
    seen = []
    timed.train(trainer(EP(), PROBLEM, PLAN, watch=Watch([2.0, 3.0], lambda q, seconds: seen.append(seconds))))
    assert seen == [2.0, 3.0]


@pytest.mark.parametrize("at", [[], [1e9]])
def test_with_no_moment_there_is_no_look(timed, at):
    def look(q, seconds):
        raise AssertionError("nobody asked")

    timed.train(trainer(SEP(), PROBLEM, PLAN, watch=Watch(at, look)))


def test_a_run_can_be_repeated_with_the_same_watch(timed):
    """The moments are used up in the run, not in the watch."""
    seen, at = [], [2.5, 0.5]
    watch = Watch(at, lambda q, seconds: seen.append(seconds))
    for _ in range(2):
        timed.train(trainer(SEP(), PROBLEM, PLAN, watch=watch))
    assert seen == [1.0, 3.0, 1.0, 3.0]
    assert at == [2.5, 0.5]


def test_time_spent_looking_does_not_count(timed):
    """Looks of 50 s each, in a training that has 8 s in all."""
    seen = []

    def look(q, seconds):
        seen.append(seconds)
        timed.wait(50.0)

    plan = replace(PLAN, max_epochs=100, max_seconds=8.0)
    trained = timed.train(trainer(SEP(), PROBLEM, plan, watch=Watch([1.0, 3.0, 5.0], look)))
    assert seen == [1.0, 3.0, 5.0]
    *epochs, last = trained.history.records
    assert [record["seconds"] for record in epochs] == [float(s) for s in range(1, 9)]
    assert (last["seconds"], last["event"]) == (8.0, "time_limit")


def test_after_an_error_in_a_look_nothing_is_hidden(timed):
    def look(q, seconds):
        raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        timed.train(trainer(SEP(), PROBLEM, PLAN, watch=Watch([0.0], look)))


def test_time_of_looking_is_not_in_the_history():
    """By the real clock: three looks that sleep 0.2 s."""
    looks = []

    def look(model, seconds):
        looks.append(seconds)
        time.sleep(0.2)

    began = time.perf_counter()
    model = classifier("sep", max_epochs=3).fit(X, Y, watch=Watch(ALWAYS, look))
    spent = time.perf_counter() - began
    assert len(looks) == 3
    assert looks == sorted(looks)
    assert model.history_[-1]["seconds"] < spent - 0.6


# --- What ---


@pytest.mark.parametrize("method", [EP, SEP, VI])
@pytest.mark.parametrize("batch_size", [None, 6], ids=["full", "batches"])
def test_q_is_shown_where_the_last_step_was_evaluated(method, batch_size):
    """Its θ and state; training on all rows keeps no sums of the sites, so they are made."""
    shown = []
    run = trainer(
        method(), PROBLEM, replace(PLAN, batch_size=batch_size), watch=Watch(ALWAYS, lambda q, s: shown.append(q))
    )
    trained = run.train(Adam(0.05, decay=False))
    assert len(shown) == 5 * (1 if batch_size is None else 3)
    theta, state = run.last_good
    prior = run.model.prior(theta)
    state = refresh(run.method, prior, state, run._pass()) if batch_size is None else state
    expected = run.method.posterior(prior, state)
    np.testing.assert_allclose(shown[-1].mean, expected.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(shown[-1].cov, expected.cov, rtol=1e-9, atol=1e-12)
    assert np.abs(shown[0].mean - shown[-1].mean).max() > 1e-3
    assert np.abs(trained.posterior.mean - shown[-1].mean).max() < 0.5 * np.abs(trained.posterior.mean).max()


def test_l_bfgs_shows_the_best_so_far():
    """A line search goes astray on its way: what is shown never gets worse."""
    shown = []
    plan = replace(PLAN, updates="outer", max_epochs=6, tol=1e-6, sweep_tol=1e-6)
    run = trainer(EP(), PROBLEM, plan, watch=Watch(ALWAYS, lambda q, seconds: shown.append(q.prior.log_noise)))
    evaluate, visited = run.evaluate, []

    def noted(theta, *args):
        found = evaluate(theta, *args)
        visited.append((float(found[1]), run.model.prior(theta).log_noise))
        return found

    run.evaluate = noted
    train_lbfgs(run, LBFGS(run.model.full({}, 1.0)))
    assert len(shown) == len(visited)
    for i, noise in enumerate(shown):
        _, best = max(visited[: i + 1], key=lambda each: each[0])
        torch.testing.assert_close(noise, best, rtol=0, atol=0)


def test_steps_that_fail_are_not_shown(timed):
    calls = [0]

    class Failing(SEP):
        def update(self, *args):
            calls[0] += 1
            timed.wait(1.0)
            if calls[0] == 2:
                raise FactorizationError("made to fail")
            return super().update(*args)

    seen = []
    run = trainer(Failing(), PROBLEM, replace(PLAN, max_epochs=4), watch=Watch(ALWAYS, lambda q, s: seen.append(s)))
    timed.train(run)
    assert calls == [4]
    assert seen == [2.0, 5.0, 7.0]  # the second took a second and led nowhere


# --- The classifier ---

WAYS = [("ep", None), ("sep", None), ("gfitc", None), ("vi", None), ("ep", 40), ("sep", 40), ("vi", 40)]


def classifier(method="auto", **changes):
    settings = {"n_inducing": 6, "max_epochs": 40, "random_state": 0, "device": "cpu", "calibrate": False}
    return GPClassifier(method, **(settings | changes))


def paper(method, **changes):
    return GPClassifier.paper(method, 6, **({"max_epochs": 25, "random_state": 0, "device": "cpu"} | changes))


MODELS = {f"{method} {'full' if size is None else 'batches'}": (classifier, method, {"batch_size": size})
          for method, size in WAYS}  # fmt: skip
MODELS |= {"ep outer": (classifier, "ep", {"updates": "outer", "max_epochs": 8}), "paper ep": (paper, "ep", {}),
           "paper vi": (paper, "vi", {}), "paper vi batches": (paper, "vi", {"batch_size": 40})}  # fmt: skip


@pytest.mark.parametrize(("make", "method", "changes"), MODELS.values(), ids=MODELS)
def test_watching_leaves_no_trace_and_leads_to_the_fit(make, method, changes):
    """The same bits as without; what is shown predicts then and later, and ends near the fit."""
    shown, then = [], []

    def look(model, seconds):
        shown.append(model)
        if len(shown) in (1, 5):
            then.append(model.predict_proba(X))

    plain = make(method, **changes).fit(X, Y)
    model = make(method, **changes).fit(X, Y, watch=Watch(ALWAYS, look))
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.posterior_.cov, plain.posterior_.cov)
    assert model.log_marginal_likelihood_ == plain.log_marginal_likelihood_
    assert len(model.history_) == len(plain.history_)

    first, last = shown[0].predict_proba(X), shown[-1].predict_proba(X)
    for i, p in zip((0, 4), then, strict=True):
        np.testing.assert_array_equal(shown[i].predict_proba(X), p)  # what was shown stays what it was
    end = model.predict_proba(X)
    assert np.abs(last - end).max() < 0.1
    assert np.abs(last - end).mean() < 0.2 * np.abs(first - end).mean() + 1e-3
    assert shown[-1].score(X, Y) > 0.9


def test_what_is_shown_is_a_classifier_of_its_own():
    shown = []
    model = classifier("ep", max_epochs=5)
    model.fit(X * [1.0, 10.0, 100.0, 1000.0], SPECIES[Y], watch=Watch(ALWAYS, lambda m, seconds: shown.append(m)))
    one = shown[2]
    assert len(shown) == 5
    assert isinstance(one, GPClassifier)
    assert one is not model
    assert one.get_params() == model.get_params()
    assert one.classes_.tolist() == model.classes_.tolist()
    assert one.inducing_points_.shape == (3, 6, 4)
    assert 100 < np.abs(one.inducing_points_[..., 3]).max() < 1e4  # in units of X
    assert set(one.predict(X * [1.0, 10.0, 100.0, 1000.0])) <= set(SPECIES)
    assert one.uncertainty(X[:5]).total.shape == (5,)
    assert not np.array_equal(one.posterior_.mean, model.posterior_.mean)


SPECIES = np.array(["setosa", "versicolor", "virginica"])


@pytest.mark.parametrize("changes", [{"calibrate": 3}, {"scaling": "auto"}], ids=["folds", "trials"])
def test_only_the_fit_itself_is_shown(changes):
    """Not the fits that calibrate it, nor those that choose a scaling."""
    shown = []
    model = classifier("ep", **{"max_epochs": 6} | changes)
    model.fit(X, Y, watch=Watch(ALWAYS, lambda m, seconds: shown.append((m.sharpness_, seconds))))
    assert len(shown) == 6
    assert {sharpness for sharpness, _ in shown} == {1.0}
    assert shown == sorted(shown)


def test_seconds_are_those_of_the_history():
    seen = []
    model = classifier("ep", max_epochs=5).fit(X, Y, watch=Watch(ALWAYS, lambda m, seconds: seen.append(seconds)))
    recorded = [record["seconds"] for record in model.history_]
    for look, previous, record in zip(seen, [0.0, *recorded], recorded, strict=False):
        assert previous <= look <= record
