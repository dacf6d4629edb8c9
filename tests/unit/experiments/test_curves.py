import numpy as np
import pytest

from experiments.curves import COLUMN, interpolate, mean_curve, time_grid

EARLY = [[1.0, 0.8, 0.4], [4.0, 0.4, 0.2]]
LATE = [[2.0, 1.0, 0.4], [16.0, 0.4, 0.1]]


def test_moments_span_all_curves():
    seconds = time_grid([{"curve": EARLY}, {"curve": LATE}], 5)
    np.testing.assert_allclose(seconds, [1.0, 2.0, 4.0, 8.0, 16.0])


def test_a_fit_is_linear_in_log_time_and_keeps_its_last_value():
    values = interpolate(EARLY, COLUMN["nll"], np.array([0.5, 1.0, 2.0, 4.0, 100.0]))
    np.testing.assert_allclose(values, [np.nan, 0.8, 0.6, 0.4, 0.4])


def test_a_mean_begins_when_most_have_begun():
    seconds = np.array([1.0, 2.0, 4.0, 16.0])
    found = mean_curve([EARLY, LATE], COLUMN["nll"], seconds)
    np.testing.assert_allclose(found.mean, [np.nan, 0.8, 0.6, 0.4])
    np.testing.assert_allclose(found.se, [np.nan, 0.2, 0.2, 0.0], atol=1e-12)
    of_three = mean_curve([EARLY, EARLY, LATE], COLUMN["nll"], seconds)
    assert of_three.mean[0] == pytest.approx(0.8)
    assert found.end == 16.0


def test_places_on_a_mean():
    found = mean_curve([[[1.0, 0.8], [4.0, 0.3], [16.0, 0.5]]], 1, np.array([0.5, 1.0, 4.0, 16.0, 20.0]))
    assert found.lowest() == (pytest.approx(0.3), 4.0)
    assert found.at(2.0) == pytest.approx(0.55)
    assert found.first_below(0.8) == 1.0
    assert found.first_below(0.31) == 4.0
    assert found.first_below(0.2) is None
