"""What labels would teach, against dense algebra, differences and samples."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import xlogy

from cavity.gp import information
from cavity.gp.gaussian import Posterior
from cavity.gp.information import choose_rows, screened_information
from cavity.gp.probabilities import log_p_of, moments, uncertainty
from cavity.gp.residual import Residual
from cavity.kernels import RBF, Matern12
from tests.models import posterior

X = torch.from_numpy(np.random.default_rng(3).normal(0.0, 1.5, (40, 2)))
RESIDUAL = Residual(
    torch.tensor([[0.0, 0.5, 1.0]] * 3, dtype=torch.float64),
    torch.tensor([[0.2, 0.5, 0.9]] * 3, dtype=torch.float64),
    torch.full((3,), 0.3, dtype=torch.float64),
)
CASES = {
    "plain": {},
    "shared": {"shared": (True, True)},
    "sum": {"kernel": RBF() + Matern12()},
    "residual": {"residual": RESIDUAL},
    "widened": {"residual": RESIDUAL, "sharpness": 0.6},
    "random labels": {"epsilon": 0.1},
    "mixed": {"residual": RESIDUAL, "epsilon": torch.tensor([0.01, 0.0, 0.05], dtype=torch.float64)},
}
EVERY = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def q(case):
    return posterior(**CASES[case])


def dense(q):
    """The covariance of the open part of f at all rows, (C, N, N), by its definition."""
    f = q.prior.conditional(X, in_double=True)
    k = q.prior.kernel.bind(q.prior.params, X[None], X.dtype).gram
    half = q.whitened.R_inverse @ f.W
    residual = k - f.W.mT @ f.W
    share = torch.ones(3, len(X), dtype=torch.float64)
    if q.residual is not None:
        c = (f.s - q.prior.noise[:, None]).clamp_min(0.0)
        share = q.residual.open_share(c, f.blocks.diag.expand_as(c))
    root = share.sqrt()
    V = half.mT @ half + root[:, :, None] * residual * root[:, None]
    scale = (q.parts(X)[1] / V.diagonal(dim1=1, dim2=2)).sqrt()
    return scale[:, :, None] * V * scale[:, None]


@EVERY
def test_the_covariance_of_the_open_part(q):
    open_var, V = moments(q, X, Posterior.parts)[1], dense(q)
    joint = information._OpenPart(q, X, open_var)
    found = joint.columns(torch.arange(len(X)))
    torch.testing.assert_close(found, V, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), open_var)
    assert torch.linalg.eigvalsh(found).min() > -1e-8


@EVERY
def test_rows_are_chosen_as_by_conditioning_on_measurements(q):
    """The same by dense algebra: a measurement of precision τ with (1 − t)v = v/(1 + τv)."""
    mean, open_var, rest = moments(q, X, Posterior.parts)
    mean, V = q.sharpness * mean, dense(q)
    chosen, scores = choose_rows(q, X, 6)
    assert chosen[0] == uncertainty(q, X).epistemic.argmax()
    np.testing.assert_allclose(scores[0], uncertainty(q, X).epistemic.clip(min=0.0))
    nodes, pair_nodes = information._nodes(q), information._nodes(q, information.PAIR_NODES)

    def mean_entropy(left):
        spread = (open_var - left).clamp_min(0.0).sqrt()
        return torch.stack([information._entropy(mean + spread * z, left + rest) for z in nodes]).mean(0)

    known = mean_entropy(torch.zeros_like(open_var))
    for step, i in enumerate(chosen):
        left = V.diagonal(dim1=1, dim2=2)
        share = ((mean_entropy(left) - known) / (mean_entropy(open_var) - known)).clamp(0.0, 1.0).numpy()
        expected = scores[0] * share
        kept = ~np.isnan(scores[step])
        assert set(np.flatnonzero(~kept)) == set(chosen[:step])
        np.testing.assert_allclose(scores[step, kept], expected[kept], rtol=1e-5, atol=1e-8)
        assert i == np.flatnonzero(kept)[expected[kept].argmax()]
        v = left[:, i]
        t = information._share_learned(mean[:, i], open_var[:, i], rest[:, i], v, nodes, pair_nodes)
        precision = t / ((1.0 - t) * v)
        V = V - (precision / (1.0 + precision * v))[:, None, None] * V[:, :, i, None] * V[:, i, None]


@EVERY
def test_rows_are_chosen_for_what_they_teach_about_others(q):
    """The score by its definition, before and after the first choice."""
    targets = X[25:]
    chosen, scores = choose_rows(q, X[:25], 2, targets)
    V, (mean, open_var, rest) = dense(q), moments(q, X, Posterior.parts)
    mean, nodes, pair_nodes = q.sharpness * mean, information._nodes(q), information._nodes(q, information.PAIR_NODES)
    for step, i in enumerate(chosen):
        left = V.diagonal(dim1=1, dim2=2)
        left_in = information._mean_entropy(mean, (open_var - left).clamp_min(0.0), left + rest, nodes)
        left_in = left_in - information._mean_entropy(mean, open_var, rest, nodes)
        squares = (V**2 / (left[:, None] * left[:, :, None])).mean(0)
        expected = ((1.0 - torch.exp(-2.0 * left_in[:25])) * (left_in[25:, None] * squares[25:, :25]).sum(0)).numpy()
        kept = ~np.isnan(scores[step])
        np.testing.assert_allclose(scores[step, kept], expected[kept], rtol=1e-4)
        assert i == np.flatnonzero(kept)[expected[kept].argmax()]
        t = information._share_learned(mean[:, i], open_var[:, i], rest[:, i], left[:, i], nodes, pair_nodes)
        V = V - (t / left[:, i])[:, None, None] * V[:, :, i, None] * V[:, i, None]


@EVERY
def test_the_information_left_falls_with_every_choice(q):
    _, scores = choose_rows(q, X, len(X))
    assert np.isfinite(scores[~np.isnan(scores)]).all()
    assert (scores[~np.isnan(scores)] >= 0.0).all()
    for before, after in pairwise(scores):
        kept = ~np.isnan(after)
        assert (after[kept] <= before[kept] + 2e-3).all()  # coarse sums


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_a_second_label_of_a_row_has_what_the_first_one_left(scale):
    """The information in it, by samples of f and two labels, relative to that in the first."""
    mean, open_var, rest = (
        torch.tensor(x, dtype=torch.float64) for x in ([0.5, 0.0, -0.3], [2.0, 1.0, 0.5], [0.2] * 3)
    )
    open_var, rng, n = scale * open_var, np.random.default_rng(0), 300_000
    f = mean.numpy() + np.sqrt(open_var.numpy()) * rng.standard_normal((n, 3))
    p = log_p_of(torch.from_numpy(f.T.copy()), torch.full((3, n), 0.2, dtype=torch.float64), 0.0).exp().numpy()
    known, first, pair = -xlogy(p, p).sum(0).mean(), p.mean(1), p @ p.T / n
    first, pair = (-xlogy(x, x).sum() for x in (first, pair))
    expected = (pair - first - known) / (first - known)
    nodes, pair_nodes = information._nodes(posterior()), information._nodes(posterior(), information.PAIR_NODES)
    t = information._share_learned(mean, open_var, rest, open_var, nodes, pair_nodes)
    assert ((t > 0.0) & (t < 1.0)).all()
    assert (t == t[0]).all()
    rows = [part[:, None] for part in (mean, t * open_var, (1.0 - t) * open_var + rest)]
    nothing, everything = (
        information._mean_entropy(
            mean[:, None], open_var[:, None] * share, rest[:, None] + open_var[:, None] * (1 - share), nodes
        )
        for share in (0.0, 1.0)
    )
    found = (information._mean_entropy(*rows, nodes) - everything) / (nothing - everything)
    assert float(found) == pytest.approx(float(expected), abs=0.04)


@EVERY
def test_screening_finds_rows_as_good_as_the_best(q):
    exact, screened = uncertainty(q, X).epistemic, screened_information(q, X)
    found, best = exact[np.argsort(-screened)[:8]], np.sort(exact)[-8:]
    assert found.mean() > 0.97 * best.mean()
    assert np.corrcoef(exact, screened)[0, 1] > 0.8


@pytest.mark.parametrize("n_classes", [2, 7, 25])
def test_any_number_of_classes(n_classes):
    q = posterior(n_classes=n_classes)
    screened = screened_information(q, X)
    chosen, scores = choose_rows(q, X, 3)
    assert np.isfinite(screened).all()
    assert len(set(chosen)) == 3
    assert np.isfinite(scores[0]).all()


def test_rows_that_teach_nothing_have_no_nan():
    q = posterior(n_inducing=3)
    sure = Posterior(q.prior, type(q.whitened)(1e-9 * q.whitened.R_inverse, 1e6 * q.whitened.m), residual=RESIDUAL)
    chosen, scores = choose_rows(sure, X[:5], 5)
    assert sorted(chosen) == [0, 1, 2, 3, 4]
    assert np.isfinite(scores[0]).all()
