"""What must not matter to the classifier: order, names, copies, chunks, containers, storage."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from cavity import GPClassifier
from cavity.kernels import RBF

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* has not converged:cavity.runtime.warnings.CavityWarning"
)  # fits of few sweeps are compared

BOTH = pytest.mark.parametrize("method", ["ep", "sep"])
NAMES = np.array(["carp", "ant", "bee"])  # sorted: ant, bee, carp


def rows(n_rows=36, seed=0):
    """Three overlapping clouds in units of their own."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    X = rng.standard_normal((n_rows, 3)) + np.array([[0, 0, 0], [2, 0, 1], [0, 2, 1]])[y]
    return X * [1.0, 10.0, 0.1] + [0.0, 5.0, 3.0], y


X, y = rows()
NEW = rows(50, seed=1)[0]


def classifier(method="sep", **changes):
    settings = {"n_inducing": 6, "max_epochs": 6, "random_state": 0, "device": "cpu"}
    return GPClassifier(method, **(settings | changes))


def inferring(method, **changes):
    """Hyper-parameters fixed: fit makes sweeps only."""
    settings = {"kernel": RBF(1.5), "learn_kernel": False, "learn_inducing": False, "max_epochs": 40}
    return classifier(method, **(settings | changes))


# --- Rows ---


@BOTH
@pytest.mark.parametrize("batch_size", [None, 12])
@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_the_order_of_the_rows_leaves_no_trace(method, batch_size, init):
    order = np.random.default_rng(2).permutation(len(X))
    a = classifier(method, batch_size=batch_size, init=init).fit(X, y)
    b = classifier(method, batch_size=batch_size, init=init).fit(X[order], y[order])
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))
    assert a.log_marginal_likelihood_ == b.log_marginal_likelihood_
    np.testing.assert_array_equal(a.inducing_points_, b.inducing_points_)


@BOTH
@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_integer_weights_equal_copies(method, scaling):
    weight = np.arange(len(X)) % 3 + 1
    weighted = classifier(method, scaling=scaling).fit(X, y, sample_weight=weight)
    copies = classifier(method, scaling=scaling).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(NEW), copies.predict_proba(NEW), rtol=0, atol=1e-10)
    assert weighted.log_marginal_likelihood_ == pytest.approx(copies.log_marginal_likelihood_, rel=1e-12)
    plain = classifier(method, scaling=scaling).fit(X, y)
    assert np.abs(weighted.predict_proba(NEW) - plain.predict_proba(NEW)).max() > 1e-3


@BOTH
def test_integer_weights_equal_copies_that_are_not_merged(method, monkeypatch):
    """Large sets are not searched for equal rows; then the methods themselves must count."""
    weight = np.arange(len(X)) % 3 + 1
    settings = {"inducing_points": X[:6], "scaling": "standard", "max_epochs": 400, "tol": 0.0}
    weighted = inferring(method, **settings).fit(X, y, sample_weight=weight)
    monkeypatch.setattr("cavity.fitting.rows.MERGE_ROWS", 0)
    copies = inferring(method, **settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(NEW), copies.predict_proba(NEW), rtol=0, atol=1e-10)


@BOTH
def test_weight_zero_is_no_row(method):
    weight = np.where(np.arange(len(X)) % 5 == 0, 0.0, 1.0)
    a = classifier(method).fit(X, y, sample_weight=weight)
    b = classifier(method).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))


@BOTH
def test_class_weight_is_a_weight_of_its_rows(method):
    a = classifier(method, class_weight={0: 2.0, 1: 1.0, 2: 0.5}).fit(X, y)
    b = classifier(method).fit(X, y, sample_weight=np.array([2.0, 1.0, 0.5])[y])
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))


# --- Labels ---


@BOTH
def test_relabeled_classes_give_permuted_probabilities(method):
    """Class 0 is called 2, 1 is called 0, 2 is called 1; k-means is the same for every class."""
    new_name = np.array([2, 0, 1])
    a, b = classifier(method).fit(X, y), classifier(method).fit(X, new_name[y])
    np.testing.assert_allclose(a.predict_proba(NEW), b.predict_proba(NEW)[:, new_name], rtol=0, atol=1e-9)
    np.testing.assert_allclose(a.noise_, b.noise_[new_name], rtol=1e-9)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, rel=1e-10)


@BOTH
@pytest.mark.parametrize("names", [NAMES, NAMES.astype(object), np.array([7, -1, 3]), np.array([3.0, 1.0, 2.0])])
def test_labels_of_any_type(method, names):
    order = np.argsort(names)  # position in classes_ -> label of ours
    a, b = classifier(method).fit(X, np.argsort(order)[y]), classifier(method).fit(X, names[y])
    np.testing.assert_array_equal(b.classes_, np.sort(names))
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))
    np.testing.assert_array_equal(names[order][a.predict(NEW)], b.predict(NEW))


# --- Sharing and precision ---


@BOTH
@pytest.mark.parametrize(("share_kernel", "share_inducing"), [(True, False), (False, True), (True, True)])
def test_sharing_at_fixed_values(method, share_kernel, share_inducing):
    """k-means starts all classes at the same points, and the kernel has one value: nothing to share differs."""
    a = inferring(method).fit(X, y)
    b = inferring(method, share_kernel=share_kernel, share_inducing=share_inducing).fit(X, y)
    np.testing.assert_allclose(a.predict_proba(NEW), b.predict_proba(NEW), rtol=0, atol=1e-10)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, rel=1e-11)
    assert a.inducing_points_.shape == b.inducing_points_.shape


