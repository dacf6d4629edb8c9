"""Reliability curves by hand."""

import numpy as np
import pytest

from cavity.metrics import calibration_error, scores
from cavity.report.calibration_curves import curve, reliability
from cavity.report.intervals import wilson


def test_two_bins_by_hand():
    confidence = np.repeat([0.6, 0.9], 10)
    has_come_true = np.repeat([True, False, True, False], [5, 5, 9, 1])
    found = curve("a", confidence, has_come_true)
    np.testing.assert_allclose(found.confidence, [0.6, 0.9])
    np.testing.assert_allclose(found.frequency, [0.5, 0.9])
    np.testing.assert_array_equal(found.count, [10, 10])
    low, high = wilson([5, 9], [10, 10])
    np.testing.assert_array_equal(found.low, low)
    np.testing.assert_array_equal(found.high, high)
    assert found.label == "a"
    assert found.ece == calibration_error(confidence, has_come_true)


@pytest.mark.parametrize(("n", "bins"), [(1, 1), (9, 1), (35, 3), (150, 15), (4000, 15)])
def test_bins_hold_ten_rows_at_least_where_there_are_so_many(n, bins):
    found = curve(None, np.random.default_rng(0).uniform(size=n), np.ones(n, dtype=bool))
    assert len(found.count) == bins
    assert found.count.sum() == n
    assert np.ptp(found.count) <= 1


def test_the_top_label_comes_first_and_then_each_class():
    rng = np.random.default_rng(0)
    log_p, y = np.log(rng.dirichlet(np.ones(3), 200)), rng.integers(3, size=200)
    top, *each = reliability(y, log_p, ["a", "b", "c"])
    assert (top.label, [found.label for found in each]) == (None, ["a", "b", "c"])
    assert top.ece == pytest.approx(scores(y, log_p, [0, 1, 2]).ece)
    for k, found in enumerate(each):
        assert found.count @ found.frequency == pytest.approx((y == k).sum())
        assert found.count @ found.confidence == pytest.approx(np.exp(log_p[:, k]).sum())
        assert found.ece == pytest.approx(calibration_error(np.exp(log_p[:, k]), y == k))
