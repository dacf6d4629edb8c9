"""Labels, weights and equal rows. The whole of `fit` is tested in `front` and `equivalence`."""

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.data.labels import encode
from cavity.fitting.rows import TrainingRows, merge_equal_rows, validate_training
from cavity.kernels import RBF


def test_labels_become_positions():
    classes = np.array(["ant", "bee", "cat"])
    assert encode(np.array(["cat", "ant", "cat"]), classes).tolist() == [2, 0, 2]


@pytest.mark.parametrize("label", ["aaa", "bat", "dog"])
def test_an_unknown_label_is_named(label):
    with pytest.raises(ValueError, match=f"label {label!r} is not one of the classes"):
        encode(np.array(["ant", label]), np.array(["ant", "bee", "cat"]))


def test_equal_rows_with_equal_labels_become_one():
    X = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0], [1.0, 2.0]])
    found = merge_equal_rows(TrainingRows(X, np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 0.5, 4.0])))
    rows = [(*x, y, w) for x, y, w in zip(found.X.tolist(), found.y, found.weight, strict=True)]
    assert [(x[0], x[1], int(y), float(w)) for *x, y, w in rows] == [
        (0.0, 5.0, 1, 2.0), (1.0, 2.0, 0, 1.5), (1.0, 2.0, 1, 4.0)
    ]  # fmt: skip


def test_merging_keeps_what_is_different_and_all_the_weight():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (60, 2)).astype(float), rng.integers(0, 2, 60)
    found = merge_equal_rows(TrainingRows(X, y, np.ones(60)))
    assert found.weight.sum() == 60
    assert len(found.X) == len({(*x, k) for x, k in zip(X.tolist(), y.tolist(), strict=True)}) < 60


# --- The classifier ---


@pytest.mark.parametrize(
    "points", [np.zeros((4, 3)), np.zeros((2, 4, 2)), np.zeros(4), np.full((4, 2), np.nan), np.zeros((0, 2))]
)
def test_inducing_points_of_the_wrong_shape_are_named(points):
    X, y = np.random.default_rng(0).standard_normal((9, 2)), np.arange(9) % 3
    with pytest.raises(ValueError, match=r"inducing_points must be finite .* \(M, 2\) or \(3, M, 2\), got"):
        GPClassifier(inducing_points=points).fit(X, y)


def test_fitted_attributes_have_the_shapes_of_the_contract():
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0], np.arange(30) % 3
    fitted = GPClassifier(
        "ep", n_inducing=5, max_epochs=3, share_kernel=True, share_inducing=True, random_state=0, device="cpu"
    ).fit(X, y)
    assert fitted.noise_.shape == (3,)
    assert fitted.inducing_points_.shape == (3, 5, 2)
    assert np.abs(fitted.inducing_points_[..., 1]).max() > 5  # in the units of X
    assert fitted.posterior_.mean.shape == (3, 5)
    assert fitted.posterior_.cov.shape == (3, 5, 5)
    assert isinstance(fitted.kernel_, RBF)
    assert len(fitted.history_) == fitted.n_iter_ == 3
    mean, var = fitted.latent(X)
    assert mean.shape == var.shape == (30, 3)


def test_given_inducing_points_come_back_in_the_units_of_x():
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0] + 7.0, np.arange(30) % 3
    for scaling in ("standard", "quantile", None):
        fitted = GPClassifier(
            inducing_points=X[:4], learn_inducing=False, scaling=scaling, max_epochs=1, device="cpu"
        ).fit(X, y)
        np.testing.assert_allclose(fitted.inducing_points_, np.stack([X[:4]] * 3), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.* has not converged:cavity.runtime.warnings.CavityWarning")
def test_paper_start_values():
    """Variance and noise 1, ℓ² = median distance of the scaled rows, inducing points at rows, apart for each class."""
    X, y = np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 50.0] + 7.0, np.arange(30) % 3
    fitted = GPClassifier.paper(learn_kernel=False, learn_inducing=False, max_epochs=1, random_state=0, device="cpu")
    fitted.fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0, ddof=1)
    median = np.median([np.linalg.norm(a - b) for i, a in enumerate(scaled) for b in scaled[:i]])
    np.testing.assert_allclose(fitted.kernel_.lengthscale, np.full((3, 2), np.sqrt(median)))
    np.testing.assert_allclose(fitted.kernel_.variance, np.ones(3))
    np.testing.assert_allclose(fitted.noise_, np.ones(3))
    assert fitted.inducing_points_.shape == (3, 3, 2)
    distance = np.linalg.norm(fitted.inducing_points_[:, :, None] - X, axis=-1).min(-1)
    assert distance.max() < 1e-12
    assert not np.array_equal(fitted.inducing_points_[0], fitted.inducing_points_[1])


# --- Memory ---


@pytest.mark.parametrize("is_writeable", [True, False])
def test_rows_are_copied_only_where_some_are_dropped_or_torch_could_not_take_them(is_writeable):
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 2
    X.setflags(write=is_writeable)
    found = validate_training(GPClassifier(), X, y, None, None).rows
    assert np.shares_memory(found.X, X) == is_writeable
    assert found.X.flags.writeable
    dropped = validate_training(GPClassifier(), X, y, np.r_[0.0, np.ones(19)], None).rows
    np.testing.assert_array_equal(dropped.X, X[1:])
    assert not np.shares_memory(dropped.X, X)
