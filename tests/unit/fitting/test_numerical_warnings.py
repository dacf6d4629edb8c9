"""What makes log Z or the predictions less exact: a record in `history_`, and a warning of the package's category."""

import warnings

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.gp import sites
from cavity.kernels import RBF
from cavity.numerics import linalg
from cavity.runtime.warnings import CavityWarning
from cavity.training import Event

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 60)
X = RNG.standard_normal((60, 2)) + Y[:, None]


def fixed(method="ep", **changes):
    """A classifier that only infers q(u)."""
    settings = {"learn_kernel": False, "learn_inducing": False, "n_inducing": 10, "device": "cpu", "random_state": 0}
    return GPClassifier(method, kernel=RBF(1.0, 1.0), noise=0.5, **(settings | changes))


def events(clf):
    return [record["event"] for record in clf.history_ if record["event"] is not None]


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_an_inference_that_has_not_converged(method):
    with pytest.warns(CavityWarning, match=r"has not converged: the last of 2 sweeps changed q by .* more than tol="):
        clf = fixed(method, max_epochs=2).fit(X, Y)
    assert events(clf) == [Event.NOT_CONVERGED]
    record = clf.history_[-1]
    assert record["change"] > record["tol"] == 1e-10
    assert record["sweeps"] == 2


@pytest.mark.parametrize(
    ("method", "tolerances"), [("ep", (0.3, 1e-2, 1e-4, 1e-7, 1e-9, 1e-11)), ("sep", (0.3, 1e-2, 1e-4, 1e-5))]
)
def test_every_tolerance_is_respected(method, tolerances):
    """The sweeps end with the first change below it."""
    before = 0
    for tol in tolerances:
        clf = fixed(method, tol=tol).fit(X, Y)
        changes = [record["change"] for record in clf.history_]
        assert changes[-1] < tol
        assert all(change >= tol for change in changes[:-1])
        assert len(changes) > before
        before = len(changes)


def test_the_tolerance_is_small_by_default():
    assert fixed().fit(X, Y).n_iter_ == fixed(tol=1e-10).fit(X, Y).n_iter_


def test_without_a_tolerance_all_sweeps_are_made():
    clf = fixed(tol=0.0, max_epochs=150).fit(X, Y)
    assert clf.n_iter_ == 150
    with pytest.warns(CavityWarning, match="has not converged"):
        fixed(tol=0.0, max_epochs=5).fit(X, Y)


def test_sweeps_that_go_in_a_circle_are_damped_until_they_converge():
    """Full steps of parallel EP do not converge here: 5,000 sweeps ended 9,000 nats below the fixed point."""
    rng = np.random.default_rng(0)
    cloud = rng.integers(0, 2, 2400)
    rows = rng.standard_normal((2400, 2)) + cloud[:, None]
    settings = {"noise": 0.05, "n_inducing": 15, "scaling": None, "tol": 1e-8}
    found = [
        GPClassifier(
            "ep", kernel=RBF(0.6, 4.0), learn_kernel=False, learn_inducing=False, damping=damping, device="cpu",
            random_state=0, **settings
        ).fit(rows, cloud)
        for damping in (1.0, 0.3)
    ]  # fmt: skip
    assert found[0].n_iter_ < 200
    assert found[0].log_marginal_likelihood_ == pytest.approx(found[1].log_marginal_likelihood_, abs=1e-4)


@pytest.mark.parametrize("method", ["ep", "gfitc"])
def test_factors_with_improper_cavities_are_counted(monkeypatch, method):
    """Cavities of the last pass are made improper for large variances."""
    proper, calls = sites.proper, []

    def strict(d):
        calls.append(1)
        return proper(d) & (d > d.median())

    clf = fixed(method, max_epochs=3, tol=np.inf)
    with pytest.raises(ValueError, match="tol"):
        clf.fit(X, Y)
    clf.set_params(tol=1e9).fit(X, Y)
    assert events(clf) == []
    monkeypatch.setattr(sites, "proper", strict)
    with pytest.warns(CavityWarning, match=r"\d+ of 120 factors are left out of log Z"):
        clf.fit(X, Y)
    (record,) = [record for record in clf.history_ if record["event"] == Event.FACTORS_LEFT_OUT]
    assert 30 <= record["factors"] <= 120
    assert record["of"] == 120


def test_jitter_is_recorded_and_shown_once(monkeypatch):
    """A first level that no factorization can use: every matrix gets the second."""
    original = torch.linalg.cholesky_ex

    def failing(A, **options):
        L, info = original(A, **options)
        return L, torch.ones_like(info) if failing.calls.append(1) or len(failing.calls) % 3 else info

    failing.calls = []
    monkeypatch.setattr(linalg.torch.linalg, "cholesky_ex", failing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = fixed(max_epochs=3, tol=1e9).fit(X, Y)
    assert Event.JITTER_ADDED in events(clf)
    shown = [str(w.message) for w in caught if issubclass(w.category, CavityWarning)]
    assert len([text for text in shown if "covariance matrices were nearly singular" in text]) == 1
    record = next(record for record in clf.history_ if record["event"] == Event.JITTER_ADDED)
    assert record["jitter"] == pytest.approx(10 * linalg.rounding(torch.float64))


def test_an_ordinary_fit_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = GPClassifier(n_inducing=10, max_epochs=20, device="cpu", random_state=0).fit(X, Y)
    assert events(clf) == []
