"""Baselines: what they say, what they learned from, and when they are left out."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.metrics import scores
from cavity.report import baselines as module
from cavity.report.baselines import fit_baselines
from cavity.report.features import LabeledData

X, Y = load_iris(return_X_y=True)
TEST, TRAIN = LabeledData(X[::2], Y[::2]), LabeledData(X[1::2], Y[1::2])
NAMES = ["class frequencies", "logistic regression", "random forest"]


@pytest.fixture(autouse=True)
def _small_forests(monkeypatch):
    monkeypatch.setattr(module, "TREES", 10)


def test_they_learn_from_the_training_rows():
    found = fit_baselines(TEST, TRAIN, 3)
    assert [b.name for b in found] == NAMES
    assert [b.note for b in found] == ["", "", ""]
    frequencies, logistic, forest = found
    np.testing.assert_allclose(frequencies.log_p, np.log(1 / 3))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(*TRAIN)
    np.testing.assert_allclose(logistic.log_p, model.predict_log_proba(TEST.X), atol=1e-10)
    assert scores(TEST.y, forest.log_p, [0, 1, 2]).error < 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_sum_to_one(n_classes):
    keep, learn = TEST.y < n_classes, TRAIN.y < n_classes
    for found in fit_baselines(
        LabeledData(TEST.X[keep], TEST.y[keep]), LabeledData(TRAIN.X[learn], TRAIN.y[learn]), n_classes
    ):
        np.testing.assert_allclose(np.exp(found.log_p).sum(1), 1.0)


def test_without_training_rows_they_learn_in_folds(monkeypatch):
    """Every row is predicted once, by models that have not seen it, of rows with classes in their shares."""
    seen = []

    def watched(X, y, X_new, n_classes):
        assert not {tuple(x) for x in X} & {tuple(x) for x in X_new}
        seen.append((np.bincount(y).tolist(), len(X_new)))
        return np.zeros((len(X_new), n_classes))

    monkeypatch.setattr(module, "LEARNERS", {"watched": watched})
    rows = LabeledData(np.arange(30.0)[:, None], np.repeat([0, 1, 2], 10))
    (found,) = fit_baselines(rows, None, 3)
    assert seen == [([8, 8, 8], 6)] * 5
    assert found.note == "cross-fitted on these rows in 5 folds, each time on 24 others"


def test_of_many_rows_they_learn_from_a_sample(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 40)
    assert {b.note for b in fit_baselines(TEST, TRAIN, 3)} == {"trained on 40 of 75 training rows"}
    monkeypatch.delitem(module.LEARNERS, "random forest")
    expected = "cross-fitted on these rows in 5 folds, each time on 10 others"
    assert {b.note for b in fit_baselines(TEST, None, 3)} == {expected}


def test_a_class_that_was_not_seen_is_held_impossible():
    learn = TRAIN.y != 1
    for found in fit_baselines(TEST, LabeledData(TRAIN.X[learn], TRAIN.y[learn]), 3):
        assert (found.log_p[:, 1] == -np.inf).all()
        assert not np.isnan(found.log_p).any()


def test_certainty_is_not_taken_for_impossibility():
    """Logistic regression never says 0, however far a row is."""
    far = LabeledData(1e6 * TEST.X, TEST.y)
    logistic = fit_baselines(far, TRAIN, 3)[1]
    assert np.isfinite(logistic.log_p).all()
    assert logistic.log_p.min() < -1000


@pytest.mark.parametrize(
    ("rows", "train", "left"),
    [
        (LabeledData(X[:9], Y[:9]), None, []),
        (LabeledData(X[:30], Y[:30]), None, ["class frequencies", "random forest"]),
        (TEST, LabeledData(X[:3], Y[:3]), ["class frequencies", "random forest"]),
        (TEST, LabeledData(np.full((20, 4), 1e200) * X[:20], np.arange(20) % 3), ["class frequencies"]),
    ],
    ids=["too few rows", "one class", "one class to learn", "huge numbers"],
)
def test_what_cannot_be_had_is_left_out(rows, train, left):
    assert [b.name for b in fit_baselines(rows, train, 3)] == left


def test_a_class_of_one_row_does_no_harm():
    y = TEST.y.copy()
    y[y == 1] = 0
    y[0] = 1
    found = fit_baselines(LabeledData(TEST.X, y), None, 3)
    assert [b.name for b in found] == NAMES
    assert not any(np.isnan(b.log_p).any() for b in found)
