"""Bars, dots and heat maps hold one over the length-scales, in order."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier
from cavity.kernels import RBF, Constant, Linear, Matern52
from cavity.plot import RelevanceDisplay

RELEVANCE = np.array([[0.1, 1.0, 0.4, 0.2], [0.3, 2.0, 0.2, 0.2]])
NAMES = ["w", "x", "y", "z"]


def known(kernel, **more):
    return SimpleNamespace(kernel_=kernel, classes_=np.array(["no", "yes"]), **more)


CLF = known(RBF(1 / RELEVANCE), feature_names_in_=np.array(NAMES, dtype=object))


def test_bars_are_means_over_the_classes_the_longest_on_top(ax, no_new_figure):
    display = RelevanceDisplay.from_estimator(CLF, ax=ax)
    assert display.order_.tolist() == [1, 2, 0, 3]
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], [1.5, 0.3, 0.2, 0.2])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y", "w", "z"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_dots_are_the_classes(ax):
    display = RelevanceDisplay.from_estimator(CLF, ax=ax)
    for row, dots in zip(RELEVANCE, display.dots_, strict=True):
        np.testing.assert_allclose(dots.get_offsets(), np.column_stack([row[[1, 2, 0, 3]], range(4)]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no", "yes"]


def test_the_top_features_only(ax):
    display = RelevanceDisplay.from_estimator(CLF, top=2, ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y"]
    assert len(display.bars_) == 2
    assert len(display.plot(ax, top=None).order_) == 4


def test_a_shared_kernel_has_bars_alone(ax):
    display = RelevanceDisplay.from_estimator(known(RBF([[2.0, 4.0]])), ax=ax)
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], [0.5, 0.25])
    assert not display.dots_
    assert ax.get_legend() is None
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x0", "x1"]


def test_a_heat_map_has_features_by_classes(ax):
    display = RelevanceDisplay.from_estimator(CLF, kind="heatmap", top=3, ax=ax)
    np.testing.assert_allclose(display.image_.get_array(), RELEVANCE[:, [1, 2, 0]].T)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["no", "yes"]
    assert display.image_.get_clim()[0] == 0


def test_a_heat_map_of_a_shared_kernel_has_one_column(ax):
    RelevanceDisplay.from_estimator(known(RBF([[2.0, 4.0]])), kind="heatmap", ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["all classes"]


@pytest.mark.parametrize(("classes", "is_map"), [(7, False), (8, True)])
def test_many_classes_are_told_apart_in_a_heat_map(ax, classes, is_map):
    display = RelevanceDisplay(np.ones((classes, 2)), classes=range(classes), feature_names=["a", "b"]).plot(ax)
    assert (display.image_ is not None, display.bars_ is None, not display.dots_) == (is_map,) * 3


def test_names_given_come_first(ax):
    RelevanceDisplay.from_estimator(CLF, feature_names=list("abcd"), ax=ax)
    assert ax.get_yticklabels()[0].get_text() == "b"


@pytest.mark.parametrize("kernel", [Linear([[0.5]]) + Constant(), Constant() * (Constant() + RBF([[0.5]]))])
def test_one_part_of_a_sum_or_product_may_have_lengthscales(ax, kernel):
    assert RelevanceDisplay.from_estimator(known(kernel), ax=ax).relevance.tolist() == [[2.0]]


def test_of_several_parts_the_slopes_add_up(ax):
    """By their share of the variance: (3 · 1/2² + 1 · 1/0.5²) / 4."""
    kernel = RBF([[2.0]], variance=[3.0]) + Matern52([[0.5]], variance=[1.0])
    found = RelevanceDisplay.from_estimator(known(kernel), ax=ax).relevance
    np.testing.assert_allclose(found, [[np.sqrt((3 / 4 + 4) / 4)]])


def test_a_kernel_without_lengthscales_is_refused():
    with pytest.raises(ValueError, match="must have length-scales"):
        RelevanceDisplay.from_estimator(known(Constant()))


def test_of_a_fit_on_a_frame(ax):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((60, 2)), columns=["noise", "signal"])
    clf = GPClassifier(n_inducing=8, max_epochs=30, calibrate=False, random_state=0).fit(X, X["signal"] > 0)
    display = RelevanceDisplay.from_estimator(clf, ax=ax)
    np.testing.assert_allclose(display.relevance, 1 / clf.kernel_.lengthscale, rtol=1e-14)
    assert ax.get_yticklabels()[0].get_text() == "signal"


def test_of_a_pipeline_the_last_step_is_asked_for(ax):
    pipeline = make_pipeline(StandardScaler(), GPClassifier())
    with pytest.raises(TypeError, match=r"got Pipeline without kernel_.*pipeline\[-1\]"):
        RelevanceDisplay.from_estimator(pipeline, ax=ax)


@pytest.mark.parametrize("changes", [{"kind": "pie"}, {"top": 0}, {"feature_names": ["one"]}])
def test_what_cannot_be_drawn_is_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        RelevanceDisplay.from_estimator(CLF, **changes)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match=r"`relevance` must have shape \(1, 4\) or \(3, 4\), got \(2, 4\)"):
        RelevanceDisplay(RELEVANCE, classes=[0, 1, 2], feature_names=NAMES)


def test_a_table_has_one_bar_for_each_column(ax):
    rng = np.random.default_rng(0)
    age, city = rng.standard_normal(80), rng.choice(["Bonn", "Ulm", None], 80)
    y, age[::7] = age > 0, np.nan
    X = pd.DataFrame({"city": city, "age": age})
    clf = GPClassifier(n_inducing=5, max_epochs=2, calibrate=False, random_state=0).fit(X, y)
    display = RelevanceDisplay.from_estimator(clf, ax=ax)
    assert list(display.feature_names) == ["city", "age"]
    inverse = 1 / clf.kernel_.lengthscale  # of the city, of the age, of its gaps
    np.testing.assert_allclose(display.relevance, np.column_stack([inverse[:, 0], np.hypot(*inverse[:, 1:].T)]))
