"""Where training starts."""

import math

import numpy as np
import pytest
import torch

from cavity.kernels import RBF
from cavity.training import median_distance, start_inducing, start_model

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
    found = start_inducing(Z, np.zeros((9, 2)), np.zeros(9, dtype=np.int64), 3, 7, "kmeans", 0.1, RNG(0))
    np.testing.assert_array_equal(found, np.stack([Z] * 3))
    each = RNG(1).standard_normal((3, 4, 2))
    found = start_inducing(each, np.zeros((9, 2)), np.zeros(9, dtype=np.int64), 3, 7, "kmeans", 0.1, RNG(0))
    np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)])
def test_shapes_of_what_is_shared(shared):
    X, Z = RNG(0).standard_normal((9, 2)), RNG(1).standard_normal((3, 4, 2))
    device = torch.device("cpu")
    model = start_model(RBF(), X, 3, Z, 0.1, (True, True), shared, 1.5, device, torch.float64)
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
        start_model(RBF(), X, 3, Z, noise, (True, True), (False, False), 1.0, torch.device("cpu"), torch.float64)


def coarse_model(X, lengthscale):
    Z = np.zeros((2, 3, 2))
    learned = shared = (False, False)
    return start_model(RBF(), X, 2, Z, 0.1, learned, shared, lengthscale, torch.device("cpu"), torch.float32)


def test_single_precision_only_where_it_will_do():
    """A squared distance of 2500 has an error of 3e-4 in single precision, one of 100 has 1e-5."""
    assert coarse_model(np.array([[10.0, 0.0]]), 1.0).dtype == torch.float32
    assert coarse_model(np.array([[50.0, 0.0]]), 1.0).dtype == torch.float64
    assert coarse_model(np.array([[50.0, 0.0]]), 5.0).dtype == torch.float32
    assert coarse_model(np.array([[1e200, 0.0]]), 1.0).dtype == torch.float64
