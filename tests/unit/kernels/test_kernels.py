"""Every kernel: its formula, what makes it a covariance, and its gradients. Add new kernels to CASES."""

import math

import numpy as np
import pytest
import torch

from cavity.kernels import RBF, Constant, Linear, Matern12, Matern32, Matern52
from cavity.kernels.base import Traced

N_CLASSES, N_FEATURES = 3, 2
LENGTHSCALE = np.array([[0.7, 1.3], [1.1, 0.4], [2.0, 0.9]])
VARIANCE = np.array([0.5, 1.7, 2.2])


def distance(x, z, k):
    return math.sqrt(sum((x[d] - z[d]) ** 2 / LENGTHSCALE[k, d] ** 2 for d in range(N_FEATURES)))


def rbf(x, z, k):
    return VARIANCE[k] * math.exp(-0.5 * distance(x, z, k) ** 2)


def matern12(x, z, k):
    return VARIANCE[k] * math.exp(-distance(x, z, k))


def matern32(x, z, k):
    r = math.sqrt(3) * distance(x, z, k)
    return VARIANCE[k] * (1 + r) * math.exp(-r)


def matern52(x, z, k):
    r = math.sqrt(5) * distance(x, z, k)
    return VARIANCE[k] * (1 + r + r**2 / 3) * math.exp(-r)


def linear(x, z, k):
    return VARIANCE[k] * sum(x[d] * z[d] / LENGTHSCALE[k, d] ** 2 for d in range(N_FEATURES))


def constant(x, z, k):
    return VARIANCE[k]


# name: (the kernel from length-scales and variances, its entry for two points and a class)
CASES = {
    "RBF": (RBF, rbf),
    "Matern12": (Matern12, matern12),
    "Matern32": (Matern32, matern32),
    "Matern52": (Matern52, matern52),
    "Linear": (Linear, linear),
    "Constant": (lambda _, v: Constant(v), constant),
    "sum": (lambda s, v: RBF(s, v) + Linear(s, v), lambda *a: rbf(*a) + linear(*a)),
    "product": (lambda s, v: Matern32(s, v) * Constant(v), lambda *a: matern32(*a) * constant(*a)),
    "sum of three": (
        lambda s, v: Linear(s, v) + Constant(v) + Matern12(s, v),
        lambda *a: linear(*a) + constant(*a) + matern12(*a),
    ),
    "product with a sum": (
        lambda s, v: Matern52(s, v) * (Constant(v) + Linear(s, v)),
        lambda *a: matern52(*a) * (constant(*a) + linear(*a)),
    ),
}
LEAVES = [RBF, Matern12, Matern32, Matern52, Linear]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def per_class(make):
    kernel = make(LENGTHSCALE, VARIANCE)
    return kernel, kernel.start(N_CLASSES, N_FEATURES, 1.0)


def shared(make):
    """The values of class 0 for all classes, with a class axis of length one."""
    kernel = make(LENGTHSCALE[0], VARIANCE[0])
    return kernel, kernel.start(1, N_FEATURES, 1.0)


def points(n_classes, n_points, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n_classes, n_points, N_FEATURES)))


# --- Values ---


