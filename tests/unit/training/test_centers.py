"""Where inducing points start."""

import numpy as np
import pytest

from cavity.training.centers import choose_inducing

HOW = ["kmeans", "kmeans-per-class", "random"]


def clouds(n_rows=60, n_classes=3):
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % n_classes
    return 4.0 * y[:, None] + rng.standard_normal((n_rows, 2)), y


@pytest.mark.parametrize("how", HOW)
def test_inducing_points_lie_within_the_rows_and_follow_the_seed(how):
    X, y = clouds()
    Z, same, other = (choose_inducing(X, y, 3, 7, how, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert Z.shape == (3, 7, 2)
    np.testing.assert_array_equal(Z, same)
    assert not np.array_equal(Z, other)
    assert (Z.min((0, 1)) >= X.min(0)).all()
    assert (Z.max((0, 1)) <= X.max(0)).all()


@pytest.mark.parametrize("how", HOW)
def test_inducing_points_of_a_class_are_distinct(how):
    X, y = clouds()
    for Z in choose_inducing(X, y, 3, 12, how, np.random.default_rng(0)):
        assert len(np.unique(Z, axis=0)) == 12


def test_random_inducing_points_are_rows_drawn_for_each_class_apart():
    X, y = clouds()
    Z = choose_inducing(X, y, 3, 7, "random", np.random.default_rng(0))
    rows = {tuple(x) for x in X}
    assert all(tuple(z) in rows for z in Z.reshape(-1, 2))
    assert not np.array_equal(Z[0], Z[1])


def test_kmeans_points_are_the_same_for_every_class_and_near_the_rows():
    X, y = clouds()
    Z = choose_inducing(X, y, 3, 12, "kmeans", np.random.default_rng(0))
    assert np.array_equal(Z[0], Z[1])
    assert np.array_equal(Z[0], Z[2])

    def mean_distance(points):
        return np.linalg.norm(X[:, None] - points[None], axis=2).min(1).mean()

    drawn = [choose_inducing(X, y, 3, 12, "random", np.random.default_rng(s))[0] for s in range(10)]
    assert mean_distance(Z[0]) < min(mean_distance(points) for points in drawn)


def test_half_of_the_points_per_class_come_from_its_rows():
    X, y = clouds()
    Z = choose_inducing(X, y, 3, 8, "kmeans-per-class", np.random.default_rng(0))
    for k in range(3):
        own = X[y == k]
        assert (Z[k, :4] >= own.min(0)).all()
        assert (Z[k, :4] <= own.max(0)).all()


@pytest.mark.parametrize("how", HOW)
def test_more_points_than_rows_gives_every_row(how):
    X, y = clouds(n_rows=6)
    Z = choose_inducing(X, y, 3, 50, how, np.random.default_rng(0))
    assert Z.shape == (3, 6, 2)
    if how != "kmeans-per-class":
        for points in Z:
            np.testing.assert_array_equal(np.unique(points, axis=0), np.unique(X, axis=0))


@pytest.mark.parametrize("how", ["kmeans", "kmeans-per-class"])
def test_duplicate_rows_count_once(how):
    X, y = clouds(n_rows=6)
    Z = choose_inducing(np.repeat(X, 10, axis=0), np.repeat(y, 10), 3, 50, how, np.random.default_rng(0))
    assert Z.shape == (3, 6, 2)


@pytest.mark.parametrize("how", HOW)
def test_a_class_without_rows_gets_points_too(how):
    X, y = clouds()
    Z = choose_inducing(X, y, 4, 8, how, np.random.default_rng(0))
    assert Z.shape == (4, 8, 2)
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("how", HOW)
def test_all_rows_equal(how):
    Z = choose_inducing(np.ones((5, 2)), np.arange(5) % 2, 2, 3, how, np.random.default_rng(0))
    np.testing.assert_array_equal(np.unique(Z.reshape(-1, 2), axis=0), [[1.0, 1.0]])


def test_kmeans_looks_at_a_sample_of_many_rows(monkeypatch):
    monkeypatch.setattr("cavity.training.centers.KMEANS_ROWS", 10)
    monkeypatch.setattr("cavity.training.centers.ROWS_PER_CENTER", 0)
    X, y = clouds()
    Z = choose_inducing(X, y, 3, 50, "kmeans", np.random.default_rng(0))
    assert Z.shape == (3, 10, 2)


@pytest.mark.parametrize("how", HOW)
def test_a_nudge_moves_every_point_a_little_and_all_classes_alike(how):
    X, y = clouds()
    plain, moved = (choose_inducing(X, y, 3, 7, how, np.random.default_rng(3), nudge) for nudge in (0.0, 1e-3))
    step = moved - plain
    assert np.abs(step).min() > 0
    assert 5e-4 < step.std() < 2e-3
    np.testing.assert_allclose(step, np.broadcast_to(step[0], step.shape), rtol=0, atol=1e-15)


@pytest.mark.parametrize("how", HOW)
def test_where_every_row_is_an_inducing_point_none_is_nudged(how):
    """Then q may be exact, and stays so."""
    X, y = clouds()
    plain, moved = (choose_inducing(X, y, 3, len(X), how, np.random.default_rng(3), nudge) for nudge in (0.0, 1e-3))
    np.testing.assert_array_equal(plain, moved)
