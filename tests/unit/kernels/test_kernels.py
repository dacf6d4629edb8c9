"""Every kernel: its formula, what makes it a covariance, and its gradients. Add new kernels to CASES."""

import math

import numpy as np
import pytest
import torch

from cavity.kernels import RBF, Constant, Grouped, Laplace, Linear, Matern12, Matern32, Matern52, Product, Sum
from tests.autograd_kernels import ByAutograd

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


def grouped(x, z, k):
    r2 = sum((x[d] - z[d]) ** 2 for d in range(N_FEATURES)) / LENGTHSCALE[k, 1] ** 2
    return VARIANCE[k] * math.exp(-0.5 * r2)


def laplace(x, z, k):
    return VARIANCE[k] * math.exp(-sum(abs(x[d] - z[d]) / LENGTHSCALE[k, d] for d in range(N_FEATURES)))


def constant(x, z, k):
    return VARIANCE[k]


# name: (the kernel from length-scales and variances, its entry for two points and a class)
CASES = {
    "RBF": (RBF, rbf),
    "Matern12": (Matern12, matern12),
    "Matern32": (Matern32, matern32),
    "Matern52": (Matern52, matern52),
    "Laplace": (Laplace, laplace),
    "Linear": (Linear, linear),
    "Constant": (lambda _, v: Constant(v), constant),
    "grouped": (lambda s, v: Grouped(RBF(s[..., 1:], v), (0, 0)), grouped),
    "grouped sum": (
        lambda s, v: Grouped(RBF(s[..., 1:], v) + Constant(v), (0, 0)),
        lambda *a: grouped(*a) + constant(*a),
    ),
    "sum": (lambda s, v: RBF(s, v) + Linear(s, v), lambda *a: rbf(*a) + linear(*a)),
    "sum with Laplace": (lambda s, v: Laplace(s, v) + RBF(s, v), lambda *a: laplace(*a) + rbf(*a)),
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
LEAVES = [RBF, Matern12, Matern32, Matern52, Laplace, Linear]


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


def bound(kernel, params, Z, dtype=torch.float64):
    return kernel.bind(params, Z, dtype)


def points(n_classes, n_points, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n_classes, n_points, N_FEATURES)))


# --- Values ---


