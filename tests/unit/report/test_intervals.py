"""Intervals: by hand, by how often they hold the truth, and at the edges."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from cavity.report import calibration_error, scores
from cavity.report.intervals import by_chance, mean_gap, row_losses, score_line, wilson


def drawn(rng, n, sharper=1.0):
    """Two classes: how probable the first is said to be, how probable it is, and labels."""
    size = np.abs(rng.normal(2.5, 2.0, n))
    said, true = 1 / (1 + np.exp(-sharper * size)), 1 / (1 + np.exp(-size))
    return said, true, (rng.uniform(size=n) > true).astype(int)


@pytest.mark.parametrize(
    ("hits", "rows", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (8, 20, 0.2188, 0.6134)]
)
def test_wilson_by_the_book(hits, rows, low, high):
    """Known values, to four places."""
    np.testing.assert_allclose(np.array(wilson(hits, rows)), [low, high], atol=5e-5)


def test_wilson_takes_many_at_once():
    low, high = wilson([0, 5], [10, 10])
    assert low.shape == high.shape == (2,)
    assert low[1] == pytest.approx(1 - high[1])


def test_figures_are_those_of_the_scores():
    rng = np.random.default_rng(0)
    log_p, y = np.log(rng.dirichlet(np.ones(4), 300)), rng.integers(4, size=300)
    line, expected = score_line("m", y, log_p, "note"), scores(y, log_p, np.arange(4))
    assert (line.name, line.note) == ("m", "note")
    for found, value in zip(line[1:5], expected, strict=True):
        assert found.value == pytest.approx(value, rel=1e-12)
        assert found.low <= found.value <= found.high
        assert found.high > found.low


def test_row_losses_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    nll, brier = row_losses(np.array([0, 2]), np.log(p))
    np.testing.assert_allclose(nll, -np.log([0.7, 0.3]))
    np.testing.assert_allclose(brier, [0.09 + 0.04 + 0.01, 0.01 + 0.36 + 0.49])
    assert nll.mean() == pytest.approx(log_loss([0, 2], p, labels=[0, 1, 2]))


def test_mean_gap_is_the_calibration_error():
    rng = np.random.default_rng(0)
    for n in (1, 7, 15, 400):
        confidence = np.sort(rng.uniform(size=n))
        is_right = rng.uniform(size=n) < confidence
        assert mean_gap(confidence - is_right) == pytest.approx(calibration_error(confidence, is_right))


def test_equal_confidences_do_not_gather_rows_that_came_together():
    """A model that is 75 % sure of everything and right in 75 %, whose wrong rows come first."""
    log_p = np.log(np.tile([0.75, 0.25], (3000, 1)))
    y = np.repeat([1, 0], [750, 2250])
    assert score_line("m", y, log_p).ece.value < 0.05
    assert scores(y, log_p, [0, 1]).ece < 0.05


@pytest.mark.parametrize("sharper", [1.0, 2.5])
def test_intervals_hold_the_truth(sharper):
    """In 95 of 100 samples or nearly so; those of a calibration error in 88 at least."""
    rng = np.random.default_rng(1)
    said, true, _ = drawn(rng, 200_000, sharper)
    expected = [
        (1 - true).mean(),
        -(true * np.log(said) + (1 - true) * np.log1p(-said)).mean(),
        2 * (true * (1 - said) ** 2 + (1 - true) * said**2).mean(),
        np.abs(said - true).mean(),
    ]
    hits = np.zeros(4)
    for _ in range(100):
        said, _, y = drawn(rng, 150, sharper)
        line = score_line("m", y, np.log(np.stack([said, 1 - said], 1)))
        hits += [found.low <= value <= found.high for found, value in zip(line[1:5], expected, strict=True)]
    assert (hits >= [90, 87, 87, 85]).all()
    assert hits.min() < 100


def test_something_impossible_that_came_true_costs_infinitely_much():
    log_p = np.log(np.tile([0.9, 0.1], (50, 1)))
    log_p[:20, 1] = -np.inf
    y = np.repeat([1, 0], [20, 30])
    line = score_line("m", y, log_p)
    assert line.nll == (np.inf, np.inf, np.inf)
    assert np.isfinite([*line.error, *line.brier, *line.ece]).all()


def test_a_single_impossible_row_leaves_the_lower_end_finite():
    """A third of the draws miss it."""
    log_p = np.log(np.tile([0.9, 0.1], (50, 1)))
    log_p[0, 1], y = -np.inf, np.repeat([1, 0], [1, 49])
    value, low, high = score_line("m", y, log_p).nll
    assert value == high == np.inf
    assert low == pytest.approx(-np.log(0.9))


def test_one_row_will_do():
    line = score_line("m", np.array([0]), np.log([[0.6, 0.4]]))
    assert line.nll == pytest.approx((-np.log(0.6),) * 3)
    assert line.error.high > 0.5


def test_the_calibration_error_starts_at_zero_just_where_chance_explains_it():
    rng = np.random.default_rng(3)
    said, _, y = drawn(rng, 400)
    assert score_line("m", y, np.log(np.stack([said, 1 - said], 1))).ece.low == 0.0
    said, _, y = drawn(rng, 400, sharper=4.0)
    assert score_line("m", y, np.log(np.stack([said, 1 - said], 1))).ece.low > 0.0


def test_chance_alone_moves_confidence_and_accuracy_apart_less_with_more_rows():
    few, many = by_chance(np.full(50, 0.8)), by_chance(np.full(5000, 0.8))
    assert (np.diff(few) >= 0).all()
    assert few.mean() == pytest.approx(10 * many.mean(), rel=0.2)
    assert by_chance(np.ones(50)).max() == 0.0
