"""A small table gets a full Gaussian process, which leave-one-out predictions choose."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss

from cavity import GPClassifier
from cavity.datasets import make_waveform
from cavity.fitting import search
from cavity.fitting.encoding import Unscaled, fit_encoding
from cavity.fitting.rows import TrainingRows
from cavity.fitting.search import (
    KERNELS,
    LEAST_OF_CLASS,
    PRIORS,
    THRESHOLDS,
    Candidate,
    Choice,
    FullGP,
    Learned,
    Start,
    find_start,
    learn,
    some_rows,
)
from cavity.fitting.settings import FULL_GP_ROWS, FULL_GP_WORK, N_INDUCING, plan_fit
from cavity.kernels import RBF, Laplace, Matern12, Matern32, Sum
from cavity.training.history import Event
from cavity.training.parameters import HyperPrior
from tests.unit.fitting.test_settings import arguments, plan
from tests.workers import run

X, Y = load_wine(return_X_y=True)
MOST_ROWS = min(FULL_GP_ROWS, int((FULL_GP_WORK / 2) ** (1 / 3)))  # of two classes, in a full GP
TRAIN, TEST = np.arange(0, len(Y), 2), np.arange(1, len(Y), 2)


@pytest.fixture(scope="module")
def fitted():
    return GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])


def events(model, event):
    return [record for record in model.history_ if record["event"] == event]


# --- When ---


@pytest.mark.parametrize(
    "changes",
    [{}, {"method": "ep"}, {"kernel": "matern32"}, {"scaling": "quantile"}, {"calibrate": False}, {"max_seconds": 1.0}],
)
def test_small_tables_have_all_rows_as_inducing_points(changes):
    found = plan(MOST_ROWS, **changes)
    assert found.is_full_gp
    assert (found.n_inducing, found.folds) == (MOST_ROWS, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_inducing": 50},
        {"inducing_points": np.zeros((3, 2))},
        {"noise": np.ones(2)},
        {"kernel": RBF()},
        {"method": "sep"},
        {"method": "vi"},
        {"max_epochs": 10},
        {"calibrate": 5},
        {"priors": {"relevance": 0.5}},
        {"share_kernel": True},
        {"learn_kernel": False},
        {"alpha": 0.5},
        {"optimizer": "adam"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_who_says_how_to_learn_is_followed(changes):
    found = plan(100, **changes)
    assert not found.is_full_gp
    assert found.n_inducing == changes.get("n_inducing", N_INDUCING)


def test_large_tables_have_fewer_inducing_points_than_rows():
    assert not plan(FULL_GP_ROWS + 1).is_full_gp
    assert not plan(MOST_ROWS + 1).is_full_gp
    assert plan(MOST_ROWS + 1).n_inducing < MOST_ROWS
    assert not plan_fit(arguments(), 1347, 0, n_classes=10).is_full_gp  # it would take a minute
    assert plan_fit(arguments(), 1000, 0, n_classes=10).is_full_gp


# --- Parts of a search ---


def test_every_class_keeps_its_share_and_some_rows():
    y = np.repeat([0, 1, 2], [900, 95, 5])
    at = some_rows(y, 200, seed=0)
    counts = np.bincount(y[at])
    assert counts.tolist() == [180, LEAST_OF_CLASS, 5]
    assert np.array_equal(at, np.unique(at))
    assert np.array_equal(at, some_rows(y, 200, seed=0))
    assert np.array_equal(some_rows(y, 2000, seed=0), np.arange(1000))


def process(dtype=torch.float64):
    rows = TrainingRows(X[TRAIN], Y[TRAIN], np.ones(len(TRAIN)))
    return FullGP.on_rows(rows, fit_encoding(None, "standard", *rows, 3), 3, KERNELS, torch.device("cpu"), dtype)


def test_a_start_climbs_from_the_best_of_some_places_unless_they_are_hopeless():
    gp = process()
    unit, first = gp.distance(0), [(search.SHORTEST, search.LOWEST), (search.SHORTEST, search.HIGHEST)]
    climbed, hopeless = find_start(gp, unit, first), find_start(gp, unit, first, least=0.0)
    assert hopeless.place in first
    assert climbed.place not in first
    assert climbed.score > hopeless.score + 0.1
    assert find_start(gp, unit, [climbed.place]) == climbed
    assert Start((1, -2), 0.0).values(3.0) == (6.0, 0.0625)


def learned(dtype, steps):
    gp = process(dtype)
    unit = gp.distance(0)
    model = gp.model(*find_start(process(), unit, search.FIRST).values(unit))
    prior = HyperPrior(gp.model(unit, search.VARIANCE), PRIORS)
    with torch.no_grad():
        return list(learn(gp, model, Learned(model.start()), prior, steps, 0.15, True))


def test_learning_predicts_better_than_its_start():
    scores = [state.score for state in learned(torch.float64, 10)]
    assert len(scores) == 11
    assert scores[-1] > scores[0] + 0.01


def test_single_precision_learns_the_same():
    one, other = learned(torch.float64, 10)[-1], learned(torch.float32, 10)[-1]
    assert other.theta.dtype == torch.float32
    assert other.score == pytest.approx(one.score, rel=0.02)
    assert float((other.theta - one.theta).abs().max()) < 0.1


@pytest.mark.parametrize(
    ("scaling", "kernels", "factor"),
    [
        ("common", KERNELS, 1.0),
        ("default", KERNELS, 1.0),
        ("quantile", KERNELS, search.HANDICAP),
        ("default", THRESHOLDS, search.ROUGHNESS),
        ("quantile", THRESHOLDS, search.HANDICAP * search.ROUGHNESS),
    ],
)
def test_quantiles_and_thresholds_must_be_better_by_some_percent(scaling, kernels, factor):
    model, now = process().model(1.0, 1.0), Learned(torch.empty(0), score=-0.5)
    choice = Choice(scaling, Unscaled(), kernels, 1.0, Start((0, 0), -0.5))
    assert Candidate(choice, model, iter(()), now).loss == pytest.approx(0.5 * factor)
    assert min(search.HANDICAP, search.ROUGHNESS) > 1.0


def steps_along_the_axes(n_rows, n_features=4):
    """Rows whose class depends on which of two thresholds they exceed."""
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (n_rows, n_features))
    return rows, (rows[:, 0] > 0.3).astype(int) + 2 * (rows[:, 1] > -0.2)


def kernels_tried(model):
    return [record["kernel"] for record in events(model, Event.CANDIDATE)]


@pytest.fixture
def thresholds_of_few_rows(monkeypatch):
    monkeypatch.setattr(search, "THRESHOLD_ROWS", 60)


def test_thresholds_get_a_kernel_of_manhattan_distances(thresholds_of_few_rows):
    rows, y = steps_along_the_axes(240)
    model = GPClassifier(random_state=0).fit(rows[:120], y[:120])
    assert kernels_tried(model)[-1] == "matern12 + laplace"
    assert [type(part) for part in model.kernel_.parts] == [Matern12, Laplace]
    smooth = GPClassifier(kernel="rbf", random_state=0).fit(rows[:120], y[:120])
    assert log_loss(y[120:], model.predict_proba(rows[120:])) < log_loss(y[120:], smooth.predict_proba(rows[120:]))


def test_the_better_kernel_is_kept(thresholds_of_few_rows):
    """Which the records of history name."""
    model = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])
    tried, factors = (
        events(model, Event.CANDIDATE),
        {"quantile": search.HANDICAP, "matern12 + laplace": search.ROUGHNESS},
    )
    assert [record["kernel"] for record in tried] == ["rbf + matern12"] * 2 + ["matern12 + laplace"]
    best = min(tried, key=lambda r: r["nll"] * factors.get(r["scaling"], 1.0) * factors.get(r["kernel"], 1.0))
    assert " + ".join(type(part).__name__.lower() for part in model.kernel_.parts) == best["kernel"]


def test_few_rows_have_no_other_kernel(monkeypatch):
    monkeypatch.setattr(search, "THRESHOLD_ROWS", 61)
    assert set(kernels_tried(GPClassifier(random_state=0).fit(*steps_along_the_axes(60)))) == {"rbf + matern12"}


def test_one_column_of_numbers_has_no_other_kernel(thresholds_of_few_rows):
    """In one dimension, Manhattan distances are the usual ones; between levels, their kernel is an RBF."""
    import pandas as pd

    rows, y = steps_along_the_axes(60)
    frame = pd.DataFrame({"number": rows[:, 0], "level": np.where(rows[:, 1] > 0.0, "high", "low")})
    assert set(kernels_tried(GPClassifier(random_state=0).fit(frame, y))) == {"rbf + matern12"}
    assert set(kernels_tried(GPClassifier(random_state=0).fit(rows[:, :1], y))) == {"rbf + matern12"}


def test_columns_of_one_kind_have_no_other_kernel(thresholds_of_few_rows):
    Xw, yw = make_waveform(60, random_state=0)
    model = GPClassifier(scaling="common", random_state=0).fit(Xw, yw)
    assert kernels_tried(model) == ["rbf + matern12"]


def test_a_candidate_that_starts_far_behind_is_not_learned(monkeypatch, fitted):
    monkeypatch.setattr(search, "BEHIND", 0.0)
    monkeypatch.setattr(search, "START_ROWS", 30)
    model = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])
    rows = [record["rows"] for record in events(model, Event.CANDIDATE)]
    assert len(rows) == len(events(fitted, Event.CANDIDATE)) == 2
    assert min(rows) < len(TRAIN) == max(rows)
    learned = sum(n == len(TRAIN) for n in rows)
    assert model.n_iter_ == fitted.n_iter_ - search.TRIAL_STEPS * (2 - learned)


@pytest.mark.parametrize("scaling", ["default", "auto"])
def test_features_of_one_kind_can_have_a_common_scale(scaling):
    Xw, yw = make_waveform(60, random_state=0)
    model = GPClassifier(scaling=scaling, random_state=0).fit(Xw, yw)
    tried = {record["scaling"] for record in events(model, Event.CANDIDATE)}
    assert tried == {"common", {"default": "default", "auto": "standard"}[scaling], "quantile"}


@pytest.mark.parametrize(("shared_from", "n_kernels"), [(3, 1), (4, 3)])
def test_many_classes_share_a_kernel(shared_from, n_kernels, monkeypatch):
    monkeypatch.setattr(search, "SHARED_FROM", shared_from)
    model = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert {len(value) for value in model.posterior_.prior.params.values()} == {n_kernels}
    assert log_loss(Y[TEST], model.predict_proba(X[TEST])) < 0.15


# --- The result ---


def test_it_predicts_new_rows_well(fitted):
    assert log_loss(Y[TEST], fitted.predict_proba(X[TEST])) < 0.12
    assert isinstance(fitted.kernel_, Sum)
    assert [type(part) for part in fitted.kernel_.parts] == [RBF, Matern12]
    assert fitted.inducing_points_.shape == (3, len(TRAIN), X.shape[1])
    assert fitted.sharpness_ > 1.0
    assert fitted.method_ == "ep"


def test_the_history_says_what_was_tried_and_the_best_is_kept(fitted):
    tried = events(fitted, Event.CANDIDATE)
    assert [record["kernel"] for record in tried] == ["rbf + matern12"] * 2
    assert {record["scaling"] for record in tried} == {"default", "quantile"}
    best = min(tried, key=lambda r: r["nll"] * (search.HANDICAP if r["scaling"] == "quantile" else 1.0))
    assert type(fitted._encoding).__name__ == {"default": "Standard", "quantile": "Monotone"}[best["scaling"]]
    assert fitted.n_iter_ == sum(record["event"] is None for record in fitted.history_)


def test_what_the_user_names_is_not_searched():
    model = GPClassifier(kernel="matern32", scaling="standard", calibrate=False, random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert isinstance(model.kernel_, Matern32)
    assert [record["scaling"] for record in events(model, Event.CANDIDATE)] == ["standard"]
    assert model.sharpness_ == 1.0


def test_the_posterior_is_that_of_ep(fitted):
    """At the training rows, u is f: mean and variance agree with the leave-one-out ones where sites are weak."""
    mean, var = fitted.latent(X[TRAIN])
    assert np.isfinite(mean).all()
    q = fitted.posterior_
    assert not q.prior.noise_in_u
    features = fitted._encoding.transform(X[TRAIN])
    order = [int(np.flatnonzero((q.prior.Z[0].numpy() == row).all(1))[0]) for row in features]
    np.testing.assert_allclose(mean, q.mean[:, order].T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(var, np.diagonal(q.cov, axis1=1, axis2=2)[:, order].T + search.NOISE, rtol=1e-4)


def test_the_same_seed_gives_the_same_bits(fitted):
    again = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert np.array_equal(again.predict_proba(X[TEST]), fitted.predict_proba(X[TEST]))


def test_copies_are_weights():
    twice = np.concatenate([TRAIN, TRAIN[:20]])
    weight = np.ones(len(TRAIN))
    weight[:20] = 2.0
    a = GPClassifier(random_state=0).fit(X[twice], Y[twice])
    b = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN], sample_weight=weight)
    assert np.array_equal(a.predict_proba(X[TEST]), b.predict_proba(X[TEST]))


def test_more_rows_than_the_search_uses(monkeypatch):
    """The search sees some of the rows; q(f) and the sharpness see all."""
    monkeypatch.setattr(search, "LEARN_ROWS", 40)
    monkeypatch.setattr(search, "START_ROWS", 30)
    model = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert model.inducing_points_.shape[1] == len(TRAIN)
    assert {record["rows"] for record in events(model, Event.CANDIDATE)} < set(range(40, 61))
    assert log_loss(Y[TEST], model.predict_proba(X[TEST])) < 0.15


def test_without_time_a_model_is_left_that_beats_class_frequencies():
    model = GPClassifier(max_seconds=1e-9, random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert model.n_iter_ == 1
    assert events(model, Event.TIME_LIMIT)
    shares = np.bincount(Y[TRAIN]) / len(TRAIN)
    assert log_loss(Y[TEST], model.predict_proba(X[TEST])) < -float((shares * np.log(shares)).sum())


def test_a_stopped_search_returns_a_model():
    stop = threading.Event()
    stop.set()
    model = GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN], stop=stop)
    assert events(model, Event.STOPPED)
    assert model.predict_proba(X[TEST]).sum(1) == pytest.approx(1.0)


def test_partial_fit_continues_from_it(fitted):
    from copy import deepcopy

    model = deepcopy(fitted)
    before = log_loss(Y[TEST], model.predict_proba(X[TEST]))
    model.partial_fit(X[TEST], Y[TEST])
    assert log_loss(Y[TEST], model.predict_proba(X[TEST])) < before + 0.05


def test_uncertainty_is_epistemic_where_no_row_is_near(fitted):
    near, far = fitted.uncertainty(X[TEST]), fitted.uncertainty(X[TEST] + 20.0 * X.std(0))
    assert far.epistemic.mean() > 2.0 * near.epistemic.mean()


def test_the_report_gives_no_advice_on_what_was_chosen(fitted):
    page = fitted.report(X[TEST], Y[TEST], train=(X[TRAIN], Y[TRAIN]))._repr_html_()
    assert "more than needed" not in page
    assert "had not converged" not in page


def test_extreme_weights_give_finite_probabilities():
    """EP and the adjoint of its sites diverge at first."""
    model = GPClassifier(random_state=0).fit([[0.126], [-0.132]], [0, 1], sample_weight=[1.0, 1e4])
    assert np.isfinite(model.predict_proba([[0.0], [1.0]])).all()


@pytest.mark.parametrize("n_rows", [4, 7])
def test_very_few_rows(n_rows):
    Xs, ys = load_iris(return_X_y=True)
    at = np.linspace(0, 149, n_rows).round().astype(int)
    model = GPClassifier(random_state=0).fit(Xs[at], ys[at])
    p = model.predict_proba(Xs)
    assert np.isfinite(p).all()
    assert math.isfinite(model.log_marginal_likelihood_)


def shared():
    return GPClassifier(random_state=0).fit(X[TRAIN], Y[TRAIN]).predict_proba(X[TEST])


def test_two_processes_find_what_one_finds(tmp_path, fitted):
    for found in run(shared, 2, tmp_path):
        np.testing.assert_allclose(found, fitted.predict_proba(X[TEST]), atol=1e-6)
