"""Where training starts."""

import math

import numpy as np
import pytest
import torch

from cavity.kernels import RBF
from cavity.training import initial
from cavity.training.initial import initial_inducing_points, initial_prior, median_distance

RNG = np.random.default_rng


def test_median_distance_against_loops():
    X = RNG(0).standard_normal((9, 2))
    distances = [math.dist(a, b) for i, a in enumerate(X) for b in X[:i]]
    assert median_distance(X, RNG(0)) == pytest.approx(np.median(distances))


def test_median_distance_of_many_rows_uses_a_sample(monkeypatch):
    monkeypatch.setattr("cavity.training.initial.MEDIAN_ROWS", 50)
    X = RNG(0).standard_normal((500, 2))
    sampled = median_distance(X, RNG(0))
    assert sampled != median_distance(X, RNG(1))
    assert sampled == pytest.approx(np.median([math.dist(a, b) for a in X[:100] for b in X[100:200]]), rel=0.2)


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (np.ones((5, 2)), 1.0),  # all rows equal
        (np.zeros((1, 2)), 1.0),  # one row
        (np.array([[0.0], [0.0], [0.0], [0.0], [4.0]]), 4.0),  # the median is 0: the largest distance
        (np.array([[0.0], [4e14]]), 4e14),
    ],
)
def test_median_distance_of_odd_rows(X, expected):
    assert median_distance(X, RNG(0)) == pytest.approx(expected)


def test_given_inducing_points_serve_every_class():
    Z = RNG(0).standard_normal((4, 2))
    found = initial_inducing_points(np.zeros((9, 2)), np.zeros(9, dtype=np.int64), 3, 7, "kmeans", RNG(0), 0.1, Z)
    np.testing.assert_array_equal(found, np.stack([Z] * 3))
    each = RNG(1).standard_normal((3, 4, 2))
    found = initial_inducing_points(np.zeros((9, 2)), np.zeros(9, dtype=np.int64), 3, 7, "kmeans", RNG(0), 0.1, each)
    np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)])
def test_shapes_of_what_is_shared(shared):
    X, Z = RNG(0).standard_normal((9, 2)), RNG(1).standard_normal((3, 4, 2))
    device = torch.device("cpu")
    model = initial_prior(RBF(), X, 3, Z, 0.1, (True, True), shared, 1.5, device, torch.float64)
    n_kernels, n_points = 1 if shared[0] else 3, 1 if shared[1] else 3
    shapes = {name: tuple(value.shape) for name, value in model.values.items()}
    assert shapes == {
        "kernel.log_lengthscale": (n_kernels, 2),
        "kernel.log_variance": (n_kernels,),
        "log_noise": (n_kernels,),
        "Z": (n_points, 4, 2),
    }
    assert model.n_classes == 3
    assert float(model.values["kernel.log_lengthscale"][0, 0]) == pytest.approx(math.log(1.5))
    assert float(model.values["log_noise"][0]) == pytest.approx(math.log(0.1))


@pytest.mark.parametrize("noise", [0.0, -1.0, [0.1, 0.2]])
def test_bad_noise_is_named(noise):
    X, Z = np.zeros((4, 2)), np.zeros((3, 1, 2))
    with pytest.raises(ValueError, match=r"^noise[ =]"):
        initial_prior(RBF(), X, 3, Z, noise, (True, True), (False, False), 1.0, torch.device("cpu"), torch.float64)


def coarse_model(X, lengthscale):
    Z = np.zeros((2, 3, 2))
    learned = shared = (False, False)
    return initial_prior(RBF(), X, 2, Z, 0.1, learned, shared, lengthscale, torch.device("cpu"), torch.float32)


def test_single_precision_only_where_it_will_do():
    """A squared distance of 2500 has an error of 3e-4 in single precision, one of 100 has 1e-5."""
    assert coarse_model(np.array([[10.0, 0.0]]), 1.0).dtype == torch.float32
    assert coarse_model(np.array([[50.0, 0.0]]), 1.0).dtype == torch.float64
    assert coarse_model(np.array([[50.0, 0.0]]), 5.0).dtype == torch.float32
    assert coarse_model(np.array([[1e200, 0.0]]), 1.0).dtype == torch.float64


# --- Inducing points ---


HOW = ["kmeans", "kmeans-per-class", "random"]


def clouds(n_rows=60, n_classes=3):
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    return 4.0 * y[:, None] + rng.standard_normal((n_rows, 2)), y


