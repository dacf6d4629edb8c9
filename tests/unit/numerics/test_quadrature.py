"""P(class k is the largest): row sums, hostile variances, tails, symmetries, and independence of the other rows."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import norm

from cavity.numerics import quadrature
from cavity.numerics.quadrature import max_log_probs, max_log_probs_raw, win_probability

ROWS = {3: 400, 4: 400, 10: 200, 100: 20, 1000: 2}  # of each number of classes
LEGENDRE = np.polynomial.legendre.leggauss(12)


def random_rows(n_classes, n_rows, decades, seed=0):
    """Means and variances of many kinds, the variances of a row within `decades` powers of ten."""
    rng = np.random.default_rng([n_classes, decades, seed])
    shape = (n_classes, n_rows)
    first = np.arange(n_classes)[:, None] == 0
    exponent = [
        rng.uniform(0, decades, shape),  # all sizes
        decades * (rng.random(shape) < 0.5),  # two sizes
        decades * first.repeat(n_rows, 1),  # a wide one
        decades * ~first.repeat(n_rows, 1),  # a narrow one
    ]
    kind = rng.integers(0, len(exponent), n_rows)
    var = 10.0 ** np.choose(kind, exponent)
    size = 10 ** rng.uniform(-1, 3, n_rows)
    mean = [
        np.zeros(shape),
        rng.normal(size=shape) * size,
        rng.normal(size=shape) * np.minimum(size, 10) * np.sqrt(var),
        rng.uniform(-10, 10, shape) * np.sqrt(var),  # where the transitions of narrow and wide classes begin together
    ]
    return torch.from_numpy(np.choose(rng.integers(0, len(mean), n_rows), mean)), torch.from_numpy(var)


def ordinary_rows(n_classes, n_rows, seed=0):
    rng = np.random.default_rng(seed)
    mean, sd = 2 * rng.normal(size=(n_classes, n_rows)), rng.uniform(1, 3, (n_classes, n_rows))
    return torch.from_numpy(mean), torch.from_numpy(sd**2)


def oracle(mean, var, reach=60):
    """log p by Gauss-Legendre between all points μ_j + i σ_j / 2, one row at a time, nothing shared between classes."""
    sd = np.sqrt(var)
    steps = np.arange(-2 * reach, 2 * reach + 1) / 2
    edges = np.unique((mean[:, None] + sd[:, None] * steps).ravel())
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    f = (middle[:, None] + half[:, None] * LEGENDRE[0]).ravel()
    log_weight = np.log(half[:, None] * LEGENDRE[1]).ravel()
    z = (f - mean[:, None]) / sd[:, None]
    log_cdf, log_pdf = log_ndtr(z), -0.5 * z**2 - np.log(sd * math.sqrt(2 * math.pi))[:, None]
    others = [np.delete(log_cdf, k, 0).sum(0) for k in range(len(mean))]
    return np.array([logsumexp(log_pdf[k] + others[k] + log_weight) for k in range(len(mean))])


def sum_error(raw):
    return (raw.exp().sum(0) - 1).abs().max()


def test_oracle_agrees_with_the_closed_form():
    found = oracle(np.array([0.0, 30.0]), np.array([1.0, 9.0]))
    np.testing.assert_allclose(found, log_ndtr(np.array([-1, 1]) * 30 / math.sqrt(10)), rtol=1e-12, atol=1e-14)


def test_one_class_is_certain():
    assert torch.equal(max_log_probs(*torch.ones(2, 1, 5, dtype=torch.float64)), torch.zeros(1, 5))


def test_two_classes_have_a_closed_form():
    mean, var = random_rows(2, 200, 6)
    expected = log_ndtr(((mean[0] - mean[1]) / (var[0] + var[1]).sqrt()).numpy())
    np.testing.assert_allclose(max_log_probs_raw(mean, var)[0], expected, rtol=1e-12)
    assert sum_error(max_log_probs_raw(mean, var)) < 1e-14


@pytest.mark.parametrize("n_classes", ROWS)
@pytest.mark.parametrize("decades", [0, 6, 12])
def test_raw_rows_sum_to_one(n_classes, decades):
    """Nothing makes them but the quadrature."""
    mean, var = random_rows(n_classes, ROWS[n_classes], decades)
    assert sum_error(max_log_probs_raw(mean, var)) < 1e-11
    assert sum_error(max_log_probs(mean, var)) < 1e-12


@pytest.mark.parametrize("n_classes", ROWS)
@pytest.mark.parametrize("var", [1e-8, 1.0, 1e8])
def test_equal_classes_are_equally_likely(n_classes, var):
    raw = max_log_probs_raw(torch.full((n_classes, 1), 7.0).double(), torch.full((n_classes, 1), var).double())
    torch.testing.assert_close(raw, torch.full_like(raw, -math.log(n_classes)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_classes", [3, 8, 20])
def test_a_narrow_class_among_wide_ones_wins_if_all_are_below(n_classes):
    var = torch.full((n_classes, 1), 1e24, dtype=torch.float64)
    var[0] = 1.0
    log_p = max_log_probs(torch.zeros_like(var), var)
    torch.testing.assert_close(log_p[0, 0].item(), (1 - n_classes) * math.log(2), rtol=0, atol=1e-9)
    torch.testing.assert_close(log_p[1:], log_p[1:].mean().expand(n_classes - 1, 1), rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_classes", [3, 6, 15])
@pytest.mark.parametrize("decades", [0, 6, 12])
def test_against_the_oracle(n_classes, decades):
    """p to 1e-11; its relative error to 1e-6 as far as 1e-14; below, log p to 4 % or 0.5."""
    mean, var = random_rows(n_classes, 48 if n_classes < 15 else 8, decades, seed=1)
    found = max_log_probs_raw(mean, var).numpy()
    expected = np.stack([oracle(m, v) for m, v in zip(mean.T.numpy(), var.T.numpy(), strict=True)], 1)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=0, atol=1e-11)
    seen = expected > math.log(1e-14)
    np.testing.assert_allclose(np.exp(found[seen]), np.exp(expected[seen]), rtol=1e-6)
    tail = ~seen & (expected > -1500)  # as far as the oracle reaches
    assert (np.abs(found - expected)[tail] < np.maximum(-0.04 * expected[tail], 0.5)).all()


def test_tails_of_ordinary_rows_are_good():
    """Where the variances are no trap, Laplace's method gives p itself to 2 %."""
    mean, var = ordinary_rows(4, 40)
    mean *= 15
    found = max_log_probs_raw(mean, var).numpy()
    expected = np.stack([oracle(m, v) for m, v in zip(mean.T.numpy(), var.T.numpy(), strict=True)], 1)
    tail = (expected < -36) & (expected > -1500)
    assert tail.sum() > 40
    assert np.abs(found - expected)[tail].max() < 0.02


