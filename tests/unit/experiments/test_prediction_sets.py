"""The measures of prediction sets: the worst slab, and held-out scores of the rivals."""

import numpy as np
import pandas as pd
import pytest

from experiments.prediction_sets import run as prediction_sets

JOB = {"split": 0, "directions": 50, "least_of_slab": 0.2}


def test_the_worst_slab_is_found_where_it_is():
    """Rows on one side along one column are never covered: a slab there is worse than the mean."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2))
    slabs = prediction_sets._slabs(X, JOB)
    assert prediction_sets._worst_slab(X[:, 0] < 0.84, slabs) < 0.3  # four rows in five are covered
    assert prediction_sets._worst_slab(np.ones(600, dtype=bool), slabs) == 1.0


def test_the_worst_slab_of_even_coverage_is_near_the_mean():
    """It is found on other rows than those that measure it, so chance does not make it worse."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(20):
        is_in = rng.random(600) < 0.9
        found.append(prediction_sets._worst_slab(is_in, prediction_sets._slabs(rng.standard_normal((600, 3)), JOB)))
    assert abs(np.mean(found) - 0.9) < 0.04


@pytest.mark.parametrize("length", [7, 20])
def test_no_longer_slab_is_worse(length):
    """The search for the worst one stops below twice the least length: every interval is compared here."""
    is_in = np.random.default_rng(length).random(60) < 0.7
    means = [is_in[i:j].mean() for i in range(60) for j in range(i + length, 61)]
    short = [is_in[i:j].mean() for i in range(60) for j in range(i + length, min(i + 2 * length, 61))]
    assert min(means) == min(short)


def test_rivals_are_scored_on_rows_that_they_have_not_learned_from(monkeypatch):
    learned = []

    class Fake:
        def fit(self, X, y):
            learned.append(set(X.index))
            self.classes = np.unique(y)

        def predict_proba(self, X):
            assert not learned[-1] & set(X.index)
            return np.full((len(X), len(self.classes)), 1.0 / len(self.classes))

    monkeypatch.setattr(prediction_sets, "_model", lambda job, X: (Fake(), lambda frame: frame))
    y = np.array(["a", "b", "c"] * 20)
    codes = np.unique(y, return_inverse=True)[1]
    found = prediction_sets._cross_validated({"folds": 3, "seed": 0}, pd.DataFrame({"x": range(60)}), y, codes)
    np.testing.assert_array_equal(found.y, codes)
    np.testing.assert_allclose(found.threshold, np.log(1 / 3))
    assert len(learned) == 3
