"""Power EP: gradients, its two ends EP and the variational bound, batches, and the classifier."""

import pickle

import numpy as np
import pytest
import torch

import cavity.gp.sites
from cavity import GPClassifier
from cavity.gp.gradients import pull_back
from cavity.inference import EP, SEP
from cavity.training.fixed_point import relative_change
from tests.problems import converge, objective, random_problem, refresh, shuffled, update
from tests.reference.test_inference import log_z_and_gradient, q_of, signs, slope_at_the_fixed_point

PROBLEM = random_problem(seed=41, n_rows=12, n_inducing=3)
BOTH = pytest.mark.parametrize("method", [EP, SEP])


def blobs(n_rows=60):
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % 3
    return rng.normal(size=(n_rows, 2)) + 2.0 * np.stack([np.cos(2.1 * y), np.sin(2.1 * y)], 1), y


# --- Gradients ---


def test_ep_gradient_is_the_slope_of_log_z():
    """At the fixed point, with the sites free to follow; there the exact form adds nothing."""
    method, model, data = EP(0.5), PROBLEM.model(), PROBLEM.data()
    state = converge(method, model.prior(model.start()), data)
    inner, exact = (log_z_and_gradient(method, model, model.start(), state, data, e)[1] for e in (False, True))
    for block, value in inner.items():
        expected = slope_at_the_fixed_point(method, model, data, state, block)
        assert np.sum(value.ravel() * signs(value.size)) == pytest.approx(expected, rel=1e-6, abs=1e-7), block
        np.testing.assert_allclose(exact[block], value, rtol=0, atol=1e-8 * np.abs(value).max(), err_msg=block)


def test_sep_gradient_is_the_slope_of_log_z():
    """The exact one, with the tied sites held fixed in u-space: log Z of SEP is not stationary in them."""
    method, model, data = SEP(0.5), PROBLEM.model(), PROBLEM.data()
    theta, step = model.start(), 1e-3
    state = converge(method, model.prior(theta), data)
    prior = model.prior(theta)
    f = prior.conditional(data.X)
    by_block = pull_back(prior, f, objective(method, prior, f, state, data.full, exact=True).gradient)
    direction = torch.from_numpy(signs(len(theta)))

    def log_z(shift):
        prior = model.prior(theta + shift * direction)
        return float(objective(method, prior, prior.conditional(data.X), state, data.full).log_z)

    expected = (8 * (log_z(step) - log_z(-step)) - (log_z(2 * step) - log_z(-2 * step))) / (12 * step)
    assert float(model.join(by_block) @ direction) == pytest.approx(expected, rel=1e-7)


# --- The two ends ---


@BOTH
def test_at_one_no_quadrature_runs(method, monkeypatch):
    expected = converge(method(), PROBLEM.prior(), PROBLEM.data())
    monkeypatch.setattr(cavity.gp.sites, "power_tilted", None)
    found = converge(method(1.0), PROBLEM.prior(), PROBLEM.data())
    assert relative_change(found, expected) == 0


@BOTH
def test_just_below_one_it_is_ep(method):
    prior, data, results = PROBLEM.prior(), PROBLEM.data(), []
    for alpha in (1.0, 1.0 - 1e-9):
        state = converge(method(alpha), prior, data)
        q = q_of(method(alpha), prior, state, data)
        log_z = objective(method(alpha), prior, prior.conditional(data.X), state, data.full).log_z
        results.append((q.mean, q.cov, torch.as_tensor(log_z)))
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(torch.as_tensor(x), torch.as_tensor(y), rtol=1e-7, atol=1e-7)


