"""The diagram by hand, and its numbers against the report's and SciPy's."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from cavity.metrics import calibration_error, calibration_interval
from cavity.plot import ReliabilityDisplay
from cavity.plot.reliability import STRIP

CLASSES = np.array(["a", "b", "c"])
Y = ["a", "b", "c", "a", "a"]
P = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.2, 0.65, 0.15], [0.9, 0.1, 0.0], [0.25, 0.35, 0.4]])


@pytest.fixture(scope="module")
def many():
    """1,000 rows of three classes."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 1000)
    return CLASSES[[rng.choice(3, p=row) for row in p]], p


# --- Of the most probable label ---


def test_bins_by_hand(ax, no_new_figure):
    """Confidences 0.8, 0.7, 0.65, 0.9, 0.4, of which the first, second and fourth are right."""
    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, n_bins=4, ax=ax)
    x, y = display.lines_[0].lines[0].get_data()
    np.testing.assert_allclose(x, [0.4, (0.7 + 0.65) / 2, 0.85])
    np.testing.assert_allclose(y, [0.0, 0.5, 1.0])
    assert display.curves[0].rows.tolist() == [1, 2, 2]
    assert (display.ax_, display.figure_) == (ax, ax.figure)


def test_bins_of_equally_many_rows(ax):
    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, n_bins=2, strategy="quantile", ax=ax)
    assert display.curves[0].rows.tolist() == [3, 2]
    np.testing.assert_allclose(display.lines_[0].lines[0].get_xdata(), [(0.4 + 0.65 + 0.7) / 3, 0.85])


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_the_calibration_error_is_the_reports_whatever_is_drawn(ax, many, strategy):
    y, p = many
    display = ReliabilityDisplay.from_predictions(y, p, classes=CLASSES, n_bins=6, strategy=strategy, ax=ax)
    expected = calibration_error(p.max(1), CLASSES[p.argmax(1)] == y)
    assert display.curves[0].ece == pytest.approx(expected, rel=1e-12)
    _, low, high = calibration_interval(p.max(1), CLASSES[p.argmax(1)] == y)
    told = f"classifier (ECE {expected:.3f}, 95 %: {low:.3f} to {high:.3f})"
    assert ax.get_legend().get_texts()[0].get_text() == told


def test_error_bars_reach_from_low_to_high(ax, many):
    y, p = many
    display = ReliabilityDisplay.from_predictions(y, p, classes=CLASSES, ax=ax)
    curve, bars = display.curves[0], display.lines_[0].lines[2][0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], np.transpose([curve.low, curve.high]), atol=1e-12)
    assert ((curve.low < curve.accuracy) & (curve.accuracy < curve.high)).all()


def test_intervals_may_be_left_out(ax):
    assert not ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, ax=ax, intervals=False).lines_[0].lines[2]


def test_the_strip_counts_rows(ax):
    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, n_bins=4, ax=ax)
    np.testing.assert_allclose([bar.get_height() for bar in display.counts_[0]], STRIP * np.array([0, 1, 2, 2]) / 2)
    assert [text.get_text() for text in ax.texts] == ["2 rows"]
    assert not display.plot(ax, counts=False).counts_


def test_one_on_the_other_have_two_colors_and_one_diagonal(ax):
    first = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, ax=ax, name="one")
    second = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, ax=ax, name="two")
    assert first.lines_[0].lines[0].get_color() != second.lines_[0].lines[0].get_color()
    assert [text.get_text()[:3] for text in ax.get_legend().get_texts()] == ["one", "two"]
    assert sum(line.get_xydata().tolist() == [[0, 0], [1, 1]] for line in ax.get_lines()) == 1


def test_arguments_reach_the_line(ax):
    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, ax=ax, color="black", label="mine")
    assert display.lines_[0].lines[0].get_color() == "black"
    assert display.lines_[0].get_label() == "mine"


def test_certainty_has_a_bin(ax):
    display = ReliabilityDisplay.from_predictions([0, 1], np.eye(2), classes=[0, 1], ax=ax)
    assert (display.curves[0].confidence.tolist(), display.curves[0].rows.tolist()) == ([1.0], [2])
    assert display.curves[0].spread.sum() == 2


# --- By class ---


def test_each_class_has_a_curve_of_its_own_probability(ax, many):
    y, p = many
    display = ReliabilityDisplay.from_predictions(y, p, classes=CLASSES, by_class=True, ax=ax)
    assert [curve.name for curve in display.curves] == ["a", "b", "c"]
    for k, curve in enumerate(display.curves):
        assert curve.rows.sum() == len(y)
        assert (curve.accuracy * curve.rows).sum() == pytest.approx((y == CLASSES[k]).sum())
        assert curve.ece == pytest.approx(calibration_error(p[:, k], y == CLASSES[k]), rel=1e-12)
    assert not display.counts_


def test_some_classes(ax):
    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, by_class=["c", "a"], ax=ax)
    assert [curve.name for curve in display.curves] == ["c", "a"]
    assert display.curves[0].confidence[-1] == pytest.approx(0.4)


@pytest.mark.parametrize("by_class", [["q"], [], "a "])
def test_classes_that_are_not_there_are_refused(by_class):
    with pytest.raises(ValueError, match="by_class="):
        ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES, by_class=by_class)


def test_a_long_legend_stands_beside(ax):
    p = np.full((20, 10), 0.1)
    display = ReliabilityDisplay.from_predictions(np.arange(20) % 10, p, classes=range(10), by_class=True, ax=ax)
    assert len(display.lines_) == 10
    corner = ax.get_legend().get_bbox_to_anchor().transformed(ax.transAxes.inverted())
    assert corner.x0 == pytest.approx(1.0)


def test_of_any_classifier_on_frames_with_words_for_labels(ax):
    X = pd.DataFrame({"u": np.arange(40.0), "v": np.arange(40.0) % 7})
    y = pd.Series(np.where(X["u"] < 20, "low", "high"))
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    display = ReliabilityDisplay.from_estimator(forest, X, y, ax=ax)
    assert display.curves[0].name == "RandomForestClassifier"
    expected = ReliabilityDisplay.from_predictions(y, forest.predict_proba(X), classes=["high", "low"], ax=ax)
    np.testing.assert_array_equal(display.curves[0].accuracy, expected.curves[0].accuracy)


def test_without_axes_it_opens_a_figure_and_can_be_drawn_again():
    from matplotlib import pyplot

    display = ReliabilityDisplay.from_predictions(Y, P, classes=CLASSES)
    assert pyplot.gcf() is display.figure_
    assert display.plot() is display
    assert pyplot.gcf() is display.figure_


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proba": P[:4]}, r"`proba` must have shape \(5, 3\), .* got \(4, 3\)"),
        ({"proba": P[:, :2]}, r"`proba` must have shape .* got \(5, 2\)"),
        ({"proba": P[:, 0]}, r"`proba` must have shape .* got \(5,\)"),
        ({"proba": np.log(P + 0.01)}, "must hold probabilities"),
        ({"proba": np.where(P > 0.5, np.nan, P)}, "must hold probabilities"),
        ({"y": ["a", "b", "q", "a", "a"]}, "`y` must contain only labels .* got .*'q'"),
        ({"n_bins": 0}, "n_bins=0"),
        ({"strategy": "wide"}, "strategy='wide'"),
    ],
)
def test_what_cannot_be_drawn_is_named(changes, message):
    arguments = {"y": Y, "proba": P, "classes": CLASSES} | changes
    with pytest.raises(ValueError, match=message):
        ReliabilityDisplay.from_predictions(arguments.pop("y"), arguments.pop("proba"), **arguments)