@BOTH
def test_single_precision(method):
    """At fixed values and after six steps of learning probabilities differ by 1e-6 (measured); 1e-4 is asserted."""
    for make in (inferring, classifier):
        a, b = make(method).fit(X, y), make(method, dtype="float32").fit(X, y)
        difference = np.abs(a.predict_proba(NEW) - b.predict_proba(NEW)).max()
        assert 0 < difference < 1e-4
        np.testing.assert_allclose(b.predict_proba(NEW).sum(1), 1, rtol=0, atol=1e-12)


# --- Prediction ---


@pytest.fixture(scope="module", params=["ep", "sep"])
def fitted(request):
    return classifier(request.param).fit(X, y)


def test_chunks_of_any_size_agree(fitted):
    many = np.resize(NEW, (10_000, 3))
    many[len(NEW) :] += np.random.default_rng(3).standard_normal((10_000 - len(NEW), 3))
    whole = fitted.predict_proba(many)
    for size in (1, 7):
        n_rows = 60 * size
        parts = [fitted.predict_proba(many[i : i + size]) for i in range(0, n_rows, size)]
        np.testing.assert_allclose(np.concatenate(parts), whole[:n_rows], rtol=0, atol=1e-10)


def test_two_calls_give_the_same_bits(fitted, monkeypatch):
    monkeypatch.setattr("cavity.gp.probabilities.NODES", 8)
    for call in (fitted.predict_proba, fitted.predict_log_proba, lambda Z: np.stack(fitted.uncertainty(Z))):
        np.testing.assert_array_equal(call(NEW), call(NEW))


def test_pickled_classifiers_predict_the_same_bits(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
    np.testing.assert_array_equal(again.posterior_.cov, fitted.posterior_.cov)
    assert again.get_params().keys() == fitted.get_params().keys()


def test_what_prediction_keeps_at_hand_is_not_pickled(fitted):
    fresh = pickle.loads(pickle.dumps(fitted))
    assert "L_inverse" not in fresh.posterior_.prior.__dict__
    before = len(pickle.dumps(fresh.posterior_))
    fresh.predict_proba(np.resize(NEW, (500, 3)))
    assert "L_inverse" in fresh.posterior_.prior.__dict__
    assert len(pickle.dumps(fresh.posterior_)) == before


def test_clones_fit_to_the_same_bits(fitted):
    again = clone(fitted)
    assert not hasattr(again, "posterior_")
    np.testing.assert_array_equal(again.fit(X, y).predict_proba(NEW), fitted.predict_proba(NEW))


def test_a_fitted_kernel_can_start_the_next_fit(fitted):
    """kernel_, noise_ and inducing_points_ are start values: with nothing learned the model is the same."""
    start = {"kernel": fitted.kernel_, "noise": fitted.noise_, "inducing_points": fitted.inducing_points_}
    again = inferring(fitted.method, **start, max_epochs=1).fit(X, y)
    ours, theirs = again.posterior_.prior, fitted.posterior_.prior
    np.testing.assert_allclose(ours.K, theirs.K, rtol=1e-9)


# --- Containers ---


@BOTH
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_equal_arrays(method, frame):
    columns = ["length", "mass", "age"]
    table = frame({name: X[:, d] for d, name in enumerate(columns)})
    new = frame({name: NEW[:, d] for d, name in enumerate(columns)})
    labels = pd.Series(NAMES[y]) if frame is pd.DataFrame else pl.Series(NAMES[y].tolist())
    a, b = classifier(method).fit(X, NAMES[y]), classifier(method).fit(table, labels)
    assert b.feature_names_in_.tolist() == columns
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(new))
    np.testing.assert_array_equal(a.predict(NEW), b.predict(new))


def test_lists_and_single_precision_inputs_equal_arrays():
    a, b = classifier().fit(X, y), classifier().fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW.tolist()))
    exact = X.astype(np.float32)
    a, b = classifier().fit(exact.astype(float), y), classifier().fit(exact, y)
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))


# --- Pieces ---


def test_partial_fit_after_pickling_goes_on_the_same_way():
    first = classifier("sep").partial_fit(X[:18], y[:18], classes=[0, 1, 2])
    again = pickle.loads(pickle.dumps(first))
    a, b = first.partial_fit(X[18:], y[18:]), again.partial_fit(X[18:], y[18:])
    np.testing.assert_array_equal(a.predict_proba(NEW), b.predict_proba(NEW))


def test_weights_of_partial_fit_count_as_copies():
    """Row by row into q, so copies side by side are seen one after the other: at fixed values, in one batch."""
    start = inferring("sep", inducing_points=X[:6]).partial_fit(X[:18], y[:18], classes=[0, 1, 2])
    again, weight = pickle.loads(pickle.dumps(start)), np.arange(18) % 3 + 1
    a = start.partial_fit(X[18:], y[18:], sample_weight=weight)
    b = again.partial_fit(np.repeat(X[18:], weight, axis=0), np.repeat(y[18:], weight))
    np.testing.assert_allclose(a.predict_proba(NEW), b.predict_proba(NEW), rtol=0, atol=1e-10)
