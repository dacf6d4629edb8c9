"""The whole look at a model: numbers by hand, real fits, and odd data."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris, load_wine

import cavity
from cavity import GPClassifier
from cavity.kernels import RBF, Constant, Linear
from cavity.metrics import scores
from cavity.report import analysis as module
from cavity.report.analysis import count_known, encode_labels, examine, is_training_data, take_rows
from cavity.report.columns import read_rows
from cavity.report.features import LabeledData, sample_indices
from cavity.report.findings import Findings
from cavity.report.page import headline
from cavity.runtime.warnings import CavityWarning
from tests.unit.report.fakes import Fake, fake, rows_for

pytestmark = pytest.mark.usefixtures("coarse")


def classifier(**more):
    settings = {"max_epochs": 15, "calibrate": False, "random_state": 0, "n_inducing": 20, "device": "cpu"}
    return GPClassifier(**(settings | more))


def is_finite(found: Findings) -> bool:
    """All numbers but those of an NLL, which may be infinite but not NaN."""
    lines = [part for line in found.scores for part in (*line.error, *line.brier, *line.ece)]
    curves = [value for r in found.reliability for part in r[1:5] for value in part]
    rows = [value for row in found.uncertain for value in (*row[3:6], *dict(row.top).values())]
    more = [found.total, found.aleatoric, found.epistemic, found.training.objective, found.training.seconds]
    more += [] if found.map is None else [found.map.rows.ravel(), found.map.inducing.ravel(), [found.map.share]]
    more += [] if found.relevance is None else [found.relevance.values.ravel()]
    no_nan = not any(np.isnan(line.nll).any() for line in found.scores)
    return no_nan and bool(np.isfinite(np.concatenate([lines, curves, rows, *more])).all())


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    return classifier().fit(X[::2], names[::2]), (X[1::2], names[1::2]), (X[::2], names[::2])


@pytest.fixture(scope="module")
def found(iris):
    model, test, train = iris
    return examine(model, *test, train=train, title="Irises")


def test_numbers_by_hand():
    """Four rows, three classes."""
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.3, 0.5]])
    model = Fake(p, np.array(["a", "b", "c"]), epistemic=np.array([0.1, 0.2, 0.9, 0.3]), aleatoric=0.05)
    found = examine(model, rows_for(4), ["a", "b", "c", "c"])
    assert (found.n_rows, found.classes, found.counts.tolist()) == (4, ["a", "b", "c"], [1, 1, 2])
    (line,) = found.scores  # four rows are too few for baselines
    assert (line.name, line.note, line.error.value) == ("this model", "", 0.25)
    assert line.nll.value == pytest.approx(-np.log([0.7, 0.6, 0.25, 0.5]).mean())
    np.testing.assert_array_equal(found.confusion, [[1, 0, 0], [0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(found.is_right, [True, True, False, True])
    np.testing.assert_allclose(found.total, [0.15, 0.25, 0.95, 0.35])
    np.testing.assert_allclose(found.aleatoric, 0.05)
    assert found.uncertain[0].row == 2
    assert found.relevance is None
    assert found.map.inducing.shape == (0, 2)
    assert found.training.objective.size == 0
    assert is_finite(found)


def test_a_model_is_asked_no_more_than_it_needs():
    model, X, y = fake(200)
    examine(model, X, y)
    assert model.asked == [200]


def test_a_fit_is_seen_from_all_sides(found, iris):
    model, (X, y), _ = iris
    assert found.title == "Irises"
    assert found.created.endswith(f"cavity {cavity.__version__}")
    assert [line.name for line in found.scores] == [
        "this model", "class frequencies", "logistic regression", "random forest",
    ]  # fmt: skip
    expected = scores(y, model.predict_log_proba(X), model.classes_)
    assert [part.value for part in found.scores[0][1:5]] == pytest.approx(list(expected), abs=1e-12)
    assert found.confusion.sum() == found.counts.sum() == found.n_rows == len(found.total) == 75
    assert [r.name for r in found.reliability] == [None, *model.classes_]
    np.testing.assert_allclose(found.relevance.values, 1 / model.kernel_.lengthscale)
    assert len(found.training.epoch) == model.n_iter_ == 15
    assert found.map.axes[0].startswith("discriminant 1")
    assert found.map.inducing.shape == (60, 2)
    about = dict(found.about)
    assert about["Training data"] == "75 rows, 4 features, 3 classes"
    assert about["Inducing points"] == "20 for each class"
    assert about["Kernel"] == "RBF"
    assert is_finite(found)


def test_it_says_the_same_twice(found, iris):
    model, test, train = iris
    again = examine(model, *test, train=train)
    assert again.scores == found.scores
    assert again.uncertain == found.uncertain
    assert again.advice == found.advice
    np.testing.assert_array_equal(again.map.rows, found.map.rows)


def test_training_rows_are_recognized(iris):
    model, _, train = iris
    assert any("The model was trained on these rows" in piece.what for piece in examine(model, *train).advice)
    found = examine(model, *train, train=train)
    assert found.advice[0].level == "warning"


def test_training_rows_get_no_verdict_on_calibration(iris):
    """Nor do a part of them, if the training rows are given."""
    model, test, (X, y) = iris
    for found in (examine(model, X, y), examine(model, X[:20], y[:20], train=(X, y))):
        assert "; no verdict on calibration, because the model was trained on these rows" in headline(found)
        assert not any("calibrat" in piece.what for piece in found.advice)
    both = examine(model, np.concatenate([test[0], X[:20]]), np.concatenate([test[1], y[:20]]), train=(X, y))
    assert re.search(r"because \d+ of the \d+ rows are training rows", headline(both))
    assert "no verdict" not in headline(examine(model, *test, train=(X, y)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_the_names_of_their_features(iris, frame):
    _, (X, y), (X_train, y_train) = iris
    columns = ["sepal length", "sepal width", "petal length", "petal width"]
    frames = [frame(dict(zip(columns, part.T, strict=True))) for part in (X, X_train)]
    model = classifier(max_epochs=2).fit(frames[1], y_train)
    found = examine(model, frames[0], y.tolist(), train=(frames[1], y_train))
    assert found.relevance.features == columns
    assert "petal" in found.map.axes[0]
    assert len(found.scores) == 4
    with pytest.raises(ValueError, match=r"must have the model's features \['sepal length'.*got \['petal width'"):
        examine(model, frames[0], y, train=(frames[1][columns[::-1]], y_train))


def test_a_frame_of_many_rows_is_sampled(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 50)
    model, X, y = fake(300)
    found = examine(model, pd.DataFrame(X), pd.Series(y), row_names=np.arange(1000, 1300))
    assert found.n_rows == found.counts.sum() == len(found.total) == 50
    assert any("random sample of 50 of the 300 rows" in piece.what for piece in found.advice)
    assert all(y[row.row - 1000] == row.truth for row in found.uncertain)
    assert max(row.row for row in found.uncertain) > 1050
    assert len(found.row_names) == 50
    named = dict(zip(found.row_names, found.total, strict=True))
    assert all(named[str(row.row)] == row.total for row in found.uncertain)


def test_of_many_rows_some_have_their_doubt_taken_apart(monkeypatch):
    monkeypatch.setattr("cavity.report.uncertain.SAMPLE_ROWS", 40)
    monkeypatch.setattr("cavity.report.uncertain.WORST_ROWS", 5)
    model, X, y = fake(300, epistemic=0.3, aleatoric=np.linspace(0, 0.5, 300))
    found = examine(model, X, y)
    assert found.n_rows == 300
    assert len(found.total) == len(found.aleatoric) == len(found.epistemic) == len(found.is_right) == 40
    assert 40 <= model.asked[0] <= 50


@pytest.mark.parametrize(
    "kernel", [Constant(), RBF() + Constant(), Linear() + Constant()], ids=["none", "one", "linear"]
)
def test_any_kernel(iris, kernel):
    _, test, train = iris
    found = examine(classifier(kernel=kernel, max_epochs=3).fit(*train), *test)
    assert (found.relevance is None) == isinstance(kernel, Constant)
    assert is_finite(found)


def test_shared_kernel_and_inducing_points(iris):
    _, test, train = iris
    found = examine(classifier(share_kernel=True, share_inducing=True, max_epochs=3).fit(*train), *test, train=train)
    assert found.relevance.values.shape == (1, 4)
    assert found.map.inducing.shape == (20, 2)
    assert set(found.map.inducing_class.tolist()) <= {0, 1, 2}
    assert dict(found.about)["Inducing points"] == "20 shared by all classes"


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("method", ["sep", "vi"])
def test_one_or_two_features_and_two_classes(n_features, method):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, n_features))
    y = X[:, 0] + 0.5 * rng.standard_normal(80) > 0
    found = examine(classifier(method=method, max_epochs=5).fit(X[:40], y[:40]), X[40:], y[40:])
    assert found.classes == ["False", "True"]
    assert found.map.axes[0] == "x0"
    assert is_finite(found)


def test_a_stream_and_a_model_that_learns_nothing_but_q(iris):
    _, test, (X, y) = iris
    stream = classifier().partial_fit(X, y, classes=np.unique(y))
    assert len(examine(stream, *test).training.epoch) == 1
    with pytest.warns(CavityWarning, match="has not converged"):
        fixed = classifier(learn_kernel=False, learn_inducing=False, max_epochs=5).fit(X, y)
    assert is_finite(examine(fixed, *test))


def test_constant_features_and_a_class_that_is_missing():
    X, y = load_wine(return_X_y=True)
    X = np.column_stack([X, np.full(len(X), 7.0)])
    model = classifier(max_epochs=3).fit(X[::2], y[::2])
    keep = y[1::2] != 1
    found = examine(model, X[1::2][keep], y[1::2][keep], train=(X[::2], y[::2]))
    assert (found.relevance.values[:, -1] == 0).all()
    assert (found.relevance.values[:, :-1] > 0).all()
    assert found.counts[1] == 0
    assert found.reliability[2].accuracy.max() == 0.0
    assert is_finite(found)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_hardly_any_rows(n):
    model, X, y = fake(n)
    found = examine(model, X, y)
    assert found.n_rows == n
    assert is_finite(found)


def test_a_model_that_held_the_truth_impossible():
    model, X, y = fake(60)
    model.p[:] = np.eye(3)[0]
    found = examine(model, X, y)
    assert found.scores[0].nll.value == np.inf
    assert is_finite(found)


def test_wrong_arguments_are_named(iris):
    model, (X, y), train = iris
    with pytest.raises(ValueError, match=r"`y` must contain only the 3 labels .* got 'rose'"):
        examine(model, X, np.where(y == "setosa", "rose", y))
    with pytest.raises(ValueError, match=r"`train\[1\]` must contain only .* got 0 \(int\)"):
        examine(model, X, y, train=(train[0], np.zeros(75, dtype=int)))
    with pytest.raises(ValueError, match=r"`train\[0\]` must have 4 features, got 3"):
        examine(model, X, y, train=(train[0][:, :3], train[1]))
    with pytest.raises(ValueError, match=r"`train` must be a pair .* got str"):
        module._training_rows(model, "rows")
    with pytest.raises(ValueError, match="`row_names` must have one name for each of the 75 rows, got 3"):
        examine(model, X, y, row_names=[1, 2, 3])
    with pytest.raises(ValueError, match="expecting 4 features"):
        examine(model, X[:, :3], y)


# --- Rows and labels as people give them ---

X = np.random.default_rng(0).standard_normal((30, 3))
Y = np.array(["a", "b", "c"])[np.arange(30) % 3]
CLASSES = np.array(["a", "b", "c"])


@pytest.mark.parametrize("frame", [lambda X: X, lambda X: X.tolist(), pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("series", [np.asarray, list, pd.Series, pl.Series, lambda y: np.asarray(y)[:, None]])
def test_frames_and_arrays_give_the_same_rows(frame, series):
    given, y = encode_labels(frame(X), series(Y), CLASSES)
    np.testing.assert_array_equal(y, np.arange(30) % 3)
    some = sample_indices(30, 10)
    assert len(take_rows(given, some)) == 10
    np.testing.assert_array_equal(read_rows(object(), take_rows(given, some))[0], X[some])
    assert take_rows(given, np.arange(30)) is given


def test_few_rows_are_all_taken_and_a_sample_is_always_the_same():
    np.testing.assert_array_equal(sample_indices(5, 5), np.arange(5))
    sample = sample_indices(1000, 50)
    np.testing.assert_array_equal(sample, sample_indices(1000, 50))
    assert len(np.unique(sample)) == 50
    assert (np.diff(sample) > 0).all()


@pytest.mark.parametrize("label", ["q", 1, None, float("nan")])
def test_a_label_that_the_model_does_not_know_is_named(label):
    y = Y.astype(object)
    y[3:5] = label
    with pytest.raises(ValueError, match=rf"such as 'a' \(str\), got {label!r} \(.*\); 2 of 30 rows"):
        encode_labels(X, y, CLASSES)


def test_numbers_are_known_whatever_their_type():
    np.testing.assert_array_equal(encode_labels(X[:3], [2.0, 0.0, True], np.array([0, 1, 2]))[1], [2, 0, 1])


@pytest.mark.parametrize(("rows", "y"), [(X, Y[:-1]), (X[0], Y[:3]), (X, np.stack([Y, Y], 1))])
def test_one_label_a_row_is_needed(rows, y):
    with pytest.raises(ValueError, match=r"`train\[0\]` and `train\[1\]` must have shapes .* one label for each row"):
        encode_labels(rows, y, CLASSES, names=("train[0]", "train[1]"))


@pytest.fixture(scope="module", params=[None, "balanced"])
def fitted(request):
    y = np.where(np.arange(30) < 8, "a", Y)
    return GPClassifier(max_epochs=2, calibrate=False, class_weight=request.param, random_state=0).fit(X, y), y


def test_training_rows_are_known_again_in_any_order(fitted):
    model, y = fitted
    assert is_training_data(model, *encode_labels(X, y, model.classes_))
    order = np.random.default_rng(1).permutation(30)
    assert is_training_data(model, *encode_labels(pd.DataFrame(X[order]), y[order], model.classes_))


def test_other_rows_are_not_taken_for_them(fitted):
    model, y = fitted
    assert not is_training_data(model, *encode_labels(X + 1e-9, y, model.classes_))
    assert not is_training_data(model, *encode_labels(X, y[::-1], model.classes_))
    assert not is_training_data(model, *encode_labels(X[1:], y[1:], model.classes_))
    assert not is_training_data(object(), *encode_labels(X, y, model.classes_))


def test_rows_are_known_label_and_all():
    new = np.array([[1.0, -0.0], [2.0, 1.0], [3.0, 2.0]])
    old = np.array([[1.0, 0.0], [2.0, 1.0], [9.0, 9.0]])
    assert count_known(LabeledData(new, np.array([0, 1, 2])), LabeledData(old, np.array([0, 0, 2]))) == 1