@pytest.mark.parametrize("build", [per_class, shared])
@pytest.mark.parametrize("z_axis", [1, N_CLASSES])
def test_entries_follow_the_formula(case, build, z_axis):
    make, entry = case
    kernel, params = build(make)
    Z, X = points(z_axis, 4), points(1, 5, seed=1)
    found = kernel.cross(params, Z, X)
    n_classes = max(z_axis, N_CLASSES if build is per_class else 1)
    assert found.shape == (n_classes, 4, 5)
    for k in range(n_classes):
        own = k if build is per_class else 0
        expected = [[entry(x.tolist(), z.tolist(), own) for x in X[0]] for z in Z[min(k, z_axis - 1)]]
        np.testing.assert_allclose(found[k], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("build", [per_class, shared])
def test_gram_is_symmetric_and_positive_semi_definite(case, build):
    kernel, params = build(case[0])
    gram = kernel.gram(params, points(N_CLASSES, 12))
    assert gram.shape == (N_CLASSES, 12, 12)
    torch.testing.assert_close(gram, gram.mT, rtol=1e-14, atol=1e-14)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert (eigenvalues >= -1e-13 * eigenvalues.max()).all()


@pytest.mark.parametrize("build", [per_class, shared])
def test_gram_diagonal_and_cross_agree(case, build):
    kernel, params = build(case[0])
    Z = points(N_CLASSES, 6)
    gram = kernel.gram(params, Z)
    # r is the root of a difference of squares, so √eps is what Matérn 1/2 can show of it between equal points
    torch.testing.assert_close(gram, kernel.cross(params, Z, Z), rtol=1e-7, atol=1e-12)
    diagonal = kernel.diag(params, Z).expand(N_CLASSES, -1)
    torch.testing.assert_close(gram.diagonal(dim1=-2, dim2=-1), diagonal, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kernel", [RBF, Matern12, Matern32, Matern52])
def test_a_point_is_at_no_distance_from_itself(kernel):
    """Whatever rounding the product of many features makes: the diagonal of the gram matrix is the variance."""
    Z = 100.0 * torch.from_numpy(np.random.default_rng(0).standard_normal((2, 40, 7)))
    params = kernel(0.3, 2.0).start(2, 7, 1.0)
    diagonal = kernel().gram(params, Z).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.full_like(diagonal, 2.0), rtol=1e-15, atol=0)


def test_one_shared_class_equals_equal_classes(case):
    kernel, params = shared(case[0])
    repeated = {name: value.expand(N_CLASSES, *value.shape[1:]) for name, value in params.items()}
    Z, X = points(N_CLASSES, 4), points(1, 5, seed=1)
    torch.testing.assert_close(kernel.cross(params, Z, X), kernel.cross(repeated, Z, X), rtol=1e-15, atol=0)
    torch.testing.assert_close(kernel.gram(params, Z), kernel.gram(repeated, Z), rtol=1e-15, atol=0)
    one = kernel.diag(params, X).expand(N_CLASSES, -1)
    torch.testing.assert_close(one, kernel.diag(repeated, X), rtol=1e-15, atol=0)


def test_single_precision_stays_single_and_close(case):
    kernel, params = per_class(case[0])
    Z, X = points(N_CLASSES, 4), points(1, 5, seed=1)
    single = kernel.cross({name: value.float() for name, value in params.items()}, Z.float(), X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), kernel.cross(params, Z, X), rtol=1e-5, atol=1e-5)


# --- Gradients ---


def test_gradients_agree_with_finite_differences(case):
    kernel, params = per_class(case[0])
    names, Z, X = list(params), points(N_CLASSES, 3), points(1, 2, seed=1)

    def blocks(Z, X, *values):
        own = dict(zip(names, values, strict=True))
        return kernel.cross(own, Z, X), kernel.gram(own, Z), kernel.diag(own, X)

    inputs = [x.clone().requires_grad_() for x in (Z, X, *params.values())]
    assert torch.autograd.gradcheck(blocks, inputs, rtol=1e-6, atol=1e-8)


def test_coincident_points_have_finite_gradients(case):
    """Two equal inducing points, and rows equal to inducing points: r = 0, where √ has no slope."""
    kernel, params = per_class(case[0])
    Z = points(N_CLASSES, 4).index_select(1, torch.tensor([0, 1, 2, 2])).requires_grad_()
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    total = kernel.gram(leaves, Z).sum() + kernel.cross(leaves, Z, Z.detach()).sum()
    gradients = torch.autograd.grad(total, [Z, *leaves.values()], materialize_grads=True)
    for gradient in gradients:
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() < 1e3


# --- Start values ---


