"""Active learning with the real packages (`pip install 'cavity[integrations]'`): scikit-activeml and modAL."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris

from cavity import GPClassifier, active

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the packages warn on import

X, Y = load_iris(return_X_y=True)
KNOWN = np.arange(0, 150, 10)
LEFT = np.setdiff1d(np.arange(150), KNOWN)
QUICK = {"n_inducing": 8, "max_epochs": 4, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted():
    return GPClassifier(**QUICK).fit(X[KNOWN], Y[KNOWN])


@pytest.fixture
def labels():
    y = np.full(150, np.nan)
    y[KNOWN] = Y[KNOWN]
    return y


def wrapped():
    from skactiveml.classifier import SklearnClassifier

    return SklearnClassifier(GPClassifier(**QUICK), classes=[0, 1, 2])


def test_the_module_loads_neither_package():
    script = "import sys, cavity.active; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"skactiveml", "modAL", "cavity.activeml"} & set(run.stdout.split())


@pytest.mark.parametrize("method", active.METHODS)
def test_a_strategy_of_scikit_activeml(fitted, labels, method):
    pytest.importorskip("skactiveml")
    strategy = active.PoolQuery(method, random_state=0)
    rows, scores = strategy.query(X, labels, wrapped(), batch_size=4, return_utilities=True)
    assert scores.shape == (4, 150)
    assert np.isnan(scores[:, KNOWN]).all()
    assert np.nanargmax(scores, axis=1).tolist() == rows.tolist()
    if method != "random":
        assert rows.tolist() == LEFT[active.query(fitted, X[LEFT], 4, method)].tolist()


def test_candidates_and_classifiers_of_scikit_activeml(fitted, labels):
    pytest.importorskip("skactiveml")
    strategy = active.PoolQuery()
    by_index = strategy.query(X, labels, wrapped(), candidates=LEFT[:60], batch_size=3)
    by_row, scores = strategy.query(X, labels, wrapped(), candidates=X[LEFT[:60]], batch_size=3, return_utilities=True)
    assert by_index.tolist() == LEFT[by_row].tolist()
    assert scores.shape == (3, 60)
    for clf in (GPClassifier(**QUICK), wrapped().fit(X, labels)):
        assert strategy.query(X, labels, clf, candidates=LEFT[:60], batch_size=3).tolist() == by_index.tolist()
    kept = strategy.query(X, labels, fitted, fit_clf=False, candidates=LEFT[:60], batch_size=3)
    assert kept.tolist() == by_index.tolist()
    weighted = strategy.query(X, labels, wrapped(), sample_weight=np.ones(150), candidates=LEFT[:60], batch_size=3)
    assert weighted.tolist() == by_index.tolist()


def test_a_loop_of_scikit_activeml(labels):
    pytest.importorskip("skactiveml")
    for _ in range(2):
        rows = active.PoolQuery().query(X, labels, wrapped(), batch_size=5)
        assert np.isnan(labels[rows]).all()
        labels[rows] = Y[rows]
    assert np.isfinite(labels).sum() == len(KNOWN) + 10


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_strategy_of_modal(fitted, n):
    models = pytest.importorskip("modAL.models")
    learner = models.ActiveLearner(GPClassifier(**QUICK), active.modal_query, X[KNOWN], Y[KNOWN])
    rows, found, scores = learner.query(X[LEFT], n_instances=n, return_metrics=True)
    assert rows.tolist() == active.query(fitted, X[LEFT], n).tolist()
    assert np.array_equal(found, X[LEFT][rows])
    assert scores.shape == (n,)
    rows, _ = learner.query(X[LEFT], n_instances=n, method="margin")
    assert rows.tolist() == active.query(fitted, X[LEFT], n, "margin").tolist()
