"""Scores, intervals and calibration: by hand, against scikit-learn, and by how often intervals hold the truth."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from cavity.metrics import (
    argsort_by_confidence,
    calibration_bins,
    calibration_error,
    calibration_interval,
    check_calibration,
    reliability_curve,
    reliability_curves,
    row_losses,
    score_intervals,
    scores,
    wilson_interval,
)

# --- Scores ---


def test_scores_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
    found = scores(["a", "b", "c", "c"], np.log(p), ["a", "b", "c"])
    assert found.error == 0.25
    assert found.nll == pytest.approx(-np.log([0.7, 0.6, 0.25, 0.5]).mean())
    rows = [0.09 + 0.04 + 0.01, 0.01 + 0.16 + 0.09, 0.25 + 0.0625 + 0.5625, 0.04 + 0.09 + 0.25]
    assert found.brier == pytest.approx(np.mean(rows))
    # four bins of one row: |0.7 − 1|, |0.6 − 1|, |0.5 − 0|, |0.5 − 1|
    assert found.ece == pytest.approx((0.3 + 0.4 + 0.5 + 0.5) / 4)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_agree_with_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    log_p = np.log(rng.dirichlet(np.ones(n_classes), 200))
    classes = np.array(["w", "x", "y", "z"][:n_classes])
    y = rng.choice(classes, 200)
    found = scores(y, log_p, classes)
    assert found.nll == pytest.approx(log_loss(y, np.exp(log_p), labels=classes), rel=1e-12)
    brier = brier_score_loss(y, np.exp(log_p), labels=classes, scale_by_half=False)
    assert found.brier == pytest.approx(brier, rel=1e-12)
    assert found.error == pytest.approx(1 - accuracy_score(y, classes[log_p.argmax(1)]))


def test_an_impossible_label_costs_infinitely_much():
    assert scores([1], np.array([[0.0, -np.inf]]), [0, 1]).nll == np.inf


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match=r"`y` must contain only labels in classes=.* got .*'q'"):
        scores(["a", "q"], np.log(np.full((2, 2), 0.5)), ["a", "b"])


def test_calibrated_confidence_has_little_error():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, 20_000)
    is_right = rng.uniform(size=20_000) < confidence
    assert calibration_error(confidence, is_right) < 0.015
    assert calibration_error(confidence, rng.uniform(size=20_000) < confidence - 0.2) == pytest.approx(0.2, abs=0.015)


def test_bins_hold_equally_many_rows():
    """Two bins of two rows: (0.1, 0.2) with accuracy ½, (0.8, 1.0) with accuracy 1."""
    confidence, is_right = np.array([0.8, 0.1, 1.0, 0.2]), np.array([True, True, True, False])
    assert calibration_error(confidence, is_right, bins=2) == pytest.approx(0.5 * abs(0.15 - 0.5) + 0.5 * abs(0.9 - 1))


# --- Intervals ---


def drawn(rng, n, sharper=1.0, middle=2.5):
    """Two classes: how probable the first is said to be, how probable it is, and labels."""
    size = np.abs(rng.normal(middle, 2.0, n))
    said, true = 1 / (1 + np.exp(-sharper * size)), 1 / (1 + np.exp(-size))
    return said, true, (rng.uniform(size=n) > true).astype(int)


@pytest.mark.parametrize(
    ("hits", "rows", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (8, 20, 0.2188, 0.6134)]
)
def test_wilson_by_the_book(hits, rows, low, high):
    """Known values, to four places."""
    np.testing.assert_allclose(np.array(wilson_interval(hits, rows)), [low, high], atol=5e-5)


def test_wilson_takes_many_at_once():
    low, high = wilson_interval([0, 5], [10, 10])
    assert low.shape == high.shape == (2,)
    assert low[1] == pytest.approx(1 - high[1])


def test_figures_are_those_of_the_scores():
    rng = np.random.default_rng(0)
    log_p, y = np.log(rng.dirichlet(np.ones(4), 300)), rng.integers(4, size=300)
    line, expected = score_intervals("m", y, log_p, "note"), scores(y, log_p, np.arange(4))
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


def test_equal_confidences_do_not_gather_rows_that_came_together():
    """A model that is 75 % sure of everything and right in 75 %, whose wrong rows come first."""
    log_p = np.log(np.tile([0.75, 0.25], (3000, 1)))
    y = np.repeat([1, 0], [750, 2250])
    assert score_intervals("m", y, log_p).ece.value < 0.05
    assert scores(y, log_p, [0, 1]).ece < 0.05


def binomial_range(level, n):
    """Where all but one in a thousand counts of n are, relative to n."""
    return binom.ppf([0.0005, 0.9995], n, level) / n


@pytest.mark.parametrize(("n", "sharper", "middle"), [(36, 1.0, 2.5), (53, 2.0, 5.0), (150, 1.4, 2.5)])
def test_intervals_hold_the_truth(n, sharper, middle):
    """In 92 to 97 of 100 samples, up to chance in 150 of them; NLL and Brier score in more if errors are rare."""
    rng, repeats = np.random.default_rng(1), 150
    said, true, _ = drawn(rng, 200_000, sharper, middle)
    expected = [
        (1 - true).mean(),
        -(true * np.log(said) + (1 - true) * np.log1p(-said)).mean(),
        2 * (true * (1 - said) ** 2 + (1 - true) * said**2).mean(),
        np.abs(said - true).mean(),
    ]
    hits = np.zeros(4)
    for _ in range(repeats):
        said, _, y = drawn(rng, n, sharper, middle)
        line = score_intervals("m", y, np.log(np.stack([said, 1 - said], 1)))
        hits += [found.low <= value <= found.high for found, value in zip(line[1:5], expected, strict=True)]
    assert (hits / repeats >= binomial_range(0.92, repeats)[0]).all(), hits / repeats
    assert (hits / repeats <= binomial_range(0.97, repeats)[1])[[0, 3]].all(), hits / repeats


def test_confident_rows_without_an_error_leave_errors_possible():
    """53 rows, all right, of a confidence of nearly 1: the error can still be 7 %, and so can the calibration error."""
    log_p = np.log(np.tile([1 - 1e-4, 1e-4], (53, 1)))
    line = score_intervals("m", np.zeros(53, dtype=np.int64), log_p)
    assert line.error.high == pytest.approx(0.068, abs=0.001)
    assert line.ece.value == pytest.approx(1e-4)
    assert line.ece.low == 0.0
    assert line.ece.high == pytest.approx(1 - 0.025 ** (1 / 53), abs=0.01)  # 500 draws
    assert line.nll.high == pytest.approx((1 - 0.025 ** (1 / 53)) * -np.log(1e-4), rel=0.01)
    assert line.brier.high == pytest.approx((1 - 0.025 ** (1 / 53)) * 2, rel=0.01)


def test_more_rows_leave_less_unnoticed():
    rng, ends = np.random.default_rng(0), []
    for n in (36, 300, 3000, 20_000):
        confidence = rng.uniform(0.5, 1.0, n)
        ends.append(calibration_interval(confidence, rng.uniform(size=n) < confidence))
    assert [end.low for end in ends] == [0.0] * 4
    assert all(more.high < few.high for few, more in pairwise(ends))
    assert ends[0].high > 0.15
    assert ends[-1].high < 0.02


@pytest.mark.parametrize("sign", [1, -1])
def test_an_error_of_known_size_is_within_its_interval(sign):
    """A shift of 0.1 on many rows: a narrow interval around it, the same on every call."""
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.5, 0.85, 20_000)
    is_right = rng.uniform(size=20_000) < confidence - 0.1 * sign
    found = calibration_interval(confidence, is_right)
    assert found == calibration_interval(confidence, is_right)
    assert found.value == pytest.approx(calibration_error(confidence, is_right), rel=1e-12)
    assert 0.08 < found.low < 0.1 < found.high < 0.12


def test_something_impossible_that_came_true_costs_infinitely_much():
    log_p = np.log(np.tile([0.9, 0.1], (50, 1)))
    log_p[:20, 1] = -np.inf
    y = np.repeat([1, 0], [20, 30])
    line = score_intervals("m", y, log_p)
    assert line.nll == (np.inf, np.inf, np.inf)
    assert np.isfinite([*line.error, *line.brier, *line.ece]).all()


def test_a_single_impossible_row_leaves_the_lower_end_finite():
    """A third of the draws miss it."""
    log_p = np.log(np.tile([0.9, 0.1], (50, 1)))
    log_p[0, 1], y = -np.inf, np.repeat([1, 0], [1, 49])
    value, low, high = score_intervals("m", y, log_p).nll
    assert value == high == np.inf
    assert low == pytest.approx(-np.log(0.9))


def test_one_row_will_do():
    """One row says next to nothing: the loss of another one can be that of an error."""
    line = score_intervals("m", np.array([0]), np.log([[0.6, 0.4]]))
    assert line.nll == pytest.approx((-np.log(0.6), -np.log(0.6), 0.025 * -np.log(0.6) + 0.975 * -np.log(0.4)))
    assert line.error.high > 0.5


def test_the_calibration_error_starts_at_zero_just_where_chance_explains_it():
    rng = np.random.default_rng(3)
    said, _, y = drawn(rng, 400)
    assert score_intervals("m", y, np.log(np.stack([said, 1 - said], 1))).ece.low == 0.0
    said, _, y = drawn(rng, 400, sharper=4.0)
    assert score_intervals("m", y, np.log(np.stack([said, 1 - said], 1))).ece.low > 0.0


# --- Calibration ---


@pytest.mark.parametrize(
    ("sharper", "fault"), [(1.0, None), (4.0, "overconfident"), (0.2, "underconfident")], ids=["fair", "over", "under"]
)
def test_a_fault_is_named_just_where_the_interval_excludes_zero(sharper, fault):
    said, _, y = drawn(np.random.default_rng(3), 400, sharper)
    log_p = np.log(np.stack([said, 1 - said], 1))
    check = check_calibration(y, log_p)
    assert check.fault == fault
    assert (check.ece.low > 0.0) == (fault is not None)
    assert check.ece == score_intervals("m", y, log_p).ece
    assert check.ece.value == pytest.approx(scores(y, log_p, [0, 1]).ece)
    assert (check.mean_confidence, check.accuracy) == pytest.approx((said.mean(), (y == 0).mean()))


def test_right_on_average_is_a_mixed_fault():
    """Half of the rows are right in 100 %, half in 50 %, all at a confidence of 60 or 90 %."""
    p = np.where((np.arange(2000) % 2)[:, None] == 0, [0.55, 0.45], [0.95, 0.05])
    y = np.where(np.arange(2000) % 2 == 0, 0, np.arange(2000) // 2 % 2)
    assert check_calibration(y, np.log(p)).fault == "mixed"


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_every_row_is_in_one_bin_and_confidence_rises(strategy):
    confidence = np.random.default_rng(0).beta(4, 1, 103)
    bins = calibration_bins(confidence, 10, strategy)
    assert sorted(np.concatenate(bins)) == list(range(103))
    ends = [(confidence[places].min(), confidence[places].max()) for places in bins]
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_bins_hold_equally_many_rows_or_have_one_width():
    confidence = np.random.default_rng(0).beta(4, 1, 103)
    assert {len(places) for places in calibration_bins(confidence, 10)} == {10, 11}
    for places in calibration_bins(confidence, 4, "uniform"):
        assert len(set((4 * confidence[places]).astype(int))) == 1


def test_the_ends_of_the_scale_have_bins_and_empty_ones_are_left_out():
    assert [places.tolist() for places in calibration_bins(np.array([1.0, 0.0]), 5, "uniform")] == [[1], [0]]
    assert [len(places) for places in calibration_bins(np.array([0.5, 0.5]), 5)] == [1, 1]
    assert calibration_bins(np.array([]), 5) == []
    with pytest.raises(ValueError, match="strategy='wide'"):
        calibration_bins(np.array([0.5]), 5, "wide")


def test_equal_confidences_are_mixed_and_none_is_lost():
    order = argsort_by_confidence(np.ones(100))
    assert sorted(order) == list(range(100))
    assert (np.diff(order) != 1).any()


# --- Reliability curves ---


def test_two_bins_by_hand():
    confidence = np.repeat([0.6, 0.9], 10)
    has_come_true = np.repeat([True, False, True, False], [5, 5, 9, 1])
    found = reliability_curve("a", confidence, has_come_true)
    np.testing.assert_allclose(found.confidence, [0.6, 0.9])
    np.testing.assert_allclose(found.accuracy, [0.5, 0.9])
    np.testing.assert_array_equal(found.rows, [10, 10])
    low, high = wilson_interval([5, 9], [10, 10])
    np.testing.assert_array_equal(found.low, low)
    np.testing.assert_array_equal(found.high, high)
    assert found.name == "a"
    assert found.ece == calibration_error(confidence, has_come_true)


@pytest.mark.parametrize(("n", "bins"), [(1, 1), (9, 1), (35, 3), (150, 15), (4000, 15)])
def test_bins_hold_ten_rows_at_least_where_there_are_so_many(n, bins):
    found = reliability_curve(None, np.random.default_rng(0).uniform(size=n), np.ones(n, dtype=bool))
    assert len(found.rows) == bins
    assert found.rows.sum() == n
    assert np.ptp(found.rows) <= 1


def test_the_top_label_comes_first_and_then_each_class():
    rng = np.random.default_rng(0)
    log_p, y = np.log(rng.dirichlet(np.ones(3), 200)), rng.integers(3, size=200)
    top, *each = reliability_curves(y, log_p, ["a", "b", "c"])
    assert (top.name, [found.name for found in each]) == (None, ["a", "b", "c"])
    assert top.ece == pytest.approx(scores(y, log_p, [0, 1, 2]).ece)
    for k, found in enumerate(each):
        assert found.rows @ found.accuracy == pytest.approx((y == k).sum())
        assert found.rows @ found.confidence == pytest.approx(np.exp(log_p[:, k]).sum())
        assert found.ece == pytest.approx(calibration_error(np.exp(log_p[:, k]), y == k))
