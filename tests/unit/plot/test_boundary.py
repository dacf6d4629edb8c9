"""Planes of a rule that is known, and of a small fit."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cavity import GPClassifier
from cavity.gp.probabilities import Uncertainty
from cavity.plot import BoundaryDisplay
from cavity.plot.boundary import COARSE, FULL, PALEST
from cavity.plot.style import nth_style


class Rule:
    """p of "right" rises with the first feature and is one half at 3; the last class is never likely."""

    classes_ = np.array(["left", "never", "right"])

    def __init__(self):
        self.asked = None

    def predict_proba(self, X):
        self.asked = X
        right = 0.9 / (1 + np.exp(-2 * (np.asarray(X)[:, 0] - 3)))
        return np.column_stack([0.9 - right, np.full(len(right), 0.1), right])


X = np.random.default_rng(0).uniform([0, -2, 100], [6, 2, 101], (40, 3))
Y = np.where(X[:, 0] < 3, "left", "right")


@pytest.fixture(scope="module")
def fitted():
    iris = load_iris()
    rows, labels = iris.data[:, 2:], iris.target_names[iris.target]
    return GPClassifier(n_inducing=8, max_epochs=10, calibrate=False, random_state=0).fit(rows, labels), rows, labels


def draw(ax, rows=X[:, :2], labels=Y, **more):
    return BoundaryDisplay.from_estimator(Rule(), rows, labels, ax=ax, **({"resolution": 31} | more))


def test_the_line_is_where_the_class_changes(ax, no_new_figure):
    display = draw(ax)
    left, never, right = display.boundary_
    assert never is None
    for lines in (left, right):
        assert np.concatenate(lines.get_paths()[0].to_polygons(closed_only=False))[:, 0] == pytest.approx(3, abs=1e-2)


def test_no_line_where_one_class_wins_everywhere(ax):
    assert draw(ax, rows=X[:, :2] + 50, labels=None).boundary_ == [None] * 3


def test_the_plane_reaches_beyond_the_rows_and_is_asked_at_its_points(ax):
    display = draw(ax, margin=0.5)
    x = X[:, 0]
    assert ax.get_xlim() == pytest.approx((x.min() - np.ptp(x) / 2, x.max() + np.ptp(x) / 2))
    grid = np.stack(np.meshgrid(*display.plane.axes), axis=-1)
    np.testing.assert_allclose(display.proba, Rule().predict_proba(grid.reshape(-1, 2)).reshape(31, 31, 3))
    np.testing.assert_allclose(display.plane.points.reshape(31, 31, 2), grid)


def test_pixels_have_the_points_in_their_middles(ax):
    display = draw(ax)
    left, right, *_ = display.surface_.get_extent()
    first, last = display.plane.axes[0][[0, -1]]
    assert (left + (right - left) / 62, right - (right - left) / 62) == pytest.approx((first, last))


def test_the_color_is_that_of_the_class_and_paler_where_it_is_less_sure(ax):
    from matplotlib.colors import to_rgb

    display = draw(ax)
    image = np.asarray(display.surface_.get_array())
    for k, column in ((0, 0), (2, -1)):
        sure = (display.proba[0, column, k] - 1 / 3) / (2 / 3)
        expected = 1 - (PALEST + (FULL - PALEST) * sure) * (1 - np.array(to_rgb(nth_style(k).color)))
        np.testing.assert_allclose(image[0, column], expected)
    assert (image[0, 15].sum() > image[0, [0, -1]].sum(-1)).all()


def test_rows_are_drawn_class_by_class(ax):
    display = draw(ax)
    for label, points in zip(Rule.classes_, display.rows_, strict=True):
        np.testing.assert_array_equal(points.get_offsets(), X[label == Y, :2])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["left", "never", "right"]


def test_rows_without_labels_or_none_at_all(ax):
    display = draw(ax, labels=None)
    np.testing.assert_array_equal(display.rows_[0].get_offsets(), X[:, :2])
    assert ax.get_legend() is None
    assert not draw(ax, rows=X[:, :2]).plot(ax, rows=False).rows_


# --- More features than two ---


def test_more_features_need_two_names(ax):
    with pytest.raises(ValueError, match=r"must name two of the 3 features.*features=\('x0', 'x1'\)"):
        draw(ax, rows=X)


def test_the_others_are_held_at_their_median(ax):
    display = draw(ax, rows=X, features=(2, 0))
    asked = display.plane.points
    assert set(asked[:, 1]) == {np.median(X[:, 1])}
    assert (asked[:, 2].min(), asked[:, 0].max()) == (display.plane.axes[0][0], display.plane.axes[1][-1])
    np.testing.assert_array_equal(display.plane.shown, X[:, [2, 0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x2", "x0")
    assert ax.get_title(loc="left") == "other features at their median"
    assert display.rows_[0].get_alpha() < 1


@pytest.mark.parametrize(
    ("fixed", "value", "note"),
    [
        ("mean", X[:, 2].mean(), "other features at their mean"),
        ({2: 7}, 7.0, "x2 = 7"),
        ({"x2": 7}, 7.0, "x2 = 7"),
        ([0, 0, 7], 7.0, "other features at given values"),
        ({}, np.median(X[:, 2]), "others at median"),
    ],
)
def test_or_at_given_values(ax, fixed, value, note):
    display = draw(ax, rows=X, features=(0, 1), fixed=fixed)
    np.testing.assert_allclose(display.plane.points[:, 2], value, rtol=1e-12)
    assert ax.get_title(loc="left") == note


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_stay_frames(ax, kind):
    rule, rows = Rule(), kind(dict(zip("uvw", X.T, strict=True)))
    display = BoundaryDisplay.from_estimator(rule, rows, pd.Series(Y), features=("w", "u"), resolution=5, ax=ax)
    assert isinstance(rule.asked, kind)
    assert list(rule.asked.columns) == ["u", "v", "w"]
    np.testing.assert_allclose(rule.asked.to_numpy()[:, 0].reshape(5, 5)[:, 0], display.plane.axes[1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("w", "u")


def test_a_classifier_fitted_on_a_frame_is_asked_without_a_warning(ax):
    rows = pd.DataFrame(X[:, :2], columns=["u", "v"])
    BoundaryDisplay.from_estimator(LogisticRegression().fit(rows, Y), rows, Y, resolution=5, ax=ax)
    assert ax.get_xlabel() == "u"


# --- A Gaussian process ---


@pytest.mark.parametrize("shade", ["total", "aleatoric", "epistemic"])
def test_the_shade_is_the_uncertainty(ax, shade):
    rule = Rule()
    rule.uncertainty = lambda X: Uncertainty(X[:, 0] + 20, X[:, 1] + 10, X[:, 0] - X[:, 1] + 10)
    display = BoundaryDisplay.from_estimator(rule, X[:, :2], Y, shade=shade, resolution=8, ax=ax)
    expected = getattr(rule.uncertainty(display.plane.points), shade).reshape(8, 8)
    np.testing.assert_array_equal(display.surface_.get_array(), expected)
    assert display.colorbar_.ax.get_ylabel() == f"{shade} uncertainty / nats"
    assert display.colorbar_.ax.get_ylim() == pytest.approx((0.0, expected.max()))


def test_an_uncertainty_takes_long_so_it_is_asked_at_fewer_points(ax):
    asked = []
    rule = Rule()
    rule.uncertainty = lambda X: asked.append(len(X)) or Uncertainty(*X[:, [0, 1, 0]].T)
    display = BoundaryDisplay.from_estimator(rule, X[:, :2], Y, shade="total", resolution=COARSE + 30, ax=ax)
    assert (asked, display.proba.shape) == ([COARSE**2], (COARSE + 30, COARSE + 30, 3))
    left, right, *_ = display.surface_.get_extent()
    pixel = (right - left) / COARSE
    assert (left + pixel / 2, right - pixel / 2) == pytest.approx(tuple(display.plane.axes[0][[0, -1]]))


def test_far_from_the_rows_a_gaussian_process_knows_least(ax, fitted):
    clf, rows, labels = fitted
    display = BoundaryDisplay.from_estimator(clf, rows, labels, shade="epistemic", resolution=9, margin=2.0, ax=ax)
    found = display.surface_.get_array()
    assert found[[0, 0, -1, -1], [0, -1, 0, -1]].min() > 5 * found[4, 4]


def test_inducing_points_are_drawn_on_request(ax, fitted):
    clf, rows, labels = fitted
    display = BoundaryDisplay.from_estimator(clf, rows, labels, resolution=8, inducing=True, ax=ax)
    drawn, expected = display.inducing_.get_offsets(), clf.inducing_points_.reshape(-1, 2)
    assert set(map(tuple, np.asarray(drawn))) == set(map(tuple, expected))
    assert "inducing points" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert display.plot(ax).inducing_ is None


def test_points_that_classes_share_are_drawn_once(ax):
    shared = Rule()
    shared.inducing_points_ = np.broadcast_to(X[:5, :2], (3, 5, 2))
    display = BoundaryDisplay.from_estimator(shared, X[:, :2], Y, resolution=5, inducing=True, ax=ax)
    assert len(display.inducing_.get_offsets()) == 5


def test_without_inducing_points_there_are_none_to_draw(ax):
    assert draw(ax, inducing=True).inducing_ is None


def test_other_classifiers_have_no_such_shade(ax):
    with pytest.raises(TypeError, match=r"shade='epistemic' needs a classifier with uncertainty"):
        draw(ax, shade="epistemic")


def test_without_axes_it_opens_a_figure():
    from matplotlib import pyplot

    assert draw(None).figure_ is pyplot.gcf()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shade": "dark"}, "shade='dark'"),
        ({"labels": Y[:5]}, r"`y` must have shape \(40,\), .* got \(5,\)"),
        ({"labels": np.where(Y == "left", "up", Y)}, "`y` must contain only labels .* got .*'up'"),
        ({"resolution": 1}, "resolution=1"),
        ({"rows": X[:, :1]}, r"at least two features, got \(40, 1\)"),
        ({"rows": X[:0, :2]}, r"at least two features, got \(0, 2\)"),
        ({"rows": np.where(X[:, :2] > 1, np.inf, 0.0)}, "`X` must be finite, got infinite values"),
        ({"rows": np.where([True, False], np.nan, X[:, :2])}, "The feature 'x0' must hold numbers .* got no values"),
        ({"features": (0, 0)}, r"features=\(0, 0\)"),
        ({"features": (0,)}, r"features=\(0,\)"),
        ({"features": (0, 2)}, "The feature 2 must be an index from 0 to 1"),
        ({"features": ("u", "x1")}, "The feature 'u' must be one of"),
        ({"fixed": "mode"}, "fixed='mode'"),
        ({"fixed": [1.0]}, r"`fixed` must have shape \(2,\), .* got \(1,\)"),
    ],
)
def test_what_cannot_be_drawn_is_named(ax, changes, message):
    with pytest.raises(ValueError, match=message):
        draw(ax, **changes)


def test_a_tie_everywhere_or_a_single_class_has_no_line(ax):
    rule = Rule()
    rule.predict_proba = lambda X: np.full((len(X), 3), 1 / 3)
    assert BoundaryDisplay.from_estimator(rule, X[:, :2], resolution=5, ax=ax).boundary_ == [None] * 3
    rule.classes_, rule.predict_proba = np.array(["only"]), lambda X: np.ones((len(X), 1))
    assert BoundaryDisplay.from_estimator(rule, X[:, :2], resolution=5, ax=ax).boundary_ == [None]


def test_no_uncertainty_at_all_can_be_drawn(ax):
    rule = Rule()
    rule.uncertainty = lambda X: Uncertainty(*np.zeros((3, len(X))))
    assert BoundaryDisplay.from_estimator(rule, X[:, :2], shade="total", resolution=5, ax=ax).surface_.get_clim()[1] > 0


def test_a_constant_feature_still_has_an_axis(ax):
    rows = np.column_stack([X[:, 0], np.full(40, 2.0)])
    low, high = draw(ax, rows=rows).plane.axes[1][[0, -1]]
    assert low < 2.0 < high


def test_a_classifier_without_probabilities_is_refused(ax):
    with pytest.raises(TypeError, match="predict_proba"):
        BoundaryDisplay.from_estimator(SimpleNamespace(), X[:, :2], ax=ax)


# --- Tables with categories, dates and gaps ---


def mixed(n=90):
    rng = np.random.default_rng(0)
    u, v, city = rng.standard_normal(n), rng.standard_normal(n), rng.choice(["Bonn", "Ulm"], n, p=[0.3, 0.7])
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="D")
    table = pd.DataFrame({"u": u, "city": pd.Categorical(city), "v": v, "day": day, "is_new": rng.random(n) < 0.8})
    table.loc[::9, "u"] = np.nan
    return table, np.where(v + 2.0 * (city == "Ulm") > 1.0, "yes", "no")


TABLE, LABELS = mixed()


@pytest.fixture(scope="module")
def of_table():
    return GPClassifier(n_inducing=10, max_epochs=10, calibrate=False, random_state=0).fit(TABLE, LABELS)


@pytest.mark.parametrize("frame", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_other_columns_of_a_table_are_held_at_typical_values(ax, of_table, frame):
    X = frame(TABLE)
    show = {"features": ("u", "v"), "resolution": 6, "inducing": True, "ax": ax}
    display = BoundaryDisplay.from_estimator(of_table, X, LABELS, **show)
    points = display.plane.points
    assert isinstance(points, type(X))
    points = points.to_pandas() if isinstance(points, pa.Table) else points
    assert [str(value) for value in set(points["city"])] == ["Ulm"]
    assert {bool(value) for value in points["is_new"]} == {True}
    assert {pd.Timestamp(value) for value in points["day"]} == {TABLE["day"][45]}
    assert ax.get_title(loc="left") == "other features at their median or most frequent level"
    assert display.plane.axes[0][0] < np.nanmin(TABLE["u"])
    assert np.isfinite(display.inducing).all()
    frozen = BoundaryDisplay.from_estimator(of_table, X, LABELS, **show, fixed={"city": "Bonn"})
    assert ax.get_title(loc="left").startswith("city = Bonn, others at median")
    assert np.abs(frozen.proba - display.proba).max() > 0.1


def test_a_level_can_be_given_by_any_type_and_a_gap_by_none(ax, of_table):
    show = {"features": ("u", "v"), "resolution": 5, "ax": ax}
    given = [BoundaryDisplay.from_estimator(of_table, TABLE, fixed={"is_new": value}, **show).proba
             for value in (False, "False", np.False_)]  # fmt: skip
    np.testing.assert_array_equal(given[0], given[1])
    np.testing.assert_array_equal(given[0], given[2])
    display = BoundaryDisplay.from_estimator(of_table, TABLE, fixed={"city": None}, **show)
    assert display.plane.points["city"].isna().all()
    assert ax.get_title(loc="left").startswith("city = missing")
    row = [0.0, "Ulm", 0.0, TABLE["day"][3], True]
    display = BoundaryDisplay.from_estimator(of_table, TABLE, fixed=row, **show)
    assert set(display.plane.points["day"]) == {TABLE["day"][3]}


def test_a_list_of_mixed_rows(ax):
    rows = TABLE[["u", "city", "v"]].astype(object).to_numpy().tolist()
    clf = GPClassifier(n_inducing=5, max_epochs=2, calibrate=False, random_state=0).fit(rows, LABELS)
    display = BoundaryDisplay.from_estimator(clf, rows, LABELS, features=(0, 2), resolution=5, ax=ax)
    assert set(display.plane.points[:, 1]) == {"Ulm"}
    assert ax.get_title(loc="left") == "other features at their most frequent level"


def test_other_classifiers_draw_tables_too(ax):
    encode = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    X = TABLE[["v", "city", "u"]].fillna({"u": 0.0})
    model = make_pipeline(encode, LogisticRegression()).fit(X, LABELS)
    BoundaryDisplay.from_estimator(model, X, LABELS, features=("u", "v"), resolution=5, ax=ax)
    assert ax.get_title(loc="left") == "other features at their most frequent level"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"features": ("u", "city")}, "The feature 'city' must hold numbers to be drawn, got a category of 2 levels"),
        ({"features": ("day", "v")}, "The feature 'day' must hold numbers to be drawn, got a date"),
        ({"fixed": {"city": "Rome"}}, "a level of 'city' or None, got 'Rome'; its levels are 'Bonn', 'Ulm'"),
        ({"fixed": {"u": "many"}}, "a number for 'u', got 'many'"),
    ],
)
def test_what_a_table_cannot_show_is_named(ax, of_table, more, message):
    with pytest.raises(ValueError, match=message):
        BoundaryDisplay.from_estimator(of_table, TABLE, resolution=5, ax=ax, **({"features": ("u", "v")} | more))