@pytest.mark.parametrize("kernel", LEAVES)
def test_start_values_left_open(kernel):
    params = kernel().start(N_CLASSES, N_FEATURES, 2.5)
    torch.testing.assert_close(params["log_lengthscale"], torch.full((3, 2), math.log(2.5), dtype=torch.float64))
    torch.testing.assert_close(params["log_variance"], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("kernel", LEAVES)
def test_start_values_broadcast_over_classes_and_features(kernel):
    params = kernel(lengthscale=[1.0, 2.0], variance=3.0).start(N_CLASSES, N_FEATURES, 9.0)
    np.testing.assert_allclose(params["log_lengthscale"].exp(), [[1.0, 2.0]] * 3)
    np.testing.assert_allclose(params["log_variance"].exp(), [3.0] * 3)


@pytest.mark.parametrize("kernel", LEAVES)
@pytest.mark.parametrize("name", ["lengthscale", "variance"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, [1.0, 2.0, 3.0, 4.0]])
def test_bad_start_values_are_named(kernel, name, value):
    with pytest.raises(ValueError, match=f"^{name}[ =]"):
        kernel(**{name: value}).start(N_CLASSES, N_FEATURES, 1.0)


@pytest.mark.parametrize("value", [0.0, math.nan, [1.0, 2.0]])
def test_bad_variance_of_the_constant_kernel_is_named(value):
    with pytest.raises(ValueError, match=r"^variance[ =]"):
        Constant(value).start(N_CLASSES, N_FEATURES, 1.0)


def test_a_part_of_a_sum_still_names_its_argument():
    with pytest.raises(ValueError, match=r"^lengthscale[ =]"):
        (RBF() + Linear(lengthscale=-1.0)).start(N_CLASSES, N_FEATURES, 1.0)


@pytest.mark.parametrize("build", [per_class, shared])
def test_fitted_keeps_the_values(case, build):
    kernel, params = build(case[0])
    moved = {name: value + 0.3 for name, value in params.items()}
    fitted = kernel.fitted(moved)
    assert type(fitted) is type(kernel)
    again = fitted.start(N_CLASSES if build is per_class else 1, N_FEATURES, 7.0)
    assert list(again) == list(moved)
    for name, value in moved.items():
        torch.testing.assert_close(again[name], value, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "Matern32(lengthscale=None, variance=2.0)",
        "Constant(variance=3.0) + Linear(lengthscale=[1.0, 2.0], variance=None) + Constant(variance=1.0)",
        "Constant(variance=3.0) * (Constant(variance=None) + Constant(variance=2.0))",
        "Constant(variance=3.0) * Constant(variance=None) + Constant(variance=2.0)",
    ],
)
def test_repr_is_how_the_kernel_is_written(text):
    assert repr(eval(text)) == text


@pytest.mark.parametrize("kernel", [RBF(), Matern12(), Matern32(), Matern52()])
def test_the_correlation_in_place_is_that_of_a_copy(kernel):
    """Whose memory it takes is the kernel's choice; what `log_slope` says of the distances must not change by it."""
    r2 = torch.from_numpy(np.random.default_rng(0).uniform(0.0, 9.0, (2, 4, 5)))
    before, slope = r2.clone(), kernel.log_slope(r2)
    torch.testing.assert_close(kernel.shape_(r2), kernel.shape(before), rtol=1e-15, atol=0)
    torch.testing.assert_close(torch.as_tensor(kernel.log_slope(r2)), torch.as_tensor(slope), rtol=0, atol=0)


# --- Closed form against autograd ---


@pytest.mark.parametrize("kernel", [RBF(), Matern12(), Matern32(), Matern52(), RBF() + Linear(), Constant()])
@pytest.mark.parametrize(("n_kernels", "n_Z"), [(3, 3), (1, 3), (3, 1), (1, 1)])
def test_anchored_blocks_and_gradients_are_those_of_autograd(kernel, n_kernels, n_Z):
    """What training uses, against the differentiable formulas; equal to 1e-12 where 1e-8 is promised."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    params = {name: v + 0.2 * normal(*v.shape) for name, v in kernel.start(n_kernels, 4, 1.3).items()}
    Z, X = normal(n_Z, 6, 4), normal(9, 4)
    adjoints = normal(3, 6, 6), normal(3, 6, 9), normal(3, 9)
    adjoints = adjoints[0] + adjoints[0].mT, *adjoints[1:]
    found, expected = kernel.anchor(params, Z, torch.float64), Traced(kernel, params, Z, torch.float64)
    torch.testing.assert_close(found.gram, expected.gram, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.cross(X), expected.cross(X), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.diag(X), expected.diag(X), rtol=1e-12, atol=1e-13)
    if max(n_kernels, n_Z) == 1:
        assert len(found.gram) == 1
    ours, theirs = (anchored.pull_back(X, *(by.clone() for by in adjoints)) for anchored in (found, expected))
    torch.testing.assert_close(ours.by_Z, theirs.by_Z, rtol=1e-12, atol=1e-12)
    assert ours.by_params.keys() == theirs.by_params.keys()
    for name, value in theirs.by_params.items():
        torch.testing.assert_close(ours.by_params[name], value, rtol=1e-12, atol=1e-12)
