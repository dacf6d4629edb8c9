"""EP at inducing points predicts every row from the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.data.training_data import ArrayData
from cavity.gp.gaussian import Whitened, sum_of_sites
from cavity.gp.probabilities import log_p_of
from cavity.gp.sites import collect
from cavity.inference import EP
from cavity.inference.base import RowSites
from cavity.inference.ep import leave_one_out
from tests.problems import converge, random_problem, sweeps


def problem(n_rows=40, seed=0, noise_in_u=True):
    """Rows of three classes, the prior and the data."""
    made = random_problem(seed, n_rows, n_inducing=8)
    return made, replace(made.prior(), noise_in_u=noise_in_u), made.data()


def q_of(prior, state, data, weight=None):
    """q from the sites of all rows, each as often as its weight says, and the projections of the rows."""
    f, batch = prior.conditional(data.X), data.full
    weight = batch.weight if weight is None else weight
    sums = sum_of_sites(f.W, *(collect(x, batch.own) * weight for x in state.sites(batch)))
    return Whitened.from_sites(*sums), f


def left_out(prior, data):
    """The leave-one-out predictions at the fixed point, and the state."""
    state = converge(EP(), prior, data)
    return leave_one_out(prior, state, q_of(prior, state, data)[0], data.full), state


@pytest.mark.parametrize("noise_in_u", [True, False])
def test_leaving_a_row_out_removes_its_sites_and_no_others(noise_in_u):
    _, prior, data = problem(noise_in_u=noise_in_u)
    (mean, var), state = left_out(prior, data)
    for i in range(0, len(data), 6):
        weight = torch.ones(len(data), dtype=torch.float64)
        weight[i] = 0.0
        q, f = q_of(prior, state, data, weight)
        a, h = q.project(f.W[..., [i]])
        torch.testing.assert_close(mean[:, [i]], a, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(var[:, [i]], h + f.s[:, [i]], rtol=1e-8, atol=1e-9)


def test_a_row_is_predicted_as_if_it_had_not_been_there():
    """By EP that has never seen it."""
    made, prior, data = problem(60)
    found, state = left_out(prior, data)
    inside = log_p_of(*found, 0.0).exp()
    a, h = q_of(prior, state, data)[0].project(prior.conditional(data.X).W)
    known = log_p_of(a, h + prior.conditional(data.X).s, 0.0).exp()  # with the row's own label
    errors, of_known = [], []
    for i in range(0, 60, 5):
        kept = np.delete(np.arange(60), i)
        part = replace(made, X=made.X[kept], y=made.y[kept]).data()
        q, _ = q_of(prior, converge(EP(), prior, part, tol=1e-6), part)
        f = prior.conditional(data.X[[i]])
        a, h = q.project(f.W)
        outside = log_p_of(a, h + f.s, 0.0)[:, 0].exp()
        errors.append(float((inside[:, i] - outside).abs().max()))
        of_known.append(float((known[:, i] - outside).abs().max()))
    assert max(errors) < 0.06
    assert np.mean(errors) < 0.015
    assert np.mean(of_known) > 2.0 * np.mean(errors)


def test_of_copies_one_is_left_out():
    made, prior, _ = problem()
    weight = np.ones(40)
    weight[[3, 8]] = 3.0, 2.0
    copies = np.repeat(np.arange(40), weight.astype(int))
    weighted, _ = left_out(prior, replace(made, weight=weight).data())
    repeated, _ = left_out(prior, replace(made, X=made.X[copies], y=made.y[copies]).data())
    single, _ = left_out(prior, made.data())
    for a, b, c in zip(weighted, repeated, single, strict=True):
        torch.testing.assert_close(a[:, copies], b, rtol=1e-6, atol=1e-7)
        assert float((a - c).abs().max()) > 0.01


def test_without_sites_it_is_the_prior():
    _, prior, data = problem()
    state = EP().init(prior, data.own_weight, len(data))
    f = prior.conditional(data.X)
    mean, var = leave_one_out(prior, state, q_of(prior, state, data)[0], data.full)
    assert not mean.any()
    torch.testing.assert_close(var, f.W.square().sum(-2) + f.s)


def test_no_variance_exceeds_that_of_the_prior():
    """Before EP has converged, the sites of a row can be more precise than q."""
    _, prior, data = problem()
    state = sweeps(EP(), prior, data, 3, damping=1.0)
    q, f = q_of(prior, state, data)
    sharp = RowSites(type(state.store)(100.0 * state.store.precision, state.store.precision_mean), state.T, state.t)
    mean, var = leave_one_out(prior, sharp, q, data.full)
    assert bool((var <= (f.W.square().sum(-2) + f.s) * (1 + 1e-12)).all())
    assert bool((var > 0).all())
    assert bool(mean.isfinite().all())


def test_a_shard_of_the_rows_gives_its_part():
    """As each of several processes sees it: q is that of all rows."""
    _, prior, data = problem()
    (mean, var), state = left_out(prior, data)
    q, _ = q_of(prior, state, data)
    part = ArrayData(data.X[10:25], data.y[10:25], data.weight[10:25], 3)
    sites = RowSites(type(state.store)(*(x[..., 10:25] for x in state.store)), state.T, state.t)
    found = leave_one_out(prior, sites, q, part.full)
    for one, whole in zip(found, (mean, var), strict=True):
        torch.testing.assert_close(one, whole[:, 10:25], rtol=1e-12, atol=1e-12)
