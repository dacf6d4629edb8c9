"""Which features matter: kernels by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from cavity.kernels import RBF, Constant, Linear, Matern32
from cavity.report.relevance import feature_names, relevance

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