@pytest.mark.parametrize("distance", [10.0, 50.0, 500.0, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("sd", [(1.0, 1.0), (1.0, 1e-3), (1e-3, 1.0), (1e6, 1.0)])
def test_far_tails_against_two_classes(distance, sd):
    """A third class far below changes nothing, so the closed form holds."""
    mean = torch.tensor([[0.0], [distance * sum(sd)], [-1e3 * distance * sum(sd)]], dtype=torch.float64)
    var = torch.tensor([[sd[0] ** 2], [sd[1] ** 2], [1.0]], dtype=torch.float64)
    expected = log_ndtr(-distance * sum(sd) / math.hypot(*sd))
    assert max_log_probs(mean, var)[0].item() == pytest.approx(expected, rel=1e-3)


def test_a_tail_behind_many_scales():
    """All means equal, σ over six decades: the narrow classes lose to a hundred others at once."""
    rng = np.random.default_rng(0)
    sd = np.sort(10 ** rng.uniform(0, 6, 100))
    found = max_log_probs_raw(torch.zeros(100, 1).double(), torch.from_numpy(sd**2)[:, None])[:, 0].numpy()
    expected = oracle(np.zeros(100), sd**2, reach=12)
    assert expected[0] < -50
    np.testing.assert_allclose(found, expected, rtol=0.01)


@pytest.mark.parametrize("n_classes", [3, 10, 100])
def test_order_of_the_classes_does_not_matter(n_classes):
    mean, var = random_rows(n_classes, 20, 6)
    order = torch.from_numpy(np.random.default_rng(0).permutation(n_classes))
    torch.testing.assert_close(
        max_log_probs(mean[order], var[order]), max_log_probs(mean, var)[order], rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize(("shift", "scale"), [(2.0**10, 1.0), (0.0, 2.0**-400), (0.0, 2.0**400), (-3.7, 1.9)])
def test_shift_and_scale_do_not_matter(shift, scale):
    mean, var = random_rows(5, 100, 3)
    moved = max_log_probs((mean + shift) * scale, var * scale**2)
    torch.testing.assert_close(moved, max_log_probs(mean, var), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("n_classes", [3, 10, 60])
def test_a_row_does_not_depend_on_the_others(n_classes):
    """Bit for bit, however the rows are cut."""
    mean, var = random_rows(n_classes, 150 if n_classes < 60 else 20, 6)
    together = max_log_probs(mean, var)
    for size in (1, 7, 64):
        parts = [max_log_probs(m, v) for m, v in zip(mean.split(size, 1), var.split(size, 1), strict=True)]
        assert torch.equal(torch.cat(parts, 1), together)
    assert torch.equal(max_log_probs(mean.flip(1), var.flip(1)), together.flip(1))
    assert torch.equal(max_log_probs(mean, var), together)


def test_blocks_only_bound_the_memory(monkeypatch):
    mean, var = random_rows(10, 200, 6)
    expected = max_log_probs(mean, var)
    monkeypatch.setattr(quadrature, "BLOCK_PER_THREAD", 1000)
    assert torch.equal(max_log_probs(mean, var), expected)


def test_no_rows():
    assert max_log_probs(*torch.empty(2, 4, 0, dtype=torch.float64)).shape == (4, 0)


@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_extreme_numbers_stay_numbers(n_classes):
    """Variances of 1e-300 to 1e300, means to 1e150."""
    rng = np.random.default_rng(n_classes)
    shape = (n_classes, 60)
    mean = rng.choice([-1, 0, 1], shape) * 10 ** rng.uniform(-150, 150, shape)
    var = 10 ** rng.choice([rng.uniform(-300, 300, shape), np.full(shape, -300.0), np.full(shape, 300.0)])
    raw = max_log_probs_raw(torch.from_numpy(mean), torch.from_numpy(var))
    assert not raw.isnan().any()
    assert raw.max() < 1e-11
    assert sum_error(raw) < 1e-11
    pairs = (mean[:, None] - mean) / np.hypot(*np.broadcast_arrays(np.sqrt(var)[:, None], np.sqrt(var)))
    lower = log_ndtr(pairs).sum(1)
    assert not (raw.isneginf().numpy() & (lower > -1e290)).any()  # p_k ≥ Π_j P(f_k > f_j)


@pytest.mark.parametrize("n_classes", [3, 5, 10])
def test_ordinary_rows_take_few_nodes(n_classes):
    mean, var = ordinary_rows(n_classes, 1000)
    grid = quadrature._grid(mean, var.sqrt())
    nodes = torch.cat(
        [
            torch.full(rows.shape, n)
            for rows, n in quadrature._equal_blocks(grid.stop + quadrature.MARGIN + 2, grid.active)
        ]
    )
    assert len(nodes) == 1000
    assert nodes.max() <= 64
    assert nodes.double().mean() < 55


def test_gradients_are_not_followed():
    mean, var = ordinary_rows(3, 4)
    assert not max_log_probs(mean.requires_grad_(), var).requires_grad


# --- One class and its derivatives ---

WINS = pytest.mark.parametrize(("n_classes", "decades"), [(2, 0), (2, 6), (3, 0), (3, 6), (10, 0), (10, 6)])


def labeled_rows(n_classes, decades, n_rows=60, seed=3):
    mean, var = random_rows(n_classes, n_rows, decades, seed)
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, n_classes, n_rows))
    return mean, var, y[None, :] == torch.arange(n_classes)[:, None]


@WINS
def test_win_probability_is_that_of_the_marked_class(n_classes, decades):
    mean, var, own = labeled_rows(n_classes, decades)
    expected = torch.where(own, max_log_probs(mean, var).exp(), 0.0).sum(0)
    assert ((expected > 0.01) & (expected < 0.99)).sum() > 5
    torch.testing.assert_close(win_probability(mean, var, own).p, expected, rtol=0, atol=1e-12)


def slope(f, x, step):
    """Five-point formula for each entry's class, the rows at once; `step` may differ from entry to entry."""
    columns = []
    for k in range(len(x)):
        move = torch.zeros_like(x)
        move[k] = step[k]
        near, far = f(x + move) - f(x - move), f(x + 2 * move) - f(x - 2 * move)
        columns.append((8 * near - far) / (12 * step[k]))
    return torch.stack(columns)


@WINS
def test_derivatives_of_the_win_probability(n_classes, decades):
    """In units of each class's σ and v, the scale on which p varies with them."""
    mean, var, own = labeled_rows(n_classes, decades)
    found, sd = win_probability(mean, var, own), var.sqrt()
    by_mean = slope(lambda x: win_probability(x, var, own).p, mean, 3e-3 * sd)
    by_var = slope(lambda x: win_probability(mean, x, own).p, var, 3e-3 * var)
    assert (by_mean * sd).abs().max() > 0.1
    assert (by_var * var).abs().max() > 0.05
    torch.testing.assert_close(found.by_mean * sd, by_mean * sd, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.by_var * var, by_var * var, rtol=0, atol=1e-9)


@WINS
def test_a_shift_of_all_means_and_a_common_scale_change_no_win(n_classes, decades):
    """So the derivatives by the means sum to zero, and Σ μ ∂p/∂μ + 2 Σ v ∂p/∂v = 0."""
    mean, var, own = labeled_rows(n_classes, decades)
    found = win_probability(mean, var, own)
    assert (found.by_mean.sum(0) * var.amin(0).sqrt()).abs().max() < 1e-12
    euler = (found.by_mean * mean + 2 * found.by_var * var).sum(0)
    assert (euler.abs() / (1 + (found.by_mean * mean).abs().amax(0))).max() < 1e-11


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_win_probability_against_adaptive_quadrature(n_classes):
    mean, var = ordinary_rows(n_classes, 4)
    own = torch.arange(n_classes)[:, None] == torch.arange(4) % n_classes
    found = win_probability(mean, var, own)
    for i, (m, sd) in enumerate(zip(mean.T.numpy(), var.sqrt().T.numpy(), strict=True)):
        y = i % n_classes
        others = [j for j in range(n_classes) if j != y]

        def integral(extra, m=m, sd=sd, y=y, others=others):
            def integrand(f):
                return (
                    norm.pdf(f, m[y], sd[y]) * np.prod(ndtr((f - m[others]) / sd[others])) * extra((f - m[y]) / sd[y])
                )

            return quad(integrand, m[y] - 12 * sd[y], m[y] + 12 * sd[y], epsabs=1e-13, limit=200)[0]

        assert float(found.p[i]) == pytest.approx(integral(lambda z: 1), abs=1e-11)
        assert float(found.by_mean[y, i]) == pytest.approx(integral(lambda z, sd=sd, y=y: z / sd[y]), abs=1e-11)
        by_var = integral(lambda z, sd=sd, y=y: 0.5 * (z**2 - 1) / sd[y] ** 2)
        assert float(found.by_var[y, i]) == pytest.approx(by_var, abs=1e-11)


def test_blocks_of_the_win_probability_only_bound_the_memory(monkeypatch):
    mean, var, own = labeled_rows(10, 6, n_rows=150)
    whole = win_probability(mean, var, own)
    monkeypatch.setattr(quadrature, "BLOCK_PER_THREAD", 10_000)
    nodes = int((quadrature._grid(mean, var.sqrt()).stop.amax() + quadrature.MARGIN + 2).ceil())
    assert quadrature._block_size(own, nodes) < 50
    for a, b in zip(win_probability(mean, var, own), whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def test_the_neediest_row_sets_the_nodes_of_all_but_not_their_answers():
    mean, var, own = labeled_rows(3, 6)
    together = win_probability(mean, var, own)
    for i in range(0, 60, 7):
        alone = win_probability(*(x[:, i : i + 1] for x in (mean, var, own)))
        torch.testing.assert_close(alone.p[0], together.p[i], rtol=0, atol=1e-12)
        scale = var[:, i]
        torch.testing.assert_close(alone.by_mean[:, 0] * scale.sqrt(), together.by_mean[:, i] * scale.sqrt(),
                                   rtol=0, atol=1e-11)  # fmt: skip
        torch.testing.assert_close(alone.by_var[:, 0] * scale, together.by_var[:, i] * scale, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_a_decided_win_is_flat(n_classes):
    """Means far apart, variances over twelve decades: p is 0 or 1, and nothing is NaN."""
    rng = np.random.default_rng(n_classes)
    mean = torch.from_numpy(rng.permuted(np.tile(1e8 * np.arange(n_classes), (40, 1)), axis=1).T.copy())
    var = torch.from_numpy(10 ** rng.uniform(-6, 6, (n_classes, 40)))
    own = torch.arange(n_classes)[:, None] == torch.from_numpy(rng.integers(0, n_classes, 40))
    found = win_probability(mean, var, own)
    best = own.gather(0, mean.argmax(0, keepdim=True))[0]
    assert 0 < best.sum() < 40
    torch.testing.assert_close(found.p, best.double(), rtol=0, atol=1e-12)
    assert not found.by_mean.abs().max() > 1e-12
    assert not found.by_var.abs().max() > 1e-12


def test_gradients_of_the_win_probability_are_not_followed():
    mean, var = ordinary_rows(3, 4)
    own = torch.arange(3)[:, None] == torch.arange(4) % 3
    assert not any(x.requires_grad for x in win_probability(mean.requires_grad_(), var, own))
