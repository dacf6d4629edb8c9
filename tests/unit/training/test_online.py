"""Rows that come in pieces and are forgotten."""

import numpy as np
import pytest
import torch

from cavity.data.training_data import ArrayData
from cavity.inference import EP, SEP, VI
from cavity.inference.base import factor_counts
from cavity.numerics.linalg import FactorizationError
from cavity.training.history import Event
from cavity.training.online import OnlineTrainer, tie_sites
from cavity.training.optimizers import Adam
from cavity.training.parameters import HyperPrior
from tests.problems import converge, random_problem, refresh
from tests.reference import oracle

PROBLEM = random_problem(seed=4, n_rows=30)


def stream(learned=(True, True)):
    model = PROBLEM.model(learned=learned)
    theta = model.start()
    state = SEP().init(model.prior(theta), torch.zeros(3, dtype=torch.float64), 0)
    return OnlineTrainer(model, HyperPrior(model, {}), Adam(0.02, decay=False), theta, state, 0.0)


def piece(start, stop):
    data = PROBLEM.data()
    return ArrayData(data.X[start:stop], data.y[start:stop], data.weight[start:stop], 3)


def test_the_first_rows_multiply_their_sites_into_the_prior():
    """With nothing in q yet the cavity is the prior: the sums of new sites, from loops."""
    K, upsilon, s = oracle.prior(PROBLEM.X[:6], *PROBLEM.hyper)
    prior = [(np.linalg.inv(K_k), np.zeros(len(K_k))) for K_k in K]
    T, t = np.zeros_like(K), np.zeros(K.shape[:2])
    for i, y, k in oracle.factors(PROBLEM.y[:6], 3):
        _, own, other = oracle.tilt(prior[y], prior[k], upsilon[y, i], upsilon[k, i], s[y, i], s[k, i])
        for j, (C1, C2) in ((y, own), (k, other)):
            T[j] += C1 * np.outer(upsilon[j, i], upsilon[j, i])
            t[j] += C2 * upsilon[j, i]
    run = stream(learned=(False, False))
    run.absorb(piece(0, 6), 100)
    np.testing.assert_allclose(run.state.T, T, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(run.state.t, t, rtol=1e-9, atol=1e-10)


def test_counts_and_weights_add_up():
    run = stream()
    for start in (0, 10, 20):
        (record,), is_learned = run.absorb(piece(start, start + 10), 4)
        assert is_learned.all()
    assert record["event"] is None
    assert run.weight_seen == 30
    torch.testing.assert_close(run.state.counts, factor_counts(PROBLEM.data().own_weight))


def test_hyper_parameters_move_only_where_they_are_learned():
    fixed, moving = stream(learned=(False, False)), stream()
    for run in (fixed, moving):
        run.absorb(piece(0, 30), 10)
    assert len(fixed.theta) == 0
    assert (moving.theta - moving.model.start()).abs().max() > 0.01


def test_more_rows_make_q_narrower():
    run, previous = stream(learned=(False, False)), np.inf
    for start in (0, 10, 20):
        run.absorb(piece(start, start + 10), 10)
        spread = np.trace(run.posterior().cov, axis1=1, axis2=2).sum()
        assert spread < previous
        previous = spread


def test_a_step_that_fails_keeps_the_hyper_parameters(monkeypatch):
    run = stream()
    monkeypatch.setattr(run.optimizer, "step", lambda theta, gradient, progress: theta * float("nan"))
    (record,), is_learned = run.absorb(piece(0, 10), 100)
    assert (record["event"], record["batches"]) == (Event.HYPERPARAMETERS_KEPT, 1)
    assert is_learned.all()
    assert "NaN or infinity" in record["reason"]
    assert torch.equal(run.theta, run.model.start())
    assert record["rate"] == pytest.approx(0.01)  # halved
    assert np.isfinite(run.posterior().mean).all()
    assert float(run.state.T.abs().sum()) > 0  # the rows themselves are in


def test_factorization_errors_stay_inside(monkeypatch):
    run = stream()

    def fail(*args):
        raise FactorizationError("made to fail")

    monkeypatch.setattr("cavity.training.step.pull_back", fail)
    assert run.absorb(piece(0, 10), 100)[0][0]["reason"] == "made to fail"


def test_rows_whose_sites_fail_are_left_out_and_reported(monkeypatch):
    """Neither q nor the weights count them."""
    run, other = stream(), stream()
    absorb, seen = SEP.absorb, []

    def second_fails(self, *args):
        seen.append(1)
        if len(seen) == 2:
            raise FactorizationError("made to fail")
        return absorb(self, *args)

    monkeypatch.setattr(SEP, "absorb", second_fails)
    (record,), is_learned = run.absorb(piece(0, 30), 10)
    assert (record["event"], record["rows"], record["reason"]) == (Event.ROWS_LEFT_OUT, 10, "made to fail")
    assert is_learned.tolist() == [True] * 10 + [False] * 10 + [True] * 10
    assert run.weight_seen == 20
    other.absorb(piece(0, 10), 10)
    other.absorb(piece(20, 30), 10)
    assert torch.equal(run.state.T, other.state.T)
    assert torch.equal(run.theta, other.theta)
    assert run.optimizer.learning_rate() == 0.02  # the rows are to blame, not the rate


def test_both_kinds_of_failure_are_reported(monkeypatch):
    run, absorb = stream(), SEP.absorb

    def fail_late(self, prior, f, state, batch):
        if float(batch.positions[0]) > 0:
            raise FactorizationError("no sites")
        return absorb(self, prior, f, state, batch)

    monkeypatch.setattr(SEP, "absorb", fail_late)
    monkeypatch.setattr(run.optimizer, "step", lambda theta, gradient, progress: theta * float("nan"))
    records, is_learned = run.absorb(piece(0, 20), 10)
    assert [record["event"] for record in records] == [Event.ROWS_LEFT_OUT, Event.HYPERPARAMETERS_KEPT]
    assert int(is_learned.sum()) == 10


def test_rows_that_spoil_q_are_left_out(monkeypatch):
    run, absorb = stream(), SEP.absorb
    spoiled = lambda self, *args: absorb(self, *args)._replace(t=run.state.t * torch.nan)  # noqa: E731
    monkeypatch.setattr(SEP, "absorb", spoiled)
    (record,), _ = run.absorb(piece(0, 10), 10)
    assert record["event"] == Event.ROWS_LEFT_OUT
    assert np.isfinite(run.posterior().mean).all()


def test_a_gradient_that_is_not_finite_does_not_spoil_later_steps(monkeypatch):
    run, calls = stream(), []

    def once(self, theta, gradient):
        calls.append(1)
        return gradient * torch.nan if len(calls) == 1 else gradient

    monkeypatch.setattr(HyperPrior, "add_gradient", once)
    records, _ = run.absorb(piece(0, 30), 10)
    assert [(record["event"], record["batches"]) for record in records] == [(Event.HYPERPARAMETERS_KEPT, 1)]
    assert torch.isfinite(run.theta).all()
    assert not torch.equal(run.theta, run.model.start())


def test_a_rate_halved_by_one_failure_recovers(monkeypatch):
    run, fail = stream(), [True]
    step = Adam.step
    monkeypatch.setattr(Adam, "step", lambda *args: step(*args) * (float("nan") if fail.pop() else 1.0))
    run.absorb(piece(0, 3), 3)
    assert run.optimizer.learning_rate() == 0.01
    for start in range(0, 30, 3):
        fail.append(False)
        run.absorb(piece(start, start + 3), 3)
    assert 0.012 < run.optimizer.learning_rate() < 0.02


# --- After EP ---


def after_ep():
    """A state of EP that has converged, with its sums made."""
    data, prior = PROBLEM.data(), PROBLEM.prior()
    state = converge(EP(), prior, data, tol=1e-8)
    return prior, refresh(EP(), prior, state, data.in_order(None)), data


def test_tied_sites_have_the_same_q():
    prior, state, data = after_ep()
    found = tie_sites(prior, state, data.own_weight)
    ep, sep = EP().posterior(prior, state), SEP().posterior(prior, found)
    np.testing.assert_array_equal(sep.mean, ep.mean)
    np.testing.assert_array_equal(sep.cov, ep.cov)


def test_a_state_of_vi_has_the_same_q_as_tied_sites():
    data, prior = PROBLEM.data(), PROBLEM.prior()
    state = converge(VI(), prior, data, tol=1e-8)
    vi, sep = VI().posterior(prior, state), SEP().posterior(prior, tie_sites(prior, state, data.own_weight))
    np.testing.assert_allclose(sep.mean, vi.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(sep.cov, vi.cov, rtol=1e-8, atol=1e-9)


def test_tied_sites_count_the_factors_of_every_row():
    prior, state, data = after_ep()
    expected = SEP().init(prior, data.own_weight, len(data)).counts
    torch.testing.assert_close(tie_sites(prior, state, data.own_weight).counts, expected, rtol=0, atol=0)


def test_a_stream_goes_on_from_tied_sites():
    """Old rows stay in q and new ones narrow it: the product of both."""
    prior, state, data = after_ep()
    model = PROBLEM.model(learned=(False, False))
    start = tie_sites(prior, state, data.own_weight)
    run = OnlineTrainer(model, HyperPrior(model, {}), Adam(0.02, decay=False), model.start(), start, 30.0)
    before = run.posterior()
    np.testing.assert_array_equal(before.mean, EP().posterior(prior, state).mean)
    assert run.absorb(piece(0, 10), 100)[0][0]["event"] is None
    assert run.weight_seen == 40
    added = run.state.T - start.T
    assert float(torch.linalg.eigvalsh(added).min()) > -1e-9
    assert np.trace(run.posterior().cov, axis1=1, axis2=2).sum() < np.trace(before.cov, axis1=1, axis2=2).sum()
