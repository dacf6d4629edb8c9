"""The state of a classifier as arrays: no tensor is left in it, and what is restored has the same bits."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris

from cavity import GPClassifier
from cavity.files.state import from_plain, to_plain
from cavity.kernels import RBF, Constant, Linear, Matern52
from tests.models import mixed_table

X, Y = load_iris(return_X_y=True)
QUICK: dict[str, Any] = {"n_inducing": 8, "max_epochs": 4, "calibrate": False, "random_state": 0, "device": "cpu"}
CASES: dict[str, GPClassifier] = {
    "auto": GPClassifier(**QUICK),
    "sep": GPClassifier("sep", batch_size=40, dtype="float32", **QUICK),
    "gfitc": GPClassifier("gfitc", **QUICK),
    "vi": GPClassifier("vi", scaling="quantile", **QUICK),
    "paper": GPClassifier.paper("vi", n_inducing=8, max_epochs=3, random_state=0),  # q has another memory layout
    "sum": GPClassifier("sep", kernel=Linear(variance=np.ones(3)) + Constant() * Matern52(), **QUICK),
    "shared": GPClassifier("sep", share_kernel=True, share_inducing=True, scaling=None, **QUICK),
    "rates": GPClassifier("sep", optimizer="paper", **QUICK),
}


def types_in(value: Any) -> set[type]:
    if isinstance(value, dict):
        return set().union(*(types_in(item) for item in value.values()))
    if type(value) in (list, tuple):
        return set().union(*map(types_in, value))
    return {type(value)}


@pytest.fixture(scope="module", params=CASES)
def fitted(request: pytest.FixtureRequest) -> GPClassifier:
    found: GPClassifier = clone(CASES[request.param]).fit(X, Y)
    return found.partial_fit(X[:20], Y[:20]) if hasattr(found, "partial_fit") else found


def test_the_state_is_plain(fitted):
    found = types_in(fitted.__getstate__())
    assert not any(issubclass(kind, torch.Tensor | torch.dtype) for kind in found)
    assert not any(kind.__module__.startswith("cavity") for kind in found if not issubclass(kind, str))


@pytest.mark.parametrize("again", [lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy, copy.copy])
def test_what_is_restored_has_the_same_bits_and_learns_on_alike(fitted, again):
    found = again(fitted)
    np.testing.assert_array_equal(found.predict_log_proba(X), fitted.predict_log_proba(X))
    np.testing.assert_array_equal(found.posterior_.cov, fitted.posterior_.cov)
    assert repr(found.kernel_) == repr(fitted.kernel_)
    assert found.history_ == fitted.history_
    assert found.posterior_.whitened.R_inverse.stride() == fitted.posterior_.whitened.R_inverse.stride()
    assert found.posterior_.prior.dtype == fitted.posterior_.prior.dtype
    if hasattr(fitted, "partial_fit"):
        one, two = (pickle.loads(pickle.dumps(c)).partial_fit(X[20:60], Y[20:60]) for c in (fitted, found))
        np.testing.assert_array_equal(one.predict_log_proba(X), two.predict_log_proba(X))
        assert type(found._online._trainer.optimizer) is type(fitted._online._trainer.optimizer)


@pytest.fixture(scope="module", params=["standard", "quantile", None])
def mixed(request: pytest.FixtureRequest) -> GPClassifier:
    classifier = GPClassifier("sep", scaling=request.param, **QUICK)
    with pytest.warns(match="'id'"):
        return classifier.fit(mixed_table(), np.arange(400) % 3)


def by_skops(classifier: GPClassifier) -> Any:
    io = pytest.importorskip("skops.io")
    return io.loads(io.dumps(classifier), trusted=["cavity.classifier.GPClassifier"])


@pytest.mark.parametrize("again", [lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy, by_skops])
def test_a_mixed_table_has_the_same_bits_and_learns_on_alike(mixed, again):
    found, new = again(mixed), mixed_table(100, seed=1)
    kinds = types_in(mixed.__getstate__())
    assert not any(kind.__module__.startswith(("cavity", "torch")) for kind in kinds if not issubclass(kind, str))
    np.testing.assert_array_equal(found.predict_log_proba(new), mixed.predict_log_proba(new))
    np.testing.assert_array_equal(found.inducing_points_, mixed.inducing_points_)
    assert (found.columns_, found.groups_, found._schema) == (mixed.columns_, mixed.groups_, mixed._schema)
    for one, two in zip(found._encoding.categories, mixed._encoding.categories, strict=True):
        assert (one.by_fold is None) == (two.by_fold is None)
    learned = [pickle.loads(pickle.dumps(c)).partial_fit(new, np.arange(100) % 3) for c in (found, mixed)]
    np.testing.assert_array_equal(*(c.predict_log_proba(new) for c in learned))


def test_a_pickle_with_tensors_can_still_be_read(fitted):
    """As version 0.1.0 wrote it."""
    old = GPClassifier.__new__(GPClassifier)
    old.__setstate__(vars(fitted))
    np.testing.assert_array_equal(old.predict_log_proba(X), fitted.predict_log_proba(X))


@pytest.mark.parametrize(
    "x",
    [torch.tensor(2.5), torch.zeros(0, 3), torch.arange(6).view(2, 3).mT, torch.ones(3, 1).expand(3, 4),
     torch.arange(24.0).view(2, 3, 4).mT, torch.tensor([True, False])],
)  # fmt: skip
def test_tensors_keep_their_values_and_layout(x):
    found = from_plain(to_plain(x))
    assert found.dtype == x.dtype
    assert torch.equal(found, x)
    assert found.is_contiguous() or found.stride() == x.stride()


def test_only_known_types_are_created():
    with pytest.raises(ValueError, match="unknown object, 'Popen'"):
        from_plain({"$": "Popen", "args": ["true"]})


class Custom(RBF):
    """A kernel of one's own."""


def test_a_custom_kernel_stays_an_object():
    classifier = GPClassifier(kernel=Custom(), **QUICK).fit(X, Y)
    assert Custom in types_in(classifier.__getstate__())
    assert type(pickle.loads(pickle.dumps(classifier)).kernel_) is Custom