@pytest.mark.parametrize("how", HOW)
def test_inducing_points_lie_within_the_rows_and_follow_the_seed(how):
    X, y = clouds()
    Z, same, other = (initial_inducing_points(X, y, 3, 7, how, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert Z.shape == (3, 7, 2)
    np.testing.assert_array_equal(Z, same)
    assert not np.array_equal(Z, other)
    assert (Z.min((0, 1)) >= X.min(0)).all()
    assert (Z.max((0, 1)) <= X.max(0)).all()


@pytest.mark.parametrize("how", HOW)
def test_inducing_points_of_a_class_are_distinct(how):
    X, y = clouds()
    for Z in initial_inducing_points(X, y, 3, 12, how, np.random.default_rng(0)):
        assert len(np.unique(Z, axis=0)) == 12


def test_random_inducing_points_are_rows_drawn_for_each_class_apart():
    X, y = clouds()
    Z = initial_inducing_points(X, y, 3, 7, "random", np.random.default_rng(0))
    rows = {tuple(x) for x in X}
    assert all(tuple(z) in rows for z in Z.reshape(-1, 2))
    assert not np.array_equal(Z[0], Z[1])


def test_kmeans_points_are_the_same_for_every_class_and_near_the_rows():
    X, y = clouds()
    Z = initial_inducing_points(X, y, 3, 12, "kmeans", np.random.default_rng(0))
    assert np.array_equal(Z[0], Z[1])
    assert np.array_equal(Z[0], Z[2])

    def mean_distance(points):
        return np.linalg.norm(X[:, None] - points[None], axis=2).min(1).mean()

    drawn = [initial_inducing_points(X, y, 3, 12, "random", np.random.default_rng(s))[0] for s in range(10)]
    assert mean_distance(Z[0]) < min(mean_distance(points) for points in drawn)


def test_half_of_the_points_per_class_come_from_its_rows():
    X, y = clouds()
    Z = initial_inducing_points(X, y, 3, 8, "kmeans-per-class", np.random.default_rng(0))
    for k in range(3):
        own = X[y == k]
        assert (Z[k, :4] >= own.min(0)).all()
        assert (Z[k, :4] <= own.max(0)).all()


@pytest.mark.parametrize("how", HOW)
def test_more_points_than_rows_gives_every_row(how):
    X, y = clouds(n_rows=6)
    Z = initial_inducing_points(X, y, 3, 50, how, np.random.default_rng(0))
    assert Z.shape == (3, 6, 2)
    if how != "kmeans-per-class":
        for points in Z:
            np.testing.assert_array_equal(np.unique(points, axis=0), np.unique(X, axis=0))


@pytest.mark.parametrize("how", ["kmeans", "kmeans-per-class"])
def test_duplicate_rows_count_once(how):
    X, y = clouds(n_rows=6)
    Z = initial_inducing_points(np.repeat(X, 10, axis=0), np.repeat(y, 10), 3, 50, how, np.random.default_rng(0))
    assert Z.shape == (3, 6, 2)


@pytest.mark.parametrize("how", HOW)
def test_a_class_without_rows_gets_points_too(how):
    X, y = clouds()
    Z = initial_inducing_points(X, y, 4, 8, how, np.random.default_rng(0))
    assert Z.shape == (4, 8, 2)
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("how", HOW)
def test_all_rows_equal(how):
    Z = initial_inducing_points(np.ones((5, 2)), np.arange(5) % 2, 2, 3, how, np.random.default_rng(0))
    np.testing.assert_array_equal(np.unique(Z.reshape(-1, 2), axis=0), [[1.0, 1.0]])


def test_kmeans_looks_at_a_sample_of_many_rows(monkeypatch):
    monkeypatch.setattr("cavity.training.initial.KMEANS_ROWS", 10)
    monkeypatch.setattr("cavity.training.initial.ROWS_PER_CENTER", 0)
    X, y = clouds()
    Z = initial_inducing_points(X, y, 3, 50, "kmeans", np.random.default_rng(0))
    assert Z.shape == (3, 10, 2)


@pytest.mark.parametrize("n_sample", [20, 40, 60])
def test_points_of_classes_come_from_other_rows_than_the_common_ones_where_there_are_enough(monkeypatch, n_sample):
    monkeypatch.setattr("cavity.training.initial.KMEANS_ROWS", n_sample)
    monkeypatch.setattr("cavity.training.initial.ROWS_PER_CENTER", 0)
    sets, find = [], initial.find_centers
    monkeypatch.setattr(initial, "find_centers", lambda X, *rest: sets.append({tuple(x) for x in X}) or find(X, *rest))
    X, y = clouds()
    initial_inducing_points(X, y, 3, 8, "kmeans-per-class", np.random.default_rng(0))
    *of_classes, common = sets[:4]
    assert len(common) == sum(map(len, of_classes)) == n_sample
    assert set.union(*of_classes).isdisjoint(common) == (n_sample == 20)


def test_many_rows_count_once_too(monkeypatch):
    """Rows are compared by hashes then."""
    monkeypatch.setattr("cavity.training.initial.SORTED_ROWS", 0)
    X, y = clouds(n_rows=6)
    Z = initial_inducing_points(np.repeat(X, 10, axis=0), np.repeat(y, 10), 3, 50, "kmeans", np.random.default_rng(0))
    np.testing.assert_array_equal(Z, np.stack([X] * 3))


@pytest.mark.parametrize("how", HOW)
def test_a_nudge_moves_every_point_a_little_and_all_classes_alike(how):
    X, y = clouds()
    plain, moved = (initial_inducing_points(X, y, 3, 7, how, np.random.default_rng(3), nudge) for nudge in (0.0, 1e-3))
    step = moved - plain
    assert np.abs(step).min() > 0
    assert 5e-4 < step.std() < 2e-3
    np.testing.assert_allclose(step, np.broadcast_to(step[0], step.shape), rtol=0, atol=1e-15)


@pytest.mark.parametrize("how", HOW)
def test_where_every_row_is_an_inducing_point_none_is_nudged(how):
    """Then q may be exact, and stays so."""
    X, y = clouds()
    plain, moved = (
        initial_inducing_points(X, y, 3, len(X), how, np.random.default_rng(3), nudge) for nudge in (0.0, 1e-3)
    )
    np.testing.assert_array_equal(plain, moved)
