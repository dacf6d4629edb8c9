"""Rows that come in pieces and are forgotten."""

import numpy as np
import pytest
import torch

from cavity.data.training_data import ArrayData
from cavity.inference import EP, SEP
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
        record = run.absorb(piece(start, start + 10), 4)
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
    record = run.absorb(piece(0, 10), 100)
    assert (record["event"], record["batches"]) == (Event.HYPERPARAMETERS_KEPT, 1)
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
    assert run.absorb(piece(0, 10), 100)["reason"] == "made to fail"


# --- After EP ---


def after_ep():
    """A state of EP that has converged, with its sums made."""
    data, prior = PROBLEM.data(), PROBLEM.prior()
    state = converge(EP(), prior, data, tol=1e-8)
    return prior, refresh(EP(), prior, state, data.in_order(None)), data


def test_tied_sites_have_the_same_q():
    prior, state, data = after_ep()
    found = tie_sites(state, data.own_weight)
    ep, sep = EP().posterior(prior, state), SEP().posterior(prior, found)
    np.testing.assert_array_equal(sep.mean, ep.mean)
    np.testing.assert_array_equal(sep.cov, ep.cov)


def test_tied_sites_count_the_factors_of_every_row():
    prior, state, data = after_ep()
    expected = SEP().init(prior, data.own_weight, len(data)).counts
    torch.testing.assert_close(tie_sites(state, data.own_weight).counts, expected, rtol=0, atol=0)


def test_a_stream_goes_on_from_tied_sites():
    """Old rows stay in q and new ones narrow it: the product of both."""
    prior, state, data = after_ep()
    model = PROBLEM.model(learned=(False, False))
    start = tie_sites(state, data.own_weight)
    run = OnlineTrainer(model, HyperPrior(model, {}), Adam(0.02, decay=False), model.start(), start, 30.0)
    before = run.posterior()
    np.testing.assert_array_equal(before.mean, EP().posterior(prior, state).mean)
    assert run.absorb(piece(0, 10), 100)["event"] is None
    assert run.weight_seen == 40
    added = run.state.T - start.T
    assert float(torch.linalg.eigvalsh(added).min()) > -1e-9
    assert np.trace(run.posterior().cov, axis1=1, axis2=2).sum() < np.trace(before.cov, axis1=1, axis2=2).sum()
