"""Relevance by hand, and projections with a known answer."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cavity.kernels import RBF, Constant, Linear, Matern32
from cavity.report.features import (
    MAP_INDUCING,
    MAP_ROWS,
    LabeledData,
    feature_names,
    fit_projection,
    make_map,
    relevance,
)

# --- Relevance ---

ONE = np.array([[1.0, 2.0, 4.0], [0.5, 1.0, 8.0]])
TWO = np.array([[2.0, 2.0, 2.0], [4.0, 0.25, 1.0]])
VARIANCE = np.array([3.0, 1.0]), np.array([1.0, 2.0])
NONE = np.zeros(3, dtype=bool)


def found(kernel, is_constant=NONE):
    return relevance(SimpleNamespace(kernel_=kernel, n_features_in_=3), ["a", "b"], is_constant)


@pytest.mark.parametrize("kernel", [RBF, Matern32, Linear])
def test_relevance_is_one_over_the_length_scale(kernel):
    what = found(kernel(ONE, VARIANCE[0]))
    assert (what.features, what.classes) == (["x0", "x1", "x2"], ["a", "b"])
    np.testing.assert_allclose(what.values, 1 / ONE)


def test_in_a_sum_parts_count_by_their_variance():
    """The mean square of the slope of f is Σ variance/ℓ²; the variance of f is Σ variance."""
    expected = VARIANCE[0][:, None] / ONE**2 + VARIANCE[1][:, None] / TWO**2
    what = found(RBF(ONE, VARIANCE[0]) + RBF(TWO, VARIANCE[1]))
    np.testing.assert_allclose(what.values, np.sqrt(expected / sum(VARIANCE)[:, None]))


def test_in_a_product_slopes_add_up():
    what = found(RBF(ONE, VARIANCE[0]) * Matern32(TWO, VARIANCE[1]))
    np.testing.assert_allclose(what.values, np.sqrt(1 / ONE**2 + 1 / TWO**2))


@pytest.mark.parametrize(
    "kernel", [RBF(ONE) + Constant(5.0), RBF(ONE) * Constant([2.0, 3.0]), Constant(1.0) * RBF(ONE)]
)
def test_an_offset_and_a_factor_change_no_relevance(kernel):
    np.testing.assert_allclose(found(kernel).values, 1 / ONE)


def test_a_product_in_a_sum_has_the_variance_of_all_its_factors():
    what = found(RBF(ONE, 1.0) * Constant(3.0) + RBF(TWO, 1.0))
    np.testing.assert_allclose(what.values, np.sqrt((3 / ONE**2 + 1 / TWO**2) / 4))


@pytest.mark.parametrize("kernel", [Constant(1.0), Constant(1.0) + Constant(2.0), None, object()])
def test_a_kernel_with_no_length_scale_has_none(kernel):
    assert found(kernel) is None


def test_classes_that_share_a_kernel_share_a_line():
    what = found(RBF(ONE[:1], VARIANCE[0][:1]))
    assert what.classes == ["all classes"]
    np.testing.assert_allclose(what.values, 1 / ONE[:1])


def test_a_feature_that_never_changes_does_not_matter():
    values = found(RBF(ONE), np.array([False, True, False])).values
    np.testing.assert_allclose(values, 1 / ONE * [1, 0, 1])


def test_features_have_the_names_of_the_frame():
    clf = SimpleNamespace(n_features_in_=2, feature_names_in_=np.array(["u", "v"], dtype=object))
    assert feature_names(clf) == ["u", "v"]


# --- Two dimensions ---

RNG = np.random.default_rng(0)
NAMES = [f"x{i}" for i in range(40)]


def classes_along(*features, n=600, d=6, n_classes=4):
    """Rows of unit variance whose class means differ along some features only."""
    y = RNG.integers(n_classes, size=n)
    X = RNG.standard_normal((n, d))
    for i, feature in enumerate(features):
        X[:, feature] += 6.0 * np.cos(2 * np.pi * y / n_classes + i * np.pi / 2)
    return LabeledData(X, y)


def log_p(rows, n_classes=4):
    return np.log(np.full((len(rows.y), n_classes), 1 / n_classes))


def clf(d, n_classes=4, M=5, **more):
    return SimpleNamespace(inducing_points_=RNG.standard_normal((n_classes, M, d)), n_features_in_=d, **more)


def test_the_plane_is_that_of_discriminant_analysis():
    rows = classes_along(2, 4)
    plane = fit_projection(lambda X: X, rows, NAMES)
    assert {plane.axes[0], plane.axes[1]} <= {
        f"discriminant {i} (mostly {a})" for i in (1, 2) for a in ("x2, x4", "x4, x2")
    }
    known = LinearDiscriminantAnalysis(n_components=2).fit(*rows).transform(rows.X)
    found = plane.transform(rows.X)
    for i in (0, 1):
        assert abs(np.corrcoef(known[:, i], found[:, i])[0, 1]) > 0.999
    assert plane.directions[np.abs(plane.directions).argmax(0), [0, 1]].min() > 0


def test_with_two_classes_the_second_axis_is_what_varies_most_beside():
    rows = classes_along(1, n_classes=2)
    rows.X[:, 3] *= 5.0
    plane = fit_projection(lambda X: X, rows, NAMES)
    assert plane.axes[0].startswith("discriminant 1 (mostly x1")
    assert plane.axes[1].startswith("principal component 1 (mostly x3")
    assert abs(plane.directions[:, 0] @ plane.directions[:, 1]) < 1e-9


def test_few_rows_for_their_features_are_not_parted_by_chance():
    """With 60 rows of 40 features any labels can be parted."""
    rows = LabeledData(RNG.standard_normal((60, 40)) * np.r_[9.0, 7.0, np.ones(38)], RNG.integers(3, size=60))
    plane = fit_projection(lambda X: X, rows, NAMES)
    assert plane.axes[0].startswith("principal component 1 (mostly x0")
    assert plane.axes[1].startswith("principal component 2 (mostly x1")


def test_the_share_is_that_of_the_variance_in_the_plane():
    rows = LabeledData(RNG.standard_normal((60, 40)) * np.r_[9.0, 7.0, np.ones(38)], RNG.integers(3, size=60))
    plane = fit_projection(lambda X: X, rows, NAMES)
    values = np.linalg.svd(rows.X - rows.X.mean(0), compute_uv=False) ** 2
    assert plane.explained_variance(rows.X) == pytest.approx(values[:2].sum() / values.sum())


def test_two_features_are_drawn_as_they_are():
    rows = classes_along(0, d=2)
    found = make_map(clf(2), rows, log_p(rows), None, ["u", "v"])
    np.testing.assert_array_equal(found.rows, rows.X)
    assert (found.axes, found.share) == (("u", "v"), 1.0)
    assert found.inducing.shape == (20, 2)
    np.testing.assert_array_equal(found.inducing_class, np.repeat(np.arange(4), 5))


def test_one_feature_is_drawn_against_the_confidence():
    rows = classes_along(0, d=1)
    p = RNG.dirichlet(np.ones(4), len(rows.y))
    found = make_map(clf(1), rows, np.log(p), None, ["u"])
    np.testing.assert_array_equal(found.rows[:, 0], rows.X[:, 0])
    np.testing.assert_allclose(found.rows[:, 1], p.max(1))
    np.testing.assert_array_equal(found.row_is_right, p.argmax(1) == rows.y)
    assert found.axes == ("u", "confidence (inducing points: at 0)")
    assert (found.inducing[:, 1] == 0).all()


def test_rows_and_points_are_no_more_than_a_page_holds():
    rows = classes_along(0, 1, n=4000)
    found = make_map(clf(6, M=400), rows, log_p(rows), None, NAMES)
    assert len(found.rows) == len(found.row_class) == len(found.row_is_right) == MAP_ROWS
    assert len(found.inducing) == len(found.inducing_class) == MAP_INDUCING
    np.testing.assert_array_equal(np.bincount(found.inducing_class), [125] * 4)


def test_points_that_all_classes_share_are_drawn_once():
    rows, model = classes_along(0, 1), clf(6)
    model.inducing_points_[:] = model.inducing_points_[:1]
    model.posterior_ = SimpleNamespace(mean=np.eye(4, 5, 1))
    found = make_map(model, rows, log_p(rows), None, NAMES)
    np.testing.assert_array_equal(found.inducing_class, [0, 0, 1, 2, 3])
    assert found.inducing.shape == (5, 2)


def test_the_training_rows_choose_the_plane_and_the_model_scales():
    rows, train = classes_along(0, 1), classes_along(2, 3)
    scaler = SimpleNamespace(transform=lambda X: 10.0 * X)
    found = make_map(clf(6, _encoding=scaler), rows, log_p(rows), train, NAMES)
    assert {"x2", "x3"} == set(found.axes[0].partition("mostly ")[2].rstrip(")").split(", "))
    plane = fit_projection(scaler.transform, train, NAMES)
    np.testing.assert_allclose(found.rows, plane.transform(10.0 * rows.X))


def test_rows_with_nothing_to_see():
    """All alike, or hardly any."""
    alike = LabeledData(np.ones((20, 4)), np.arange(20) % 3)
    found = make_map(clf(4, 3), alike, log_p(alike, 3), None, NAMES[:4])
    assert np.isfinite(found.rows).all()
    assert np.ptp(found.rows) == 0.0
    assert found.share == 1.0
    few = LabeledData(alike.X[:2], alike.y[:2])
    assert make_map(clf(4, 3), few, log_p(few, 3), None, NAMES[:4]) is None


def test_a_model_without_inducing_points_has_a_map_of_rows():
    rows = classes_along(0, 1)
    found = make_map(SimpleNamespace(), rows, log_p(rows), None, NAMES)
    assert found.inducing.shape == (0, 2)
    assert found.inducing_class.shape == (0,)
