"""A GPU learns what a CPU learns: same seeds, same answers. Skipped where there is none."""

import threading

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine

from cavity import GPClassifier, load
from cavity.data import Arrays
from cavity.kernels import RBF, Linear, Matern52
from cavity.training.checkpoint import Checkpointer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

KERNELS = [RBF(), Matern52(), RBF() + Linear()]


def both(X, y, **arguments):
    arguments = {"random_state": 0} | arguments
    return [GPClassifier(**arguments, device=device).fit(X, y) for device in ("cpu", "cuda")]


def agree(a, b, X, atol=1e-6):
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=0, atol=atol)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, rel=atol)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("method", ["sep", "ep", "vi"])
def test_in_batches(method, kernel):
    """Some hundred recorded steps."""
    X, y = load_digits(return_X_y=True)
    agree(*both(X, y, method=method, kernel=kernel, batch_size=200, max_epochs=12, n_inducing=30), X)


@pytest.mark.parametrize("method", ["sep", "ep"])
def test_on_all_rows(method):
    X, y = load_wine(return_X_y=True)
    agree(*both(X, y, method=method, max_epochs=60, n_inducing=20), X)


@pytest.mark.parametrize("method", ["sep", "ep"])
def test_power_ep(method):
    """Recorded steps with a quadrature in them."""
    X, y = load_digits(return_X_y=True)
    agree(*both(X, y, method=method, alpha=0.5, batch_size=200, max_epochs=3, n_inducing=30), X)


def test_gfitc():
    X, y = load_wine(return_X_y=True)
    agree(*both(X, y, method="gfitc", max_epochs=5, n_inducing=20), X)


@pytest.mark.parametrize("method", ["sep", "ep"])
def test_steps_that_fail(method):
    """A rate that leads out of all bounds: both go back in the same places, and end well."""
    X, y = load_wine(return_X_y=True)
    cpu, gpu = both(X, y, method=method, batch_size=40, max_epochs=4, n_inducing=20, learning_rate=40.0)
    places = [[(r["epoch"], r["event"] is None) for r in model.history_] for model in (cpu, gpu)]
    assert places[0] == places[1]
    assert np.isfinite(gpu.predict_proba(X)).all()


@pytest.mark.parametrize("method", ["sep", "ep", "vi"])
def test_from_a_source(method):
    """Batches that are brought to the device one by one, into recorded steps."""
    X, y = load_digits(return_X_y=True)
    agree(*both(Arrays(X, y, lanes=3), None, method=method, batch_size=200, max_epochs=6, n_inducing=30), X)


@pytest.mark.parametrize("method", ["sep", "ep"])
def test_going_on_from_a_checkpoint(method, tmp_path, monkeypatch):
    X, y = load_digits(return_X_y=True)
    settings = {"method": method, "batch_size": 200, "max_epochs": 6, "n_inducing": 30, "random_state": 0,
                "device": "cuda", "checkpoint_seconds": 0.0}  # fmt: skip
    whole = GPClassifier(**settings, checkpoint=tmp_path / "whole").fit(X, y)
    save, count = Checkpointer.save, []

    def stops(self, *args):
        save(self, *args)
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpointer, "save", stops)
    with pytest.raises(KeyboardInterrupt):
        GPClassifier(**settings, checkpoint=tmp_path / "torn").fit(X, y)
    monkeypatch.undo()
    torn = GPClassifier(**settings, checkpoint=tmp_path / "torn").fit(X, y, resume=True)
    agree(whole, torn, X, atol=1e-12)


@pytest.mark.parametrize("method", ["sep", "vi"])
def test_a_model_from_a_gpu_in_a_file(method, tmp_path):
    """On the GPU it says the same to the last bit, and on a CPU the same but for rounding."""
    X, y = load_digits(return_X_y=True)
    clf = GPClassifier(method, batch_size=200, max_epochs=4, n_inducing=30, random_state=0, device="cuda").fit(X, y)
    clf.save(tmp_path / "m.cavity")
    assert np.array_equal(load(tmp_path / "m.cavity", device="cuda").predict_proba(X), clf.predict_proba(X))
    agree(load(tmp_path / "m.cavity", device="cpu"), clf, X, atol=1e-9)


def test_training_on_a_gpu_that_is_asked_to_stop():
    """Between recorded steps."""
    X, y = load_digits(return_X_y=True)
    asked = threading.Event()
    asked.set()
    clf = GPClassifier("sep", batch_size=20, max_epochs=400, random_state=0, device="cuda").fit(X, y, stop=asked)
    assert clf.n_iter_ < 2
    assert np.isfinite(clf.predict_proba(X)).all()
    assert clf.report(X, y).findings.n_rows == len(y)


def test_prediction_moves_and_factorizes_the_model_once(monkeypatch):
    """Not for every block of rows, or every call."""
    X, y = load_digits(return_X_y=True)
    clf = GPClassifier(batch_size=200, max_epochs=2, n_inducing=30, random_state=0, device="cuda").fit(X, y)
    expected, factorize, count = clf.predict_proba(X), torch.linalg.cholesky_ex, []
    clf.posterior_ = clf.posterior_.to(torch.device("cpu"))
    monkeypatch.setattr("torch.linalg.cholesky_ex", lambda A: count.append(A.device.type) or factorize(A))
    for _ in range(3):
        np.testing.assert_allclose(clf.predict_proba(Arrays(X, lanes=4)), expected, rtol=0, atol=1e-12)
    clf.uncertainty(X[:10])
    assert count == ["cuda"]


@pytest.mark.parametrize("changes", [{}, {"batch_size": 200}, {"method": "gfitc"}, {"learn_kernel": False,
                         "learn_inducing": False}], ids=["all rows", "batches", "gfitc", "inference"])  # fmt: skip
def test_a_fit_without_time(changes):
    """CUDA starts before the clock does, and one pass over the rows is made whatever the limit."""
    X, y = load_wine(return_X_y=True) if "batch_size" not in changes else load_digits(return_X_y=True)
    clf = GPClassifier(max_seconds=1e-9, n_inducing=20, random_state=0, device="cuda", **changes).fit(X, y)
    assert ("time_limit" in [record["event"] for record in clf.history_]) == (
        "learn_kernel" not in changes
    )  # converged
    assert clf.score(X, y) > 0.6