def variational_optimum(prior, data):
    """The q that maximizes Σ E_q[log Φ] − KL[q ‖ p], and that bound; by direct optimization in whitened coordinates."""
    f, own = prior.conditional(data.X), data.full.own
    C, M = len(f.W), f.W.shape[1]
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    x = torch.zeros(C, M + M * M, dtype=torch.float64, requires_grad=True)

    def moments():
        lower = x[:, M:].reshape(C, M, M)
        return x[:, :M], lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())

    def bound():
        mean, factor = moments()
        a, h = torch.einsum("km,kmi->ki", mean, f.W), (factor.mT @ f.W).square().sum(1)
        y = data.y
        a, h, s = (q.gather(0, y[None])[0] - sign * q for q, sign in ((a, 1.0), (h, -1.0), (f.s, -1.0)))
        values = torch.special.log_ndtr((a + h.sqrt() * nodes[:, None, None]) / s.sqrt())
        expected = (weights[:, None, None] * values).sum(0)[~own].sum()
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum()
        return expected - 0.5 * (factor.square().sum() + mean.square().sum() - C * M) + log_det

    optimizer = torch.optim.LBFGS([x], max_iter=500, tolerance_grad=1e-10, tolerance_change=0.0,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def loss():
        optimizer.zero_grad()
        value = -bound()
        value.backward()
        return value

    optimizer.step(loss)
    mean, factor = (m.detach() for m in moments())
    return mean, factor @ factor.mT, float(bound().detach())


@BOTH
def test_a_small_power_is_the_variational_optimum(method):
    """The difference vanishes in proportion to α, for the moments of q and for log Z."""
    prior, data = PROBLEM.prior(), PROBLEM.data()
    mean, cov, bound = variational_optimum(prior, data)
    differences = []
    for alpha in (1.0, 0.04, 0.02):
        state = converge(method(alpha), prior, data, tol=1e-10)
        q = q_of(method(alpha), prior, state, data).whitened
        log_z = float(objective(method(alpha), prior, prior.conditional(data.X), state, data.full).log_z)
        differences.append([float((q.m - mean).abs().max()), float((q.covariance - cov).abs().max()), log_z - bound])
    ep, larger, small = np.array(differences)
    assert (small > 0).all()
    assert (small < 0.05 * ep).all()
    np.testing.assert_allclose(larger / small, 2.0, rtol=0.1)


# --- Batches, streams, the classifier ---


def test_mini_batches_end_at_the_fixed_point_of_all_rows():
    prior, data, method = PROBLEM.prior(), PROBLEM.data(), EP(0.5)
    state, generator = method.init(prior, data.own_weight, len(data)), torch.Generator().manual_seed(0)
    for _ in range(80):
        for batch in shuffled(data, 5, generator):
            state = update(method, prior, prior.conditional(batch.X), state, batch, 0.8)
    found, expected = (refresh(method, prior, s, data.in_order(None)) for s in (state, converge(method, prior, data)))
    torch.testing.assert_close(found.T, expected.T, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.t, expected.t, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("method", "batch_size"), [("ep", None), ("ep", 20), ("sep", None), ("sep", 20)])
def test_a_fit_predicts_probabilities(method, batch_size):
    X, y = blobs()
    settings = {"n_inducing": 8, "batch_size": batch_size, "max_epochs": 15, "random_state": 0, "device": "cpu"}
    power, plain = (GPClassifier(method, alpha=alpha, **settings).fit(X, y) for alpha in (0.5, 1.0))
    p = power.predict_proba(X)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert (power.predict(X) == y).mean() > 0.8
    assert 1e-4 < np.abs(p - plain.predict_proba(X)).max() < 0.3


def test_a_checkpoint_of_another_power_is_refused(tmp_path):
    X, y = blobs()
    settings = {"n_inducing": 6, "max_epochs": 3, "calibrate": False, "random_state": 0, "checkpoint": str(tmp_path)}
    GPClassifier(alpha=0.5, **settings).fit(X, y)
    with pytest.raises(ValueError, match=r"alpha: 0.5 in the checkpoint, 1.0 now"):
        GPClassifier(**settings).fit(X, y, resume=True)


def test_a_model_file_keeps_the_argument(tmp_path):
    X, y = blobs()
    fitted = GPClassifier(alpha=0.5, n_inducing=6, max_epochs=5, random_state=0, calibrate=False).fit(X, y)
    fitted.save(tmp_path / "model.cavity")
    loaded = cavity.load(tmp_path / "model.cavity")
    assert loaded.alpha == 0.5
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_a_stream_uses_it():
    """Its sites are those of SEP with this power, also after a pickle."""
    X, y = blobs()
    settings = {"method": "sep", "n_inducing": 6, "random_state": 0, "learn_kernel": False, "learn_inducing": False}
    first = GPClassifier(alpha=0.5, **settings).partial_fit(X[:30], y[:30], classes=[0, 1, 2])
    again = pickle.loads(pickle.dumps(first))
    p = first.partial_fit(X[30:], y[30:]).predict_proba(X)
    np.testing.assert_array_equal(again.partial_fit(X[30:], y[30:]).predict_proba(X), p)
    plain = GPClassifier(**settings).partial_fit(X[:30], y[:30], classes=[0, 1, 2]).partial_fit(X[30:], y[30:])
    assert np.abs(p - plain.predict_proba(X)).max() > 1e-3
    assert first._online._trainer.alpha == 0.5
