"""Scaled inputs, against the library's own scalers."""

import numpy as np
import pytest

from cavity.export.model import scale
from cavity.fitting.encoding import Unscaled, fit_scaler

RNG = np.random.default_rng(0)
ROWS = np.stack(
    [
        RNG.standard_normal(900),
        1e6 + RNG.standard_normal(900),
        RNG.integers(0, 3, 900),
        RNG.exponential(size=900) ** 3,
        np.full(900, 4.0),
        1e-200 * RNG.standard_normal(900),
    ],
    axis=1,
)
WEIGHT = np.ones(len(ROWS))
EXTREMES = np.array([0.0, 1e-300, 1.0, -1.0, 1e6, -1e6, 1e15, 1e300, -1e300])[:, None] * np.ones(ROWS.shape[1])


@pytest.mark.parametrize("scaling", ["standard", "common", "quantile"])
def test_training_rows_and_rows_far_out_are_scaled_alike(run, scaling):
    scaler = fit_scaler(scaling, ROWS, WEIGHT)
    new = np.concatenate([ROWS, RNG.uniform(-5, 5, ROWS.shape) * (np.abs(ROWS) + 1), EXTREMES])
    np.testing.assert_allclose(run(lambda X: scale(scaler, X), new), scaler.transform(new), rtol=1e-14, atol=1e-14)


def test_knots_are_met_exactly(run):
    """Every knot of every feature, and the floats on both sides of it."""
    scaler = fit_scaler("quantile", ROWS, WEIGHT)
    longest = max(map(len, scaler.knots))
    knots = np.stack([np.resize(k, longest) for k in scaler.knots], axis=1)
    new = np.concatenate([knots, np.nextafter(knots, np.inf), np.nextafter(knots, -np.inf)])
    np.testing.assert_allclose(run(lambda X: scale(scaler, X), new), scaler.transform(new), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_values", [1, 2, 3, 4, 5, 511, 512, 513, 2000])
def test_any_number_of_knots_will_do(run, n_values):
    x = np.resize(RNG.standard_normal(n_values), 2000)[:, None]
    scaler = fit_scaler("quantile", x, np.ones(2000))
    new = np.concatenate([x, RNG.uniform(-4, 4, (500, 1))])
    np.testing.assert_allclose(run(lambda X: scale(scaler, X), new), scaler.transform(new), rtol=0, atol=1e-14)


def test_unscaled_rows_stay_as_they_are_within_bounds(run):
    """The library refuses what lies beyond; a graph has no way to."""
    new = np.array([[1.5, -2.0], [1e20, -1e300]])
    np.testing.assert_array_equal(run(lambda X: scale(Unscaled(), X), new), [[1.5, -2.0], [1e15, -1e15]])


def test_a_scaler_of_ones_own_is_refused(run):
    class Halved(Unscaled):
        def transform(self, X):
            return 0.5 * X

    with pytest.raises(TypeError, match=r"to be exported, got .*Halved"):
        run(lambda X: scale(Halved(), X), ROWS)
