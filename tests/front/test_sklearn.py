"""The classifier as a scikit-learn estimator: its checks, its tools, and the contract of the fitted attributes."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cavity.training.loop
import cavity.training.online
from cavity import GPClassifier, load
from cavity.data import Arrays
from cavity.gp.gaussian import Posterior
from cavity.inference import METHODS, SEP
from cavity.kernels import BY_NAME, RBF, Kernel
from cavity.numerics.linalg import FactorizationError
from cavity.runtime.warnings import CavityWarning

EVERY = pytest.mark.parametrize("method", ["auto", *METHODS])
BATCHED = ["auto", "ep", "sep", "vi"]
X_IRIS, Y_IRIS = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])


def quick(method: str = "sep", **changes) -> GPClassifier:
    """Small and short, on one device, with a seed; calibrated where the method is left to the default as well."""
    calibrate = "auto" if isinstance(method, str) and method == "auto" else False
    settings = {"n_inducing": 10, "max_epochs": 30, "random_state": 0, "device": "cpu", "calibrate": calibrate}
    return GPClassifier(method, **(settings | changes))


def blobs(n_rows: int, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n_rows, centers=4.0 * np.eye(n_classes)[:, :3], cluster_std=1.0, random_state=seed)


# --- scikit-learn's own checks ---


@pytest.mark.filterwarnings("ignore:.* factors are left out:cavity.runtime.warnings.CavityWarning")  # extreme weights
@parametrize_with_checks([GPClassifier(max_epochs=20), GPClassifier("sep", max_epochs=20, calibrate=False)])
def test_checks_of_scikit_learn(estimator, check):
    """The slow test below has all methods."""
    check(estimator)


@pytest.mark.filterwarnings("ignore:.* factors are left out:cavity.runtime.warnings.CavityWarning")  # extreme weights
@pytest.mark.slow
@parametrize_with_checks([GPClassifier(), *(GPClassifier(method) for method in METHODS)])
def test_checks_of_scikit_learn_at_default_settings(estimator, check):
    check(estimator)


# --- its tools ---


@EVERY
def test_cross_validation(method):
    assert cross_val_score(quick(method), X_IRIS, Y_IRIS, cv=3).mean() > 0.93
    p = cross_val_predict(quick(method), X_IRIS, Y_IRIS, cv=3, method="predict_proba")
    assert p.shape == (150, 3)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)


@EVERY
def test_grid_search_in_a_pipeline(method):
    """A noise of a million drowns every function, so the search has something to find."""
    pipeline = make_pipeline(StandardScaler(), quick(method, scaling=None, learn_kernel=False))
    grid = {"gpclassifier__noise": [0.1, 1e6], "gpclassifier__kernel": [RBF(1.0)]}
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=3).fit(X_IRIS, SPECIES[Y_IRIS])
    assert search.best_params_["gpclassifier__noise"] == 0.1
    assert search.best_score_ > -0.3
    assert set(search.predict(X_IRIS)) == set(SPECIES)


@EVERY
def test_clone_and_params(method):
    original = quick(method, kernel=RBF(2.0), class_weight={0: 1.0}, priors={"noise": (0.1, 1.0)})
    copy = clone(original)
    assert copy is not original
    params, copied = original.get_params(), copy.get_params()
    assert params.keys() == copied.keys()
    assert {k: v for k, v in params.items() if k != "kernel"} == {k: v for k, v in copied.items() if k != "kernel"}
    assert repr(copied["kernel"]) == repr(params["kernel"])
    assert copy.set_params(method="ep", noise=3.0).get_params()["noise"] == 3.0
    assert original.noise is None


@EVERY
def test_before_fit_there_is_nothing_to_predict(method):
    with pytest.raises(NotFittedError):
        quick(method).predict(X_IRIS)


def test_gfitc_says_why_it_takes_no_batches():
    with pytest.raises(ValueError, match=r"batch_size=None, got 40: its log Z is not a sum over rows.*method='sep'"):
        quick("gfitc", batch_size=40).fit(X_IRIS, Y_IRIS)
    assert quick("gfitc", batch_size="auto", max_epochs=1).fit(X_IRIS, Y_IRIS).n_iter_ == 1


# --- method="auto" ---


@pytest.mark.parametrize(("batch_size", "chosen"), [(None, "ep"), ("auto", "ep"), (40, "sep"), (150, "ep")])
def test_auto_is_ep_on_all_rows_and_sep_in_batches(batch_size, chosen):
    settings = {"batch_size": batch_size, "max_epochs": 5, "calibrate": "auto"}
    auto, named = (quick(method, **settings).fit(X_IRIS, Y_IRIS) for method in ("auto", chosen))
    assert auto.method_ == named.method_ == chosen
    assert auto.method == "auto"  # what was asked for stays
    np.testing.assert_array_equal(auto.predict_proba(X_IRIS), named.predict_proba(X_IRIS))
    assert auto.log_marginal_likelihood_ == named.log_marginal_likelihood_


def test_auto_is_the_default():
    assert GPClassifier().method == "auto"
    model = GPClassifier(max_epochs=3, random_state=0, verbose=0).fit(X_IRIS, Y_IRIS)
    assert model.method_ == "ep"


def test_auto_may_change_its_mind_with_the_rows():
    """All at once, then in batches, with one classifier."""
    classifier = quick("auto", max_epochs=3).fit(X_IRIS, Y_IRIS)
    assert classifier.method_ == "ep"
    assert classifier.set_params(batch_size=50).fit(X_IRIS, Y_IRIS).method_ == "sep"
    fresh = quick("auto").partial_fit(X_IRIS, Y_IRIS, classes=[0, 1, 2])
    assert fresh.method_ == "sep"


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_is_named_is_the_method_used(method):
    assert quick(method, max_epochs=2).fit(X_IRIS, Y_IRIS).method_ == method


# --- labels and weights ---


@EVERY
def test_string_labels_and_two_classes(method):
    y = np.where(Y_IRIS == 2, "virginica", "other")
    classifier = quick(method).fit(X_IRIS, y)
    assert classifier.classes_.tolist() == ["other", "virginica"]
    assert classifier.predict_proba(X_IRIS).shape == (150, 2)
    assert classifier.score(X_IRIS, y) > 0.93
    assert set(classifier.predict(X_IRIS)) == {"other", "virginica"}


@EVERY
def test_balanced_weights_help_the_rare_class(method):
    X, y = make_blobs([190, 10], centers=[[0.0, 0.0], [1.5, 0.0]], random_state=0)
    plain, balanced = quick(method).fit(X, y), quick(method, class_weight="balanced").fit(X, y)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
    weight = np.where(y == 0, 100 / 190, 10.0)
    by_row = quick(method).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(by_row.predict_proba(X), balanced.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("weights", [{0: -1.0}, {0: np.nan}, {0: np.inf}, "even", [1.0, 2.0, 3.0]])
def test_class_weights_that_make_no_sense(weights):
    with pytest.raises((ValueError, TypeError), match="class_weight"):
        quick(class_weight=weights).fit(X_IRIS, Y_IRIS)


@EVERY
def test_weights_beyond_whole_numbers_are_refused(method):
    with pytest.raises(ValueError, match="sample_weight"):
        quick(method).fit(X_IRIS, Y_IRIS, sample_weight=np.full(150, 1e15))


# --- arguments ---


NONSENSE = ["x", -1.5, float("nan"), {"a": 1}, object(), b"s", np.ones((2, 2)), 1 + 2j, len]


@pytest.mark.parametrize("name", sorted(set(GPClassifier().get_params()) - {"verbose"}))
@pytest.mark.parametrize("value", NONSENSE)
def test_an_argument_that_makes_no_sense_is_named(name, value):
    if name == "checkpoint" and isinstance(value, str):
        pytest.skip("a folder may be called anything")
    with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
        quick(**{name: value}).fit(X_IRIS, Y_IRIS)


@pytest.mark.parametrize("kernel", [RBF("x"), RBF(variance=-1.0), RBF(np.ones(7)), RBF(variance=1e31)])
def test_a_kernel_that_makes_no_sense_is_named(kernel):
    with pytest.raises((ValueError, TypeError), match=r"lengthscale|variance"):
        quick(kernel=kernel).fit(X_IRIS, Y_IRIS)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_kernel_by_name_starts_as_the_default_does(name, tmp_path):
    by_name, by_value = (quick(kernel=k).fit(X_IRIS, Y_IRIS) for k in (name, BY_NAME[name](variance=10.0)))
    assert type(by_name.kernel_) is BY_NAME[name]
    np.testing.assert_array_equal(by_name.predict_proba(X_IRIS), by_value.predict_proba(X_IRIS))
    by_name.save(tmp_path / "m.cavity")
    found = load(tmp_path / "m.cavity")
    assert found.get_params()["kernel"] == name
    np.testing.assert_array_equal(found.predict_proba(X_IRIS), by_name.predict_proba(X_IRIS))
    np.testing.assert_array_equal(clone(found).fit(X_IRIS, Y_IRIS).noise_, by_name.noise_)


def test_rbf_by_name_is_the_default_and_other_names_are_listed():
    assert repr(quick(kernel="rbf").fit(X_IRIS, Y_IRIS).kernel_) == repr(quick().fit(X_IRIS, Y_IRIS).kernel_)
    with pytest.raises(ValueError, match=r"kernel must be one of \['rbf', 'matern12', .*'linear'\].*got 'gauss'"):
        quick(kernel="gauss").fit(X_IRIS, Y_IRIS)


# --- frames ---


@EVERY
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_bring_their_feature_names(method, frame):
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    table = frame(dict(zip(names, X_IRIS.T, strict=True)))
    classifier = quick(method).fit(table, SPECIES[Y_IRIS])
    assert classifier.feature_names_in_.tolist() == names
    assert (classifier.predict(table) == SPECIES[Y_IRIS]).mean() > 0.93
    np.testing.assert_array_equal(
        classifier.predict_proba(table), quick(method).fit(X_IRIS, SPECIES[Y_IRIS]).predict_proba(X_IRIS)
    )
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        classifier.predict(table[names[::-1]])


# --- what fit leaves ---


@EVERY
def test_fitted_attributes(method):
    X = X_IRIS * [1.0, 10.0, 100.0, 1000.0]
    classifier = quick(method).fit(X, SPECIES[Y_IRIS])
    C, M, D = 3, 10, 4
    assert classifier.classes_.tolist() == SPECIES.tolist()
    assert classifier.n_features_in_ == D
    assert not hasattr(classifier, "feature_names_in_")
    assert isinstance(classifier.kernel_, Kernel)
    assert classifier.kernel_.lengthscale.shape == (C, D)
    assert classifier.noise_.shape == (C,)
    assert (classifier.noise_ > 0).all()
    assert classifier.inducing_points_.shape == (C, M, D)
    middle, reach = X.mean(0), np.ptp(X, axis=0)
    assert (np.abs(classifier.inducing_points_ - middle) < 2 * reach).all()  # in units of X
    assert (np.ptp(classifier.inducing_points_, axis=1) > 0.2 * reach).all()
    assert classifier.posterior_.mean.shape == (C, M)
    assert classifier.posterior_.cov.shape == (C, M, M)
    np.testing.assert_allclose(classifier.posterior_.cov, classifier.posterior_.cov.mT)
    assert (np.linalg.eigvalsh(classifier.posterior_.cov) > 0).all()
    assert -150 * np.log(3) < classifier.log_marginal_likelihood_ < 0  # better than guessing
    assert 1 <= classifier.n_iter_ <= 30
    assert len(classifier.history_) >= classifier.n_iter_
    assert {"objective", "seconds", "rate", "damping", "event"} <= set(classifier.history_[0])
    assert classifier.history_[-1]["objective"] > classifier.history_[0]["objective"]


@EVERY
def test_latent_and_uncertainty(method):
    classifier = quick(method).fit(X_IRIS, Y_IRIS)
    mean, var = classifier.latent(X_IRIS[:7])
    assert mean.shape == var.shape == (7, 3)
    assert (var > classifier.noise_).all()
    assert (mean.argmax(1) == classifier.predict(X_IRIS[:7])).all()
    inside, outside = classifier.uncertainty(X_IRIS[:1]), classifier.uncertainty(X_IRIS[:1] + 1e3)
    assert outside.total > inside.total
    assert outside.epistemic > inside.epistemic


@EVERY
def test_pickle(method):
    classifier = quick(method).fit(X_IRIS, Y_IRIS)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X_IRIS), classifier.predict_proba(X_IRIS))


@pytest.mark.parametrize(
    ("method", "batch_size"),
    [("auto", None), *((method, None) for method in METHODS), *((method, 40) for method in BATCHED)],
)
def test_a_seed_fixes_everything(method, batch_size):
    settings = {"batch_size": batch_size, "init": "random", "max_epochs": 5}
    a, b = (quick(method, **settings).fit(X_IRIS, Y_IRIS) for _ in range(2))
    other = quick(method, **settings | {"random_state": 1}).fit(X_IRIS, Y_IRIS)
    np.testing.assert_array_equal(a.predict_proba(X_IRIS), b.predict_proba(X_IRIS))
    assert (a.predict_proba(X_IRIS) != other.predict_proba(X_IRIS)).any()
    generator = quick(method, **settings | {"random_state": np.random.RandomState(0)}).fit(X_IRIS, Y_IRIS)
    np.testing.assert_array_equal(a.predict_proba(X_IRIS), generator.predict_proba(X_IRIS))


# --- what it says while it works ---


@EVERY
def test_silent_unless_asked(method, capfd):
    quick(method, calibrate="auto", max_epochs=5).fit(X_IRIS, Y_IRIS).predict(X_IRIS)
    assert capfd.readouterr() == ("", "")


@EVERY
def test_verbose_shows_a_bar_on_stderr(method, capfd):
    classifier = quick(method, verbose=1, calibrate="auto").fit(X_IRIS, Y_IRIS)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"cavity {classifier.method_}" in err
    assert "calibration by 3 more fits" in err
    assert re.search(r"objective=-\d", err)


@EVERY
def test_more_verbose_writes_every_record(method, capfd):
    classifier = quick(method, verbose=2, max_epochs=4).fit(X_IRIS, Y_IRIS)
    assert classifier.n_iter_ == 4
    assert "".join(capfd.readouterr()).count("objective -") == len(classifier.history_)
    assert {record["epoch"] for record in classifier.history_} == {1, 2, 3, 4}


@EVERY
def test_ctrl_c_stops_the_training(method, monkeypatch):
    def interrupt(self, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cavity.training.loop.Trainer, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        quick(method).fit(X_IRIS, Y_IRIS)


@pytest.mark.parametrize(
    ("X", "y", "changes"),
    [
        (X_IRIS[:, :2], np.zeros(len(Y_IRIS)), {}),
        (X_IRIS[:, :2], Y_IRIS + 5, {"inducing_points": np.zeros((4, 9))}),
        (X_IRIS[:, :2] * np.nan, Y_IRIS + 5, {}),
        (X_IRIS[:, :2], Y_IRIS + 5, {"max_epochs": 0}),
    ],
    ids=["one class", "inducing points", "NaN", "argument"],
)
def test_a_fit_that_fails_leaves_the_classifier_as_it_was(X, y, changes):
    classifier = quick("sep").fit(X_IRIS, Y_IRIS)
    before, given = dict(vars(classifier)), classifier.predict_proba(X_IRIS)
    with pytest.raises(ValueError, match=r"."):
        classifier.set_params(**changes).fit(X, y)
    classifier.set_params(**{name: before[name] for name in changes})
    assert vars(classifier).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(classifier).items())
    np.testing.assert_array_equal(classifier.predict_proba(X_IRIS), given)


@pytest.mark.parametrize("where", ["evaluate", "finish"])
def test_a_training_that_fails_leaves_names_and_classes_as_they_were(where, monkeypatch):
    first, second = pd.DataFrame(X_IRIS, columns=list("abcd")), pd.DataFrame(X_IRIS[:, :2], columns=["x", "y"])
    classifier = quick("sep").fit(first, Y_IRIS)
    before, given = dict(vars(classifier)), classifier.predict_proba(first)

    def broken(*args):
        raise FactorizationError("made to fail")

    monkeypatch.setattr(cavity.training.loop.Trainer, where, broken)
    with pytest.raises(ValueError, match="made to fail"):
        classifier.fit(second, Y_IRIS + 5)
    assert vars(classifier).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(classifier).items())
    assert classifier.feature_names_in_.tolist() == list("abcd")
    assert classifier.n_features_in_ == 4
    np.testing.assert_array_equal(classifier.predict_proba(first), given)


def test_a_model_is_moved_to_another_device_once(monkeypatch):
    """Not for every call, nor for every block of a source; a new fit moves again, and a pickle holds no copy."""
    classifier, device, moves = quick("sep").fit(X_IRIS, Y_IRIS), torch.device("meta"), []
    expected = classifier.predict_proba(X_IRIS)

    def to(self, where):
        if where == device:
            moves.append(1)
        return replace(self)

    monkeypatch.setattr(Posterior, "to", to)
    monkeypatch.setattr("cavity.classifier.choose_device", lambda name: device)
    for rows in (X_IRIS, Arrays(X_IRIS, lanes=5), X_IRIS):
        np.testing.assert_allclose(classifier.predict_proba(rows), expected, rtol=0, atol=1e-12)
    classifier.latent(X_IRIS)
    classifier.uncertainty(X_IRIS[:3])
    assert len(moves) == 1
    again = pickle.loads(pickle.dumps(classifier))
    assert vars(again).keys() == vars(classifier).keys() - {"_moved"}
    again.predict_proba(X_IRIS)
    again.predict_proba(X_IRIS)
    assert len(moves) == 2
    again.partial_fit(X_IRIS[:5], Y_IRIS[:5]).predict_proba(X_IRIS)
    assert len(moves) == 3


# --- streams ---


def interrupted(*args):
    raise KeyboardInterrupt


@pytest.mark.parametrize("way", ["features", "label", "infinity", "argument", "interrupted", "posterior"])
def test_a_partial_fit_that_fails_leaves_the_classifier_as_it_was(way, monkeypatch):
    """Also the state that the next call continues from."""
    rows = np.tile(X_IRIS, (3, 1)), np.tile(Y_IRIS, 3)  # two batches
    classifier, other = (quick("sep").partial_fit(X_IRIS, Y_IRIS, classes=[0, 1, 2]) for _ in range(2))
    before, X, y = dict(vars(classifier)), *rows
    absorb, calls = SEP.absorb, []

    def once(self, *args):
        calls.append(1)
        return interrupted() if len(calls) == 2 else absorb(self, *args)

    if way == "interrupted":
        monkeypatch.setattr(SEP, "absorb", once)
    if way == "posterior":
        monkeypatch.setattr(cavity.training.online.OnlineTrainer, "posterior", interrupted)
    if way == "argument":
        classifier.set_params(max_epochs=0)
    bad = {"features": (X[:, :2], y), "label": (X, y + 1), "infinity": (X * np.inf, y)}
    with pytest.raises((ValueError, KeyboardInterrupt)):
        classifier.partial_fit(*bad.get(way, rows))
    monkeypatch.undo()
    classifier.set_params(max_epochs=before["max_epochs"])
    assert vars(classifier).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(classifier).items())
    for model in (classifier, other):
        model.partial_fit(*rows)
    np.testing.assert_array_equal(classifier.predict_proba(X), other.predict_proba(X))
    assert classifier.history_ == other.history_


def test_rows_that_a_partial_fit_leaves_out_do_not_count(monkeypatch):
    """A warning and the history say how many, and why."""
    X, y = np.repeat(X_IRIS, 3, axis=0), np.repeat(Y_IRIS, 3)  # 450 sorted rows: two batches of 225
    classifier = quick("sep").partial_fit(X_IRIS, Y_IRIS, classes=[0, 1, 2])
    absorb, calls = SEP.absorb, []

    def second_fails(self, *args):
        calls.append(1)
        if len(calls) == 2:
            raise FactorizationError("made to fail")
        return absorb(self, *args)

    monkeypatch.setattr(SEP, "absorb", second_fails)
    with pytest.warns(CavityWarning, match="225 rows not learned from: made to fail"):
        classifier.partial_fit(X, y)
    last = classifier.history_[-1]
    assert (last["event"], last["rows"], last["reason"]) == ("rows_left_out", 225, "made to fail")
    assert classifier.training_["rows"] == 150 + 225
    assert classifier.training_["class_counts"] == [50 + 150, 50 + 75, 50]
    assert classifier._online._trainer.weight_seen == 150 + 225


STREAMS = pytest.mark.parametrize("method", ["sep", "auto"])


@STREAMS
def test_a_stream_comes_close_to_training_on_all_rows(method):
    X, y = blobs(1200)
    X_new, y_new = blobs(600, seed=1)
    stream = quick(method, max_epochs=60)
    for chunk in np.split(np.arange(1200), 6):
        stream.partial_fit(X[chunk], y[chunk], classes=[0, 1, 2])
    whole = quick(method, max_epochs=60).fit(X, y)
    nll = [-c.predict_log_proba(X_new)[np.arange(600), y_new].mean() for c in (stream, whole)]
    assert stream.score(X_new, y_new) > whole.score(X_new, y_new) - 0.02
    assert nll[0] < nll[1] + 0.1
    assert stream.n_iter_ == len(stream.history_) == 6


@STREAMS
def test_a_stream_goes_on_after_fit_and_learns(method):
    """`fit` sees no row of the third class near its second cloud; the stream brings them."""
    X, y = blobs(300)
    new_cloud = np.random.default_rng(2).normal([-6.0, -6.0, -6.0], 0.5, (60, 3))
    classifier = quick(method, calibrate="auto").fit(X, y)
    before = classifier.predict_proba(new_cloud)[:, 2].mean()
    classifier.partial_fit(new_cloud, np.full(60, 2))
    assert classifier.predict_proba(new_cloud)[:, 2].mean() > before + 0.1
    assert classifier.score(X, y) > 0.9


def test_the_first_piece_must_name_the_classes():
    X, y = blobs(60)
    with pytest.raises(ValueError, match="classes"):
        quick().partial_fit(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match="classes"):
        quick().partial_fit(X, y, classes=[0, 1])
    classifier = quick().partial_fit(X[y == 0], y[y == 0], classes=[0, 1, 2])
    assert classifier.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"label 7 is not one of the classes"):
        classifier.partial_fit(X, np.full(60, 7))
    with pytest.raises(ValueError, match="classes"):
        classifier.partial_fit(X, y, classes=[0, 1, 2, 3])


@STREAMS
def test_a_stream_starts_where_fit_ended(method):
    """Sites that EP kept apart are tied, and q does not notice."""
    classifier = quick(method).fit(X_IRIS, Y_IRIS)
    start, end = classifier._online._trainer.posterior(), classifier.posterior_
    np.testing.assert_allclose(start.mean, end.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(start.cov, end.cov, rtol=1e-9, atol=1e-12)
    assert classifier._online._trainer.weight_seen == 150
    records = len(classifier.history_)
    classifier.partial_fit(X_IRIS[:3], Y_IRIS[:3])
    assert classifier._online._trainer.weight_seen == 153
    assert len(classifier.history_) == records + 1
    assert classifier.score(X_IRIS, Y_IRIS) > 0.93


@STREAMS
def test_weights_of_a_fit_count_in_the_stream_that_goes_on(method):
    weight = np.arange(150) % 3 + 1
    weighted = quick(method).fit(X_IRIS, Y_IRIS, sample_weight=weight)
    copies = quick(method).fit(np.repeat(X_IRIS, weight, axis=0), np.repeat(Y_IRIS, weight))
    for classifier in (weighted, copies):
        assert classifier._online._trainer.weight_seen == weight.sum()
        classifier.partial_fit(X_IRIS[:20], Y_IRIS[:20])
    np.testing.assert_allclose(weighted.predict_proba(X_IRIS), copies.predict_proba(X_IRIS), rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["ep", "gfitc", "vi"])
def test_what_keeps_rows_has_no_stream(method):
    assert hasattr(quick("sep"), "partial_fit")
    assert hasattr(quick("auto"), "partial_fit")
    assert not hasattr(quick(method), "partial_fit")
    with pytest.raises(AttributeError) as raised:
        quick(method).partial_fit(X_IRIS, Y_IRIS)
    assert "method='sep' or 'auto'" in f"{raised.value} {raised.value.__cause__}"


def test_no_old_stream_after_a_fit_by_ep():
    """A stream from an earlier fit belongs to another scaling and other inducing points."""
    classifier = quick("sep").fit(100 * X_IRIS[:, :2], Y_IRIS)
    classifier.set_params(method="ep").fit(X_IRIS, Y_IRIS)
    classifier.set_params(method="sep").partial_fit(X_IRIS, Y_IRIS, classes=[0, 1, 2])
    assert classifier.n_iter_ == 1
    assert classifier.score(X_IRIS, Y_IRIS) > 0.8
