"""Covariances, against the library's own kernels."""

import numpy as np
import pytest
import torch

from cavity.export.model import covariance
from cavity.kernels import RBF, Constant, Laplace, Linear, Matern12, Matern32, Matern52

D, M = 3, 7
KERNELS = {
    "RBF": RBF(),
    "Matern12": Matern12(),
    "Matern32": Matern32(),
    "Matern52": Matern52(),
    "Laplace": Laplace(),
    "Linear": Linear(),
    "Constant": Constant(),
    "RBF + Linear": RBF() + Linear(),
    "Linear * Constant": Linear() * Constant(),
    "RBF * Matern32 + Constant": RBF() * Matern32() + Constant(),
    "nested": (Linear() + Constant()) * (Matern12() + RBF() * Linear()) + Laplace(),
}


def setting(kernel, n_classes, n_sets, seed=0):
    """Parameters of the kernel, inducing points and rows, some of which are inducing points."""
    rng = np.random.default_rng(seed)
    start = kernel.start(n_classes, D, 1.3)
    params = {name: value + 0.7 * torch.from_numpy(rng.standard_normal(value.shape)) for name, value in start.items()}
    Z = rng.standard_normal((n_sets, M, D))
    return params, Z, np.concatenate([2 * rng.standard_normal((20, D)), Z[0], 1e6 * rng.standard_normal((5, D))])


@pytest.mark.parametrize("shared", [(1, 1), (1, 4), (4, 1), (4, 4)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_blocks_agree_with_the_library(run, name, shared):
    """Also with every optimization: some make a float32 of a lone number."""
    kernel, (n_classes, n_sets) = KERNELS[name], shared
    params, Z, X = setting(kernel, n_classes, n_sets)
    blocks = kernel.bind(params, torch.from_numpy(Z), torch.float64).blocks(torch.from_numpy(X))
    cross, diag = run(lambda X: _through_products(covariance(kernel, params, Z, X)), X)
    scale = blocks.diag.abs().amax().item()
    rough = 1e-7 if "Matern12" in str(kernel) else 1e-13  # a root of what is zero but for rounding
    np.testing.assert_allclose(cross, blocks.cross, rtol=1e-12, atol=rough * max(1.0, scale))
    np.testing.assert_allclose(diag, np.broadcast_to(blocks.diag, diag.shape), rtol=1e-13)


def _through_products(found):
    """The cross-covariance as the factor of a product, where an optimizer may touch it."""
    cross, diag = found
    return np.eye(M) @ cross, diag


def test_far_rows_know_nothing_of_the_inducing_points(run):
    kernel = RBF()
    params, Z, _ = setting(kernel, 2, 2)
    X = np.array([[1e15, -1e15, 1e15], [0.0, 1e15, 0.0]])
    cross, diag = run(lambda X: covariance(kernel, params, Z, X), X)
    assert (cross == 0).all()
    assert (diag > 0).all()


def test_a_kernel_of_ones_own_is_refused():
    """A subclass may compute anything."""

    class Wavy(RBF):
        def correlation(self, r2):
            return torch.cos(r2)

    kernel = Linear() + Wavy()
    params, Z, _ = setting(kernel, 2, 2)
    pytest.importorskip("onnx")
    from cavity.export.graph import Graph, Value

    with pytest.raises(TypeError, match=r"kernel must be RBF, .* to be exported, got .*Wavy"):
        covariance(kernel, params, Z, Value(Graph(), "X"))
