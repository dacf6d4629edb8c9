"""How much of the variance of f given u the training rows leave open."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.gp import probabilities as predict
from cavity.gp.residual import SAMPLE_ROWS, Residual, measure_residual
from cavity.kernels import RBF
from tests.models import posterior

BORDER, FAR = np.array([[0.5, 0.5], [0.0, 0.0], [1.0, 1.0]]), np.array([[10.0, 10.0]])


def fixed(method="ep", **changes):
    """A classifier that only infers q(u)."""
    settings = {"learn_kernel": False, "learn_inducing": False, "scaling": None, "device": "cpu", "random_state": 0}
    return GPClassifier(method, **(settings | changes))


def clouds(n, labels="clouds", seed=0):
    rng = np.random.default_rng(seed)
    cloud = rng.integers(0, 2, n)
    X = rng.standard_normal((n, 2)) + cloud[:, None]
    return X, cloud if labels == "clouds" else rng.integers(0, 2, n)


@pytest.mark.filterwarnings("ignore:.* has not converged:cavity.runtime.warnings.CavityWarning")
@pytest.mark.parametrize("labels", ["clouds", "random"])
@pytest.mark.parametrize("method", ["ep", "sep", "gfitc"])
def test_inside_the_data_epistemic_uncertainty_falls_with_rows(method, labels):
    """M and the hyper-parameters are fixed, and much of f is not determined by u."""
    found = []
    for n in (60, 400, 2400):
        X, y = clouds(n, labels)
        clf = fixed(method, kernel=RBF(0.6, 4.0), noise=0.05, n_inducing=15, max_epochs=50).fit(X, y)
        inside, far = clf.uncertainty(BORDER), clf.uncertainty(FAR)
        assert far.epistemic > inside.epistemic.max()
        np.testing.assert_allclose(inside.total, inside.aleatoric + inside.epistemic, atol=1e-15)
        found.append(inside.epistemic)
    assert (found[1] < 0.5 * found[0]).all()
    assert (found[2] < 0.5 * found[1]).all()
    assert found[2].max() < 0.03


def test_the_issue_of_two_clouds():
    """Learned hyper-parameters: 0.27, 0.34, 0.40 nats in version 0.1.0."""
    found = [
        GPClassifier("ep", n_inducing=50, calibrate=False, device="cpu", random_state=0)
        .fit(*clouds(n))
        .uncertainty(BORDER[:1])
        .epistemic[0]
        for n in (100, 400, 1600)
    ]
    assert found[0] > 2 * found[1] > 4 * found[2]
    assert found[2] < 0.03


def test_noise_that_calibration_finds_is_aleatoric_inside_the_data_only():
    """A sharpness below 1 widens f at all rows; far away the function is as unknown as before."""
    X, y = clouds(400)
    clf = fixed(kernel=RBF(0.6, 4.0), noise=0.05, n_inducing=15).fit(X, y)
    q = replace(clf.posterior_, sharpness=0.2)
    inside, far = (predict.uncertainty(q, torch.from_numpy(at)) for at in (BORDER, FAR))
    assert (inside.total >= clf.uncertainty(BORDER).total).all()
    assert (inside.epistemic < clf.uncertainty(BORDER).epistemic).all()
    assert far.epistemic > max(0.3, 10 * inside.epistemic.max())


def test_random_labels_that_calibration_finds_are_aleatoric_inside_the_data_only():
    X, y = clouds(400)
    clf = fixed(kernel=RBF(0.6, 4.0), noise=0.05, n_inducing=15).fit(X, y)
    q = replace(clf.posterior_, epsilon=torch.tensor([0.45, 0.45], dtype=torch.float64))
    inside, far = (predict.uncertainty(q, torch.from_numpy(at)) for at in (BORDER, FAR))
    for found in (inside, far):
        np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, atol=1e-15)
        assert (found.epistemic >= 0).all()
    assert (inside.epistemic < 0.2 * clf.uncertainty(BORDER).epistemic).all()
    assert far.epistemic > 0.2


def test_copies_of_one_row_leave_the_share_of_a_single_place():
    """n rows at one place, each of precision Δ: 1 / (1 + n Δ c)."""
    q, n = posterior(), 40.0
    X = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    f = q.prior.conditional(X, in_double=True)
    c = (f.s - q.prior.noise[:, None])[:, 0]
    found = measure_residual(q, X, torch.tensor([n], dtype=torch.float64), n)
    P = torch.linalg.inv(q.whitened.covariance)
    gain = (P.diagonal(dim1=-2, dim2=-1) - 1).sum(-1).clamp_min(0)
    precision = gain / (n * f.W.square().sum(-2)[:, 0])
    torch.testing.assert_close(found.share[:, 0], 1 / (1 + (n - 1) * precision * c))
    torch.testing.assert_close(found.variance[:, -1], c)


def test_weights_are_copies():
    q, rng = posterior(), np.random.default_rng(0)
    X, weight = torch.from_numpy(rng.normal(size=(30, 2))), torch.from_numpy(rng.integers(1, 5, 30)).double()
    copies = X.repeat_interleave(weight.long(), 0)
    merged = measure_residual(q, X, weight, float(weight.sum()))
    apart = measure_residual(q, copies, torch.ones(len(copies)).double(), float(weight.sum()))
    c = torch.full((3, 1), 0.3).double()
    one, other = (part.open_share(c, torch.ones_like(c)) for part in (merged, apart))
    torch.testing.assert_close(one, other, rtol=0.2, atol=0.0)  # bins hold other rows


def test_the_share_between_and_beyond_the_measured_values():
    residual = Residual(
        torch.tensor([[0.1, 0.2, 0.4]]).double(), torch.tensor([[0.8, 0.4, 0.2]]).double(), torch.ones(1).double()
    )
    c = torch.tensor([[0.0, 0.1, 0.15, 0.3, 0.4, 0.7, 1.0]]).double()
    found = residual.open_share(c, torch.ones_like(c))
    torch.testing.assert_close(found, torch.tensor([[0.8, 0.8, 0.6, 0.3, 0.2, 0.6, 1.0]]).double())


@pytest.mark.parametrize("n", [1, 2, 3, 7, 600])
def test_any_number_of_rows_gives_valid_numbers(n):
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(n, 2)))
    found = measure_residual(posterior(), X, torch.ones(n).double(), float(n))
    assert found.is_valid()
    assert found.variance.shape == found.share.shape == (3, 2 if n < 8 else min(8, min(n, SAMPLE_ROWS) // 4) + 1)


def test_equal_rows_give_valid_numbers():
    found = measure_residual(posterior(), torch.zeros(50, 2).double(), torch.ones(50).double(), 50.0)
    assert found.is_valid()
    q = replace(posterior(), residual=found)
    assert np.isfinite(np.stack(predict.uncertainty(q, torch.zeros(3, 2).double()))).all()


def test_the_parts_are_those_of_the_whole_variance():
    q = posterior()
    X = torch.from_numpy(np.random.default_rng(1).normal(size=(20, 2)))
    q = replace(q, residual=measure_residual(q, X, torch.ones(20).double(), 20.0))
    (mean, var), (same, open_part, rest) = q.marginals(X), q.parts(X)
    assert torch.equal(mean, same)
    torch.testing.assert_close(open_part + rest, var)
    assert (open_part >= 0).all()
    assert (rest >= q.prior.noise[:, None] * (1 - 1e-12)).all()


def test_far_away_without_noise_something_remains():
    """Rounding would take away all of the variance that rows cannot remove, and the quadrature would have no width."""
    q = posterior()
    q = replace(q, prior=replace(q.prior, log_noise=torch.full_like(q.prior.log_noise, -69.0)))
    X = torch.from_numpy(np.random.default_rng(1).normal(size=(20, 2)))
    q = replace(q, residual=measure_residual(q, X, torch.ones(20).double(), 20.0))
    far = torch.full((3, 2), 1e6).double()
    _, open_part, rest = q.parts(far)
    assert (rest > 0).all()
    assert (open_part > 0).all()
    found = predict.uncertainty(q, far)
    assert np.isfinite(np.stack(found)).all()
    assert (found.epistemic > 0.9 * np.log(3)).all()


def test_a_stream_of_single_rows_keeps_the_split_of_the_fit():
    X, y = clouds(300)
    clf = GPClassifier("sep", n_inducing=20, max_epochs=5, device="cpu", random_state=0).fit(X, y)
    before = clf.posterior_.residual
    clf.partial_fit(X[:1], y[:1])
    assert torch.equal(clf.posterior_.residual.share, before.share)
    clf.partial_fit(X[:100], y[:100])
    assert not torch.equal(clf.posterior_.residual.share, before.share)


def test_rows_far_from_all_inducing_points_leave_all_open():
    """They say nothing about f there: the share is 1, and no quotient of two zeros."""
    X, rate = np.array([[0.12573022], [-0.13210486], [0.64042265]]), 10.0  # far too fast: some points fly away
    clf = GPClassifier(n_inducing=1, batch_size=2, max_epochs=1, learning_rate=rate, random_state=0, device="cpu")
    clf.fit(X, [0, 1, 2])
    assert clf.posterior_.residual.is_valid()
    assert (clf.posterior_.residual.share[0] == 1.0).all()
    assert np.isfinite(clf.uncertainty(X)).all()
