"""EP on f itself agrees with EP at inducing points and with leaving rows out; its gradients with differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.data.training_data import ArrayData
from cavity.fitting.encoding import fit_encoding
from cavity.fitting.rows import TrainingRows
from cavity.fitting.search import NOISE, FullGP, covariance
from cavity.gp.prior import KERNEL
from cavity.gp.probabilities import log_p_of
from cavity.inference import EP, full
from cavity.inference.full import FullEP
from tests.problems import converge, objective, refresh

CPU = torch.device("cpu")
KERNELS = ("rbf", "matern12")


def some_rows(n=40, n_classes=3, seed=0, copies=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(np.int64) + (X[:, 1] > 0.7)
    weight = np.ones(n)
    if copies:
        X[5], weight[7] = X[4], 2.5  # two rows at one input, and copies
    return TrainingRows(X, np.minimum(y, n_classes - 1), weight)


def process(rows, n_classes=3):
    encoding = fit_encoding(None, None, *rows, n_classes)
    return FullGP.on_rows(rows, encoding, n_classes, KERNELS, CPU)


def fixed_point(gp, K, dtype=torch.float64):
    return FullEP.start(gp.labels, NOISE, dtype).converged(K, 500, 0.5, 1e-13 if dtype == torch.float64 else 1e-5).ep


@pytest.fixture
def at_convergence(monkeypatch):
    """The implicit part of the gradient, to the last digit."""
    monkeypatch.setattr(full, "ADJOINT_STEPS", 300)
    monkeypatch.setattr(full, "ADJOINT_TOL", 1e-11)


@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_the_gradients_are_those_of_finite_differences(at_convergence, n_classes):
    gp = process(some_rows(n_classes=n_classes), n_classes)
    model = gp.model(1.2, 8.0)
    generator = torch.Generator().manual_seed(0)
    theta = model.start() + 0.1 * torch.randn(len(model.start()), generator=generator, dtype=torch.float64)

    def values(theta, sharpness=1.3):
        K = covariance(model.prior(theta))
        ep = fixed_point(gp, K)
        q = ep.latent(K)
        return ep, q, torch.tensor([ep.prediction(q, sharpness).log_density, ep.log_z(q)[0]], dtype=torch.float64)

    ep, q, _ = values(theta)
    found, bound = ep.prediction(q, 1.3), model.prior(theta).bound
    blocks = bound.blocks(torch.zeros(0, 3, dtype=torch.float64))
    n = gp.labels.n_inputs

    def by_theta(by_K):
        by = bound.pull_back(blocks, by_K.clone(), by_K.new_zeros(n_classes, n, 0), by_K.new_zeros(n_classes, 0))
        return model.join({KERNEL + name: v for name, v in by.by_params.items()})

    gradients = torch.stack([by_theta(found.by_K), by_theta(ep.log_z_by_K(q))])
    step = 1e-4
    for j in range(0, len(theta), 4):
        e = torch.zeros_like(theta)
        e[j] = step
        slope = (values(theta + e)[2] - values(theta - e)[2]) / (2 * step)
        torch.testing.assert_close(gradients[:, j], slope, rtol=1e-5, atol=1e-6)
    up, down = (values(theta, 1.3 * np.exp(s))[2][0] for s in (step, -step))
    assert found.by_log_sharpness == pytest.approx(float(up - down) / (2 * step), rel=1e-6)


def test_it_is_ep_with_all_rows_as_inducing_points():
    """The same fixed point, log Z and predictions as the general algebra."""
    rows = some_rows(n=25, copies=False)
    gp = process(rows)
    model = gp.model(1.2, 8.0)
    K = covariance(model.prior(model.start()))
    ep = fixed_point(gp, K)
    q = ep.latent(K)
    prior = model.prior(model.start())
    data = ArrayData(*map(torch.from_numpy, rows), 3)
    state = converge(EP(), prior, data)
    f = prior.conditional(data.X)
    log_z = objective(EP(), prior, f, state, data.full).log_z
    state = refresh(EP(), prior, state, [data.full])
    a, h = EP().q(prior, state).project(prior.conditional(torch.from_numpy(gp.features)).W)
    torch.testing.assert_close(q.mean, a, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(q.var, h, rtol=1e-5, atol=1e-6)
    assert ep.log_z(q)[0] == pytest.approx(float(log_z), abs=1e-5)


def test_a_row_is_predicted_as_if_it_had_not_been_there():
    rows = some_rows(n=60, copies=False)
    gp = process(rows)
    model = gp.model(1.5, 8.0)
    K = covariance(model.prior(model.start()))
    ep = fixed_point(gp, K)
    inside, errors = log_p_of(*ep.left_out(ep.latent(K)), 0.0), []
    for i in range(0, 60, 7):
        kept = np.delete(np.arange(60), i)
        part = process(rows.take(kept))
        part_model = part.model(1.5, 8.0)
        part_K = covariance(part_model.prior(part_model.start()))
        without = fixed_point(part, part_K)
        q = without.latent(part_K)
        at = int(gp.labels.input[i])
        others = np.flatnonzero(np.arange(60) != at)
        cross = K[:, others, at]
        half = q.root * cross
        mean = (q.pull * cross).sum(-1)
        var = K[:, at, at] - (half * torch.matmul(q.inverse, half[..., None])[..., 0]).sum(-1) + NOISE
        outside = log_p_of(mean[:, None], var[:, None], 0.0)[:, 0]
        errors.append(float((inside[:, i].exp() - outside.exp()).abs().max()))
    assert max(errors) < 0.1
    assert np.mean(errors) < 0.03


def test_weights_are_copies():
    rows = some_rows(n=30, copies=False)
    twice = np.concatenate([np.arange(30), [3, 3, 8]])
    weight = np.bincount(twice).astype(float)
    found = []
    for given in (rows._replace(weight=weight), rows.take(twice)):
        gp = process(given)
        model = gp.model(1.2, 8.0)
        K = covariance(model.prior(model.start()))
        ep = fixed_point(gp, K)
        q = ep.latent(K)
        found.append((q.mean, q.var, ep.log_z(q)[0], ep.prediction(q, 1.0).log_density))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-7, atol=1e-8)


def test_single_precision_is_enough_for_a_search():
    gp = process(some_rows(n=120))
    model = gp.model(2.0, 200.0)
    K = covariance(model.prior(model.start()))
    exact = fixed_point(gp, K)
    coarse = replace(exact, dtype=torch.float32)
    a, b = (ep.prediction(ep.latent(K), 1.2) for ep in (exact, coarse))
    assert b.log_density == pytest.approx(a.log_density, rel=1e-3)
    assert float((a.by_K * b.by_K).sum() / (a.by_K.norm() * b.by_K.norm())) > 0.99


@pytest.mark.parametrize("variance", [1e-6, 1e6])
def test_extreme_variances_give_finite_numbers(variance):
    gp = process(some_rows())
    model = gp.model(1.0, variance)
    K = covariance(model.prior(model.start()))
    ep = FullEP.start(gp.labels, NOISE).converged(K, 30, 0.5, 0.0).ep
    found = ep.prediction(ep.latent(K), 1.0)
    assert np.isfinite(found.log_density)
    assert bool(found.by_K.isfinite().all())
