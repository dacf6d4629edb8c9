"""Steps that skip work equal those that do not: the cavity of SEP by a series, products in single precision."""

from dataclasses import replace

import pytest
import torch

from cavity.gp.gaussian import SERIES, Thinned
from cavity.gp.gradients import pull_back
from cavity.inference import EP, SEP, VI
from tests.problems import objective, random_problem, refresh, shuffled, update

PROBLEM = random_problem(seed=5, n_rows=40)


def step(method, model, data, state, prior, is_batch=False):
    """log Z and the gradient by all hyper-parameters after an update with one batch."""
    batch = shuffled(data, 15, torch.Generator().manual_seed(0))[0]
    f = prior.conditional(batch.X.to(prior.dtype), is_batch=is_batch)
    state = update(method, prior, f, state, batch, 0.3)
    found = objective(method, prior, f, state, batch)
    assert found.gradient is not None
    return found.log_z, model.join(pull_back(prior, f, found.gradient))


@pytest.mark.parametrize("removed", SERIES.values())
def test_sep_by_a_series_is_sep(monkeypatch, removed):
    model, data, method = PROBLEM.model(), PROBLEM.data(), SEP()
    prior = model.prior(model.start())
    state = method.init(prior, data.own_weight / removed, len(data))
    assert Thinned.terms_for(1.0 - 1.0 / state.counts) is not None
    by_series = step(method, model, data, state, prior)
    monkeypatch.setattr(Thinned, "terms_for", lambda keep: None)
    by_factor = step(method, model, data, state, prior)
    assert not torch.equal(by_series[1], by_factor[1])
    for found, expected in zip(by_series, by_factor, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()))


@pytest.mark.parametrize("method", [EP, SEP, VI])
def test_a_step_in_single_precision_is_close(method):
    model, data, method = PROBLEM.model(), PROBLEM.data(), method()
    found = []
    for dtype in (torch.float64, torch.float32):
        one = replace(model, dtype=dtype)
        prior = one.prior(one.start())
        state = refresh(method, prior, method.init(prior, data.own_weight, len(data)), [data.full])
        found.append(step(method, one, data, state, prior, is_batch=True)[1])
    double, single = found
    assert double.dtype == single.dtype == torch.float64
    assert 0 < (single - double).norm() < 1e-4 * double.norm()


def test_a_batch_has_products_in_single_precision_and_all_rows_have_not():
    prior = PROBLEM.prior(dtype=torch.float32)
    X = PROBLEM.data().X.float()
    assert prior.conditional(X, is_batch=True).W.dtype == torch.float32
    assert prior.conditional(X).W.dtype == prior.conditional(X, is_batch=True).s.dtype == torch.float64
