"""Kernel blocks and gradients in closed form against autograd: whole fits, which must end at the same classifier.

Training uses closed forms for the kernels of the package; a kernel of one's own goes through autograd. A step of the
one and of the other differ by rounding errors, and after all of the training 1e-8 is promised.

VI and GFITC sweep plainly here: near the fixed point, Anderson's mixing chooses its jumps from differences that are
rounding errors, and 1e-8 is more than the sweeps, which stop at 1e-4, have in common.
"""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from cavity import GPClassifier
from cavity.inference import GFITC, VI
from cavity.kernels import RBF, Constant, Linear, Matern52
from tests.autograd_kernels import ByAutograd

KERNELS = pytest.mark.parametrize(
    ("kernel", "load"),
    [
        pytest.param(RBF(variance=10.0), load_iris, marks=pytest.mark.slow),
        pytest.param(Matern52(variance=10.0), load_wine, marks=pytest.mark.slow),
        (RBF(variance=10.0) * Linear() + Constant(), load_iris),
    ],
    ids=["RBF-iris", "Matern52-wine", "composite-iris"],
)


def compare(method, kernel, load, **changes):
    """Fits of every other row by both kernels, and what they say of the rest."""
    X, y = load(return_X_y=True)
    settings = {"n_inducing": 8, "max_epochs": 30, "tol": 0.0, "optimizer": "adam", "random_state": 0, "device": "cpu"}
    settings |= changes
    a, b = (GPClassifier(method, kernel=k, **settings).fit(X[::2], y[::2]) for k in (kernel, ByAutograd(kernel)))
    assert [isinstance(fitted.posterior_.prior.kernel, ByAutograd) for fitted in (a, b)] == [False, True]
    assert a.n_iter_ == b.n_iter_ == settings["max_epochs"]
    np.testing.assert_allclose(a.predict_proba(X[1::2]), b.predict_proba(X[1::2]), rtol=0, atol=1e-8)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, rel=0, abs=1e-8)


@KERNELS
@pytest.mark.parametrize(("method", "epochs"), [("sep", 30), ("ep", 30), ("vi", 30), ("gfitc", 8)])
def test_fits_on_all_rows(method, epochs, kernel, load, monkeypatch):
    """GFITC makes its sweeps before every step: fewer of them."""
    for made in (VI, GFITC):
        monkeypatch.setattr(made, "mixes", False)
    compare(method, kernel, load, batch_size=None, max_epochs=epochs)


@KERNELS
@pytest.mark.parametrize("method", ["sep", "ep"])
def test_fits_in_batches(method, kernel, load):
    compare(method, kernel, load, batch_size=25)


@KERNELS
@pytest.mark.parametrize("method", ["sep", "ep"])
def test_fits_of_one_kernel_and_one_set_of_points_for_all_classes(method, kernel, load):
    compare(method, kernel, load, batch_size=25, share_kernel=True, share_inducing=True)
