"""Input scaling: invertible, weighted, safe for values of any size."""

import numpy as np
import pytest

from cavity.fitting.encoding import KNOTS, Scaler, fit_scaler
from cavity.numerics.limits import LARGEST_INPUT

BOTH = ["standard", "quantile"]


def skewed(n_rows=40, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return scale * np.exp(rng.standard_normal((n_rows, 3))) * [1.0, 100.0, 1e-3]


def fitted(scaling, X, weight=None):
    return fit_scaler(scaling, X, np.ones(len(X)) if weight is None else weight)


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_inverse_undoes_transform(scaling):
    X, new = skewed(), skewed(seed=1) * 3 - 1.0  # beyond the training range too
    scaler = fitted(scaling, X)
    assert isinstance(scaler, Scaler)
    for rows in (X, new):
        np.testing.assert_allclose(scaler.inverse(scaler.transform(rows)), rows, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_inverse_takes_inducing_points_of_all_classes(scaling):
    X = skewed()
    scaler, Z = fitted(scaling, X), X[:12].reshape(2, 6, 3)
    scaled = scaler.transform(X[:12]).reshape(2, 6, 3)
    np.testing.assert_allclose(scaler.inverse(scaled), Z, rtol=1e-10)


def test_standard_has_mean_zero_and_sd_one():
    scaled = fitted("standard", skewed()).transform(skewed())
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(scaled.std(0, ddof=1), 1, rtol=1e-13)


def test_quantiles_are_those_of_a_uniform_with_mean_zero_and_sd_one():
    X = skewed(400)
    scaled = fitted("quantile", X).transform(X)
    workers = (np.argsort(np.argsort(X, axis=0), axis=0) + 0.5) / 400
    np.testing.assert_allclose(scaled, (workers - 0.5) * np.sqrt(12), rtol=0, atol=1e-12)


def test_quantiles_do_not_see_a_monotone_change_of_units():
    X = skewed()
    a, b = fitted("quantile", X).transform(X), fitted("quantile", np.log(X)).transform(np.log(X))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_many_distinct_values_share_a_bounded_number_of_knots():
    X = skewed(5 * KNOTS)
    scaler = fitted("quantile", X)
    assert max(len(k) for k in scaler.knots) <= KNOTS
    scaled = scaler.transform(X)
    workers = (np.argsort(np.argsort(X, axis=0), axis=0) + 0.5) / len(X)
    np.testing.assert_allclose(scaled, (workers - 0.5) * np.sqrt(12), rtol=0, atol=4 / KNOTS)


@pytest.mark.parametrize("scaling", BOTH)
def test_a_weight_counts_as_copies(scaling):
    X, weight = skewed(), np.arange(40) % 4 + 1
    weighted, repeated = fitted(scaling, X, weight.astype(float)), fitted(scaling, np.repeat(X, weight, axis=0))
    new = skewed(seed=1)
    np.testing.assert_allclose(weighted.transform(new), repeated.transform(new), rtol=1e-11, atol=1e-12)
    assert not np.allclose(weighted.transform(new), fitted(scaling, X).transform(new), rtol=1e-3)


@pytest.mark.parametrize("scaling", BOTH)
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e150, 1e-150])
def test_a_constant_feature_becomes_zero(scaling, value):
    X = np.column_stack([np.full(7, value), np.arange(7.0)])
    scaler = fitted(scaling, X)
    np.testing.assert_allclose(scaler.transform(X)[:, 0], 0, atol=1e-14 * max(1.0, abs(value)))
    np.testing.assert_allclose(scaler.inverse(scaler.transform(X)), X, rtol=1e-14)
    if abs(value) < 1e100:
        assert scaler.transform(np.array([[value + 2.0, 0.0]]))[0, 0] == pytest.approx(2.0)


@pytest.mark.parametrize("scaling", BOTH)
@pytest.mark.parametrize("size", [1e150, 1e-150, 1e300, 1e-300])
def test_values_of_any_size_scale_as_ordinary_ones(scaling, size):
    X = skewed()
    huge = fitted(scaling, size * X)
    np.testing.assert_allclose(huge.transform(size * X), fitted(scaling, X).transform(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(huge.inverse(huge.transform(size * X)), size * X, rtol=1e-10)


@pytest.mark.parametrize("scaling", BOTH)
def test_new_values_far_outside_stay_finite_when_squared(scaling):
    scaled = fitted(scaling, skewed()).transform(np.array([[1e308, -1e308, 1e200]]))
    assert np.isfinite(scaled**2).all()
    assert np.abs(scaled).max() == LARGEST_INPUT
    assert np.sign(scaled).tolist() == [[1.0, -1.0, 1.0]]


@pytest.mark.parametrize("scaling", BOTH)
def test_strictly_monotone_also_beyond_the_training_range(scaling):
    X = skewed()
    low, high = X.min(0), X.max(0)
    grid = low + (high - low) * np.linspace(-2, 3, 501)[:, None]
    assert (np.diff(fitted(scaling, X).transform(grid), axis=0) > 0).all()


def test_quantile_goes_on_with_the_slope_of_standard():
    X = skewed()
    quantile, standard = fitted("quantile", X), fitted("standard", X)
    outside = np.stack([X.max(0) + 1.0, X.max(0) + 3.0])
    np.testing.assert_allclose(
        np.diff(quantile.transform(outside), axis=0), np.diff(standard.transform(outside), axis=0), rtol=1e-9
    )


def test_single_row():
    row = np.array([[3.0, -1.0]])
    for scaling in BOTH:
        np.testing.assert_array_equal(fitted(scaling, row).transform(row), [[0, 0]])


def test_no_scaling_is_the_identity_and_refuses_what_overflows():
    scaler = fitted(None, skewed())
    np.testing.assert_array_equal(scaler.transform(skewed()), skewed())
    with pytest.raises(
        ValueError, match=r"scaling=None needs values of X up to .*, got 1e\+150: use scaling='standard'"
    ):
        scaler.transform(np.array([[1.0, -1e150, 2.0]]))
