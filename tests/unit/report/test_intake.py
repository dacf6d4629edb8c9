"""Rows and labels as people give them."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cavity import GPClassifier
from cavity.report.intake import count_known, draw, is_training_data, labeled

X = np.random.default_rng(0).standard_normal((30, 3))
Y = np.array(["a", "b", "c"])[np.arange(30) % 3]
CLASSES = np.array(["a", "b", "c"])


@pytest.mark.parametrize("frame", [lambda X: X, lambda X: X.tolist(), pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("series", [np.asarray, list, pd.Series, pl.Series, lambda y: np.asarray(y)[:, None]])
def test_frames_and_arrays_give_the_same_rows(frame, series):
    rows = labeled(frame(X), series(Y), CLASSES)
    np.testing.assert_array_equal(rows.y, np.arange(30) % 3)
    some = rows.some(10)
    assert len(some.y) == 10
    np.testing.assert_array_equal(some.numbers(), X[some.place])
    np.testing.assert_array_equal(some.y, some.place % 3)


def test_few_rows_are_all_taken_and_a_sample_is_always_the_same():
    np.testing.assert_array_equal(draw(5, 5), np.arange(5))
    sample = draw(1000, 50)
    np.testing.assert_array_equal(sample, draw(1000, 50))
    assert len(np.unique(sample)) == 50
    assert (np.diff(sample) > 0).all()


@pytest.mark.parametrize("label", ["q", 1, None, float("nan")])
def test_a_label_that_the_model_does_not_know_is_named(label):
    y = Y.astype(object)
    y[3:5] = label
    with pytest.raises(ValueError, match=rf"y holds the label {label!r} \(.*\), in 2 of 30 rows.*such as 'a' \(str\)"):
        labeled(X, y, CLASSES)


def test_numbers_are_known_whatever_their_type():
    np.testing.assert_array_equal(labeled(X[:3], [2.0, 0.0, True], np.array([0, 1, 2])).y, [2, 0, 1])


@pytest.mark.parametrize(("rows", "y"), [(X, Y[:-1]), (X[0], Y[:3]), (X, np.stack([Y, Y], 1))])
def test_one_label_a_row_is_needed(rows, y):
    with pytest.raises(ValueError, match=r"train\[0\] has the shape .* one label a row"):
        labeled(rows, y, CLASSES, names=("train[0]", "train[1]"))


@pytest.fixture(scope="module", params=[None, "balanced"])
def fitted(request):
    y = np.where(np.arange(30) < 8, "a", Y)
    return GPClassifier(max_epochs=2, calibrate=False, class_weight=request.param, random_state=0).fit(X, y), y


def test_training_rows_are_known_again_in_any_order(fitted):
    model, y = fitted
    assert is_training_data(model, labeled(X, y, model.classes_))
    order = np.random.default_rng(1).permutation(30)
    assert is_training_data(model, labeled(pd.DataFrame(X[order]), y[order], model.classes_))


def test_other_rows_are_not_taken_for_them(fitted):
    model, y = fitted
    assert not is_training_data(model, labeled(X + 1e-9, y, model.classes_))
    assert not is_training_data(model, labeled(X, y[::-1], model.classes_))
    assert not is_training_data(model, labeled(X[1:], y[1:], model.classes_))
    assert not is_training_data(object(), labeled(X, y, model.classes_))


def test_rows_are_known_label_and_all():
    new = np.array([[1.0, -0.0], [2.0, 1.0], [3.0, 2.0]])
    old = np.array([[1.0, 0.0], [2.0, 1.0], [9.0, 9.0]])
    assert count_known(new, np.array([0, 1, 2]), old, np.array([0, 0, 2])) == 1
