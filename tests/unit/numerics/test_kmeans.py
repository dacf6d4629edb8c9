"""k-means against loops, and what must not change its result."""

import numpy as np
import pytest
import torch

from cavity.numerics import kmeans
from cavity.numerics.kmeans import draw_seeds, find_centers, means, nearest

CPU = torch.device("cpu")
RNG = np.random.default_rng


def rows(n=300, d=6, seed=0):
    return RNG(seed).standard_normal((n, d))


def by_loops(X, seeds):
    """Lloyd's algorithm, row by row."""
    centers = X[seeds].copy()
    for _ in range(kmeans.LLOYD_STEPS):
        index = [int(np.argmin([((x - z) ** 2).sum() for z in centers])) for x in X]
        for k in range(len(centers)):
            own = [x for x, i in zip(X, index, strict=True) if i == k]
            centers[k] = np.mean(own, axis=0) if own else centers[k]
    return centers


def test_centers_against_loops():
    X = rows()
    scaled = X - X.mean(0)
    seeds = draw_seeds(torch.from_numpy(scaled / np.abs(scaled).max()), 12, RNG(1))
    np.testing.assert_allclose(find_centers(X, 12, RNG(1), CPU), by_loops(X, seeds.numpy()), rtol=0, atol=1e-12)


def test_seeds_are_drawn_by_squared_distance():
    """One row is 3 times as far from the first seed as the other: it is drawn 9 times out of 10."""
    X = torch.tensor([[0.0], [1.0], [-3.0]], dtype=torch.float64)
    drawn = [draw_seeds(X, 2, RNG(seed)).tolist() for seed in range(1200)]
    far = [second == 2 for first, second in drawn if first == 0]
    assert np.mean(far) == pytest.approx(0.9, abs=0.05)


def test_no_row_is_drawn_twice_where_distances_are_below_the_rounding_error():
    X = torch.tensor([[1.0], [1.0 + 1e-16], [1.0], [1.0]], dtype=torch.float64)
    assert sorted(draw_seeds(X, 4, RNG(0)).tolist()) == [0, 1, 2, 3]


def test_few_rows_are_their_own_centers():
    X = rows(5)
    assert find_centers(X, 5, RNG(0), CPU) is X


def test_centers_do_not_depend_on_the_units_of_the_rows():
    X = rows()
    np.testing.assert_array_equal(find_centers(2.0**40 * X, 9, RNG(0), CPU), 2.0**40 * find_centers(X, 9, RNG(0), CPU))


def test_seeds_come_from_a_sample_of_many_rows(monkeypatch):
    monkeypatch.setattr(kmeans, "SEED_ROWS", 50)
    sizes, draw = [], draw_seeds
    monkeypatch.setattr(kmeans, "draw_seeds", lambda X, n, rng: sizes.append(len(X)) or draw(X, n, rng))
    X = rows(2000)
    for n in (9, 20):
        Z = find_centers(X, n, RNG(0), CPU)
        assert Z.shape == (n, 6)
        assert (np.abs(Z.mean(0)) < 0.5).all()
    assert sizes == [50, 100]


def test_a_cluster_without_rows_keeps_its_center():
    X, centers = torch.from_numpy(rows(4, 2)), torch.full((3, 2), 7.0, dtype=torch.float64)
    found = means(X, torch.tensor([2, 0, 2, 0]), centers)
    assert torch.equal(found[1], centers[1])
    torch.testing.assert_close(found[[0, 2]], torch.stack([X[[1, 3]].mean(0), X[[0, 2]].mean(0)]))


# --- The nearest center ---


def test_single_precision_decides_as_double_precision():
    """The second center is nearer by less than single precision can tell, for every other row."""
    X = torch.from_numpy(rows(500, 4))
    centers = torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [9.0, 9.0, 9.0, 9.0]], dtype=torch.float64)
    X[:, 0] = 1e-9 * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(250)
    expected = torch.tensor([0, 1]).repeat(250)
    assert torch.equal(nearest(X, centers, X.float()), expected)
    assert torch.equal(nearest(X, centers), expected)
    assert not torch.equal(nearest(X.float(), centers.float()), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_of_equally_near_centers(dtype):
    """Rounding errors of products would decide: 0.1 and 0.3 have no exact square."""
    X = torch.full((40, 7), 0.1, dtype=torch.float64)
    centers = torch.full((7, 7), 0.1, dtype=torch.float64) + 0.3 * torch.eye(7, dtype=torch.float64)
    for order in (torch.arange(7), torch.arange(6, -1, -1)):
        assert (nearest(X, centers[order], X.to(dtype)) == 0).all()


def test_one_center_is_nearest_to_all():
    X = torch.from_numpy(rows(10))
    assert (nearest(X, X[:1], X.float()) == 0).all()


def test_rows_too_far_out_for_single_precision():
    """One row is so far out that single precision sees all the others at one place."""
    X = np.concatenate([rows(50, 2), [[1e12, 0.0]]])
    X[:25] += 100.0
    scaled = torch.from_numpy(X / np.abs(X).max())
    assert torch.equal(
        nearest(scaled, scaled[[0, 30, 50]], scaled.float())[:50], torch.tensor([0, 1]).repeat_interleave(25)
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same_centers():
    X = rows(5000, 30)
    on_gpu, on_cpu = (find_centers(X, 100, RNG(0), torch.device(name)) for name in ("cuda", "cpu"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-12)