@pytest.mark.parametrize("build", [per_class, shared])
@pytest.mark.parametrize("z_axis", [1, N_CLASSES])
def test_entries_follow_the_formula(case, build, z_axis):
    make, entry = case
    kernel, params = build(make)
    Z, X = points(z_axis, 4), points(1, 5, seed=1)
    found = bound(kernel, params, Z).blocks(X[0]).cross
    n_classes = max(z_axis, N_CLASSES if build is per_class else 1)
    assert found.shape == (n_classes, 4, 5)
    for k in range(n_classes):
        own = k if build is per_class else 0
        expected = [[entry(x.tolist(), z.tolist(), own) for x in X[0]] for z in Z[min(k, z_axis - 1)]]
        np.testing.assert_allclose(found[k], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("build", [per_class, shared])
def test_gram_is_symmetric_and_positive_semi_definite(case, build):
    kernel, params = build(case[0])
    gram = bound(kernel, params, points(N_CLASSES, 12)).gram
    assert gram.shape == (N_CLASSES, 12, 12)
    torch.testing.assert_close(gram, gram.mT, rtol=1e-14, atol=1e-14)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert (eigenvalues >= -1e-13 * eigenvalues.max()).all()


@pytest.mark.parametrize("build", [per_class, shared])
def test_gram_diagonal_and_cross_agree(case, build):
    kernel, params = build(case[0])
    Z = points(N_CLASSES, 6)
    made = bound(kernel, params, Z)
    for k, gram in enumerate(made.gram):
        _, cross, diag, _ = made.blocks(Z[k])
        # r is the root of a difference of squares, so √eps is what Matérn 1/2 can show of it between equal points
        torch.testing.assert_close(gram, cross[k], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(gram.diagonal(), diag.expand(N_CLASSES, -1)[k], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kernel", [RBF, Matern12, Matern32, Matern52, Laplace])
def test_a_point_is_at_no_distance_from_itself(kernel):
    """Whatever rounding the product of many features makes: the diagonal of the gram matrix is the variance."""
    Z = 100.0 * torch.from_numpy(np.random.default_rng(0).standard_normal((2, 40, 7)))
    params = kernel(0.3, 2.0).start(2, 7, 1.0)
    diagonal = bound(kernel(), params, Z).gram.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.full_like(diagonal, 2.0), rtol=1e-15, atol=0)


def test_one_shared_class_equals_equal_classes(case):
    kernel, params = shared(case[0])
    repeated = {name: value.expand(N_CLASSES, *value.shape[1:]) for name, value in params.items()}
    Z, X = points(N_CLASSES, 4), points(1, 5, seed=1)
    one, many = (bound(kernel, p, Z) for p in (params, repeated))
    torch.testing.assert_close(one.gram, many.gram, rtol=1e-15, atol=0)
    _, cross, diag, _ = many.blocks(X[0])
    torch.testing.assert_close(one.blocks(X[0]).cross, cross, rtol=1e-15, atol=0)
    torch.testing.assert_close(one.blocks(X[0]).diag.expand(N_CLASSES, -1), diag, rtol=1e-15, atol=0)


def test_single_precision_is_single_and_close(case):
    """Of the cross-covariance alone; what it is computed in does not show in its dtype."""
    kernel, params = per_class(case[0])
    Z, X = points(N_CLASSES, 4), points(1, 5, seed=1)
    single, double = bound(kernel, params, Z, torch.float32), bound(kernel, params, Z)
    found, expected = single.blocks(X[0].float()).cross, double.blocks(X[0]).cross
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if not isinstance(kernel, Constant):
        assert (found - expected).abs().max() > 1e-9


def scaled_first(kernel, params, Z, X):
    """k(Z, X) of a stationary kernel in a sum or product, in the order of operations of version 0.1.0."""
    scale = torch.exp(-params["log_lengthscale"])[:, None, :]
    center = (Z * scale).mean(-2, keepdim=True)
    Z, X = Z * scale - center, X * scale - center
    squares = Z.square().sum(-1)[..., :, None] + X.square().sum(-1)[..., None, :]
    r2 = (squares - 2.0 * torch.matmul(Z, X.mT)).clamp_min(0.0)
    return torch.exp(params["log_variance"])[:, None, None] * kernel.correlation(r2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("build", [per_class, shared])
@pytest.mark.parametrize("kernel", [RBF, Matern12, Matern32, Matern52])
def test_sums_have_the_bits_of_the_first_version(kernel, build, dtype):
    """Predictions of stored models depend on them; k(Z, Z) is in double precision in any case."""
    whole, params = build(lambda s, v: kernel(s, v) + Constant(v))
    own, offset = {name[2:]: x for name, x in params.items() if name[0] == "0"}, torch.exp(params["1.log_variance"])
    Z, X = points(N_CLASSES, 20), points(1, 9, seed=1)
    made = bound(whole, params, Z, dtype)
    gram = scaled_first(whole.parts[0], own, Z, Z) + offset[:, None, None]
    off_diagonal = ~torch.eye(20, dtype=torch.bool).expand_as(gram)
    assert torch.equal(made.gram[off_diagonal], gram[off_diagonal])
    cross = scaled_first(whole.parts[0], own, Z, X) + offset[:, None, None]
    assert torch.equal(made.blocks(X[0]).cross, cross) == (dtype == torch.float64)


# --- Gradients ---


def adjoints(n_classes, M, B, seed=0):
    """Derivatives by the three blocks; that by the gram matrix is symmetric."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (n_classes, M, M), (n_classes, M, B), (n_classes, B)
    gram, cross, diag = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return gram + gram.mT, cross, diag


def pulled_back(made, X, by):
    return made.pull_back(made.blocks(X), *(x.clone() for x in by))


def test_gradients_agree_with_finite_differences(case):
    kernel, params = per_class(case[0])
    Z, X, by = points(N_CLASSES, 3), points(1, 2, seed=1)[0], adjoints(N_CLASSES, 3, 2)
    found = pulled_back(bound(kernel, params, Z), X, by)

    def total(params, Z):
        made = bound(kernel, params, Z)
        _, cross, diag, _ = made.blocks(X)
        return float(sum((a * b).sum() for a, b in zip(by, (made.gram, cross, diag), strict=True)))

    def difference(f, size=1e-4):
        return (8 * (f(size) - f(-size)) - (f(2 * size) - f(-2 * size))) / (12 * size)

    for name, value in params.items():
        move = torch.randn(value.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        expected = difference(lambda e, n=name, v=value, d=move: total(params | {n: v + e * d}, Z))
        assert float((found.by_params[name] * move).sum()) == pytest.approx(expected, rel=1e-7, abs=1e-8), name
    move = torch.randn(Z.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert float((found.by_Z * move).sum()) == pytest.approx(
        difference(lambda e: total(params, Z + e * move)), rel=1e-7, abs=1e-8
    )


def test_coincident_points_have_finite_gradients(case):
    """Two equal inducing points, and rows equal to inducing points: r = 0, where √ has no slope."""
    kernel, params = per_class(case[0])
    Z = points(N_CLASSES, 4).index_select(1, torch.tensor([0, 1, 2, 2]))
    by = [torch.ones(shape, dtype=torch.float64) for shape in ((N_CLASSES, 4, 4), (N_CLASSES, 4, 4), (N_CLASSES, 4))]
    for k in range(N_CLASSES):
        found = pulled_back(bound(kernel, params, Z), Z[k], by)
        for gradient in (found.by_Z, *found.by_params.values()):
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
    """Whose memory it takes is the kernel's choice; what `log_derivative` says of the distances must not change."""
    r2 = torch.from_numpy(np.random.default_rng(0).uniform(0.0, 9.0, (2, 4, 5)))
    before, derivative = r2.clone(), kernel.log_derivative(r2)
    torch.testing.assert_close(kernel.correlation_(r2), kernel.correlation(before), rtol=1e-15, atol=0)
    torch.testing.assert_close(torch.as_tensor(kernel.log_derivative(r2)), torch.as_tensor(derivative), rtol=0, atol=0)


# --- Closed form against autograd ---

KERNELS = {
    "RBF": RBF(),
    "Matern12": Matern12(),
    "Matern32": Matern32(),
    "Matern52": Matern52(),
    "Laplace": Laplace(),
    "Linear": Linear(),
    "Constant": Constant(),
    "sum": RBF() + Linear(),
    "product": Matern32() * Linear() * Constant(),
    "both": Matern52() * (Constant() + Linear()) + RBF(),
}


def with_own_part(kernel):
    """The same sum or product, its last part a kernel of one's own."""
    return type(kernel)((*kernel.parts[:-1], ByAutograd(kernel.parts[-1])))


PAIRS = {name: (kernel, kernel) for name, kernel in KERNELS.items()} | {
    f"{name} with one's own": (with_own_part(kernel), kernel)
    for name, kernel in KERNELS.items()
    if isinstance(kernel, Sum | Product)
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("n_kernels", "n_Z"), [(3, 3), (1, 3), (3, 1), (1, 1)])
def test_blocks_and_gradients_are_those_of_autograd(name, n_kernels, n_Z):
    """What training uses, against differentiable formulas of the whole; equal to 1e-12."""
    found_kernel, kernel = PAIRS[name]
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    params = {name: v + 0.2 * normal(*v.shape) for name, v in kernel.start(n_kernels, 4, 1.3).items()}
    Z, X, by = normal(n_Z, 6, 4), normal(9, 4), adjoints(3, 6, 9)
    found, expected = (bound(k, params, Z) for k in (found_kernel, ByAutograd(kernel)))
    torch.testing.assert_close(found.gram, expected.gram, rtol=1e-12, atol=1e-13)
    for x, y in zip(found.blocks(X)[1:3], expected.blocks(X)[1:3], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)
    for x, y in zip(found.blocks_to_predict(X)[1:3], expected.blocks(X)[1:3], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)
    if max(n_kernels, n_Z) == 1:
        assert len(found.gram) == 1
    ours, theirs = (pulled_back(made, X, by) for made in (found, expected))
    torch.testing.assert_close(ours.by_Z, theirs.by_Z, rtol=1e-12, atol=1e-12)
    assert ours.by_params.keys() == theirs.by_params.keys()
    for name, value in theirs.by_params.items():
        torch.testing.assert_close(ours.by_params[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(), RBF() + Linear(), ByAutograd(Matern32())], ids=["RBF", "sum", "own"])
def test_a_gradient_can_be_asked_for_again(kernel):
    """Also after the blocks of another batch: nothing is remembered but what the caller holds."""
    params, Z = kernel.start(N_CLASSES, N_FEATURES, 1.3), points(N_CLASSES, 4)
    made, by = bound(kernel, params, Z), adjoints(N_CLASSES, 4, 5)
    X, other = points(2, 5, seed=1)
    blocks = made.blocks(X)
    first = made.pull_back(blocks, *(x.clone() for x in by))
    pulled_back(made, other, by)
    again = made.pull_back(blocks, *(x.clone() for x in by))
    torch.testing.assert_close(first, again, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_linear_entries_do_not_overflow(dtype):
    params = Linear(lengthscale=1e-30, variance=1e30).start(1, N_FEATURES, 1.0)
    made = bound(Linear(), params, 1e15 * points(1, 3), dtype)
    X = 1e15 * points(1, 4, seed=1)[0]
    found = pulled_back(made, X, adjoints(1, 3, 4))
    for x in (made.gram, *made.blocks(X)[1:3], found.by_Z, *found.by_params.values()):
        assert torch.isfinite(x).all()
