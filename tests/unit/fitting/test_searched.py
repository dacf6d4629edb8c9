"""A table too large for a full GP: a search on some rows, then EP at fixed inducing points, or mini-batches."""

from __future__ import annotations

import pickle
import threading
from copy import deepcopy

import numpy as np
import pytest
from sklearn.metrics import log_loss

import cavity
from cavity import GPClassifier
from cavity.data import CSV, Arrays
from cavity.datasets import make_waveform
from cavity.fitting import fit, many_features, search
from cavity.fitting import settings as fit_settings
from cavity.kernels import RBF, Matern12, Matern32, Sum
from cavity.training.history import Event, Watch
from tests.searches import N_INDUCING, N_ROWS, make_small
from tests.tables import mixed_table, write_csv

X, Y = make_waveform(600, random_state=0)
X_NEW, Y_NEW = X[300:], Y[300:]
WAYS = list(N_ROWS)
FREQUENCIES = float(-np.log(np.bincount(Y) / len(Y)) @ (np.bincount(Y) / len(Y)))  # the log loss of guessing
left_out = pytest.mark.filterwarnings("ignore:X has columns that are left out")

both = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_small(monkeypatch)


def rows(way):
    return X[: N_ROWS[way]], Y[: N_ROWS[way]]


def classifier(**changes):
    return GPClassifier(**({"random_state": 0, "device": "cpu"} | changes))


@pytest.fixture(scope="module")
def models():
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return {way: classifier().fit(*rows(way)) for way in WAYS}


def events(model, event):
    return [record for record in model.history_ if record["event"] == event]


def tried(model):
    return {record["scaling"]: record["nll"] for record in events(model, Event.CANDIDATE)}


def loss(model):
    p = model.predict_proba(X_NEW)
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=0, atol=1e-12)
    return log_loss(Y_NEW, p)


# --- The result ---


@both
def test_it_predicts_new_rows_well(way, models):
    model = models[way]
    assert loss(model) < 0.6 * FREQUENCIES
    assert model.method_ == {"ep": "ep", "batches": "sep"}[way]
    assert isinstance(model.kernel_, Sum)
    assert [type(part) for part in model.kernel_.parts] == [RBF, Matern12]
    assert model.inducing_points_.shape == (3, N_INDUCING, X.shape[1])
    assert model.sharpness_ != 1.0


def test_ep_has_fixed_points_that_all_classes_share(models):
    prior = models["ep"].posterior_.prior
    assert len(prior.Z) == 1
    assert not prior.noise_in_u
    assert np.array_equal(models["ep"].noise_, [search.NOISE] * 3)


def test_mini_batches_move_points_of_every_class_and_the_noise(models):
    prior = models["batches"].posterior_.prior
    assert len(prior.Z) == 3
    assert prior.noise_in_u
    assert (models["batches"].noise_ != search.NOISE).all()


@both
def test_the_history_says_what_was_tried_and_the_best_is_kept(way, models):
    model = models[way]
    found = tried(model)
    assert set(found) == {"common", "default", "quantile"}
    best = min(found, key=lambda scaling: found[scaling] * (search.HANDICAP if scaling == "quantile" else 1.0))
    if best == "quantile":
        assert type(model._encoding).__name__ == "Monotone"
    else:
        assert (np.ptp(model._encoding.sd) == 0.0) == (best == "common")
    own = [record for record in model.history_ if record["event"] is None]
    assert len(own) > 0
    assert model.n_iter_ == own[-1]["epoch"] < fit_settings.FIXED_SWEEPS
    assert not {record["event"] for record in model.history_} - {None, Event.CANDIDATE}


@both
def test_time_and_epochs_of_the_history_go_on_after_the_search(way, models):
    for name in ("epoch", "seconds"):
        values = [record[name] for record in models[way].history_]
        assert values == sorted(values)


@both
def test_the_same_seed_gives_the_same_bits(way, models):
    again = classifier().fit(*rows(way))
    assert np.array_equal(again.predict_proba(X_NEW), models[way].predict_proba(X_NEW))
    assert tried(again) == tried(models[way])


@both
def test_another_seed_draws_other_rows(way, models):
    other = classifier(random_state=1).fit(*rows(way))
    assert tried(other) != tried(models[way])
    assert loss(other) < 0.6 * FREQUENCIES


@both
def test_without_calibration_the_sharpness_is_one(way):
    model = classifier(calibrate=False).fit(*rows(way))
    assert model.sharpness_ == 1.0
    assert loss(model) < 0.7 * FREQUENCIES


@both
def test_labels_that_have_nothing_to_do_with_the_rows_are_not_believed(way):
    """Leave-one-out predictions or held-out rows make the probabilities those of the classes."""
    y = np.random.default_rng(0).choice(3, 600, p=[0.7, 0.2, 0.1])
    model = classifier().fit(X[: N_ROWS[way]], y[: N_ROWS[way]])
    shares = np.bincount(y[: N_ROWS[way]]) / N_ROWS[way]
    assert log_loss(y[300:], model.predict_proba(X_NEW)) < -np.log(shares)[y[300:]].mean() + 0.05


# --- What is given ---


@both
def test_what_the_user_names_is_not_searched(way):
    model = classifier(kernel="matern32", scaling="standard").fit(*rows(way))
    assert isinstance(model.kernel_, Matern32)
    assert set(tried(model)) == {"standard"}
    np.testing.assert_allclose(model._encoding.sd, rows(way)[0].std(0, ddof=1), rtol=0.1)


@pytest.mark.parametrize("scaling", ["common", "quantile", "power", None])
def test_a_scaling_that_is_named_is_used(scaling):
    model = classifier(scaling=scaling).fit(*rows("ep"))
    assert list(tried(model)) == [str(scaling)]
    assert type(model._encoding).__name__ == {"common": "Standard", None: "Unscaled"}.get(scaling, "Monotone")


def test_auto_compares_standard_with_the_others():
    assert set(tried(classifier(scaling="auto").fit(*rows("ep")))) == {"common", "standard", "quantile"}


def test_features_of_different_ranges_have_no_common_scale():
    wide = X * np.where(np.arange(X.shape[1]) == 3, 100.0, 1.0)
    assert set(tried(classifier().fit(wide[:120], Y[:120]))) == {"default", "quantile"}


@both
def test_gaps_leave_two_scalings(way):
    known, labels = rows(way)
    model = classifier().fit(np.where(np.random.default_rng(0).random(known.shape) < 0.05, np.nan, known), labels)
    assert set(tried(model)) == {"default", "quantile"}
    assert loss(model) < 0.7 * FREQUENCIES


@both
@left_out
def test_tables_with_categories(way):
    losses = []
    for seed in range(0, 8, 2):  # a search on 40 rows is good luck or bad luck on a single table
        table, new = (mixed_table(n, seed=s, cities=8) for n, s in ((N_ROWS[way], seed), (300, seed + 1)))
        model = classifier().fit(table.drop(columns="label"), table["label"])
        p = model.predict_proba(new.drop(columns="label"))
        np.testing.assert_allclose(p.sum(1), 1.0, rtol=0, atol=1e-12)
        losses.append(log_loss(new["label"], p))
        assert set(tried(model)) == {"default", "quantile"}
    assert np.mean(losses) < 0.95 * np.log(3)


@both
def test_weights_are_copies(way):
    known, labels = rows(way)
    copies = np.concatenate([np.arange(len(known)), np.arange(20)])
    weight = np.bincount(copies).astype(float)
    a = classifier().fit(known[copies], labels[copies])
    b = classifier().fit(known, labels, sample_weight=weight)
    assert np.array_equal(a.predict_proba(X_NEW), b.predict_proba(X_NEW))


@both
@pytest.mark.parametrize("shared_from", [3, 4])
def test_many_classes_share_a_kernel(way, shared_from, monkeypatch):
    for module in (search, fit):
        monkeypatch.setattr(module, "SHARED_FROM", shared_from)
    model = classifier().fit(*rows(way))
    params = model.posterior_.prior.params
    assert {len(value) for value in params.values()} == {1 if shared_from == 3 else 3}
    assert loss(model) < 0.6 * FREQUENCIES


# --- Limits ---


@both
@pytest.mark.parametrize("seconds", [1e-9, 0.2])
def test_a_short_limit_leaves_a_model_that_beats_class_frequencies(way, seconds):
    assert loss(classifier(max_seconds=seconds).fit(*rows(way))) < FREQUENCIES


def test_a_search_that_was_cut_short_is_in_the_history():
    events = [record["event"] for record in classifier(max_seconds=1e-9).fit(*rows("ep")).history_]
    assert events.count(Event.TIME_LIMIT) == 1


def test_mini_batches_without_time_say_so():
    model = classifier(max_seconds=1e-9).fit(*rows("batches"))
    assert events(model, Event.TIME_LIMIT)
    assert len(tried(model)) == 1


@both
def test_a_stopped_fit_returns_a_model(way):
    stop = threading.Event()
    stop.set()
    model = classifier().fit(*rows(way), stop=stop)
    assert events(model, Event.STOPPED)
    assert len(tried(model)) == 1
    assert loss(model) < 2.0


# --- Sources ---


def test_a_source_of_few_rows_is_read_and_fitted_as_an_array(models):
    model = classifier().fit(Arrays(*rows("ep"), lanes=3))
    assert np.array_equal(model.predict_proba(X_NEW), models["ep"].predict_proba(X_NEW))


def test_a_source_is_searched_on_its_sample():
    model = classifier().fit(Arrays(*rows("batches"), lanes=3))
    assert set(tried(model)) == {"common", "default", "quantile"}
    assert [type(part) for part in model.kernel_.parts] == [RBF, Matern12]
    assert loss(model) < 0.7 * FREQUENCIES
    again = classifier().fit(Arrays(*rows("batches"), lanes=3))
    assert np.array_equal(model.predict_proba(X_NEW), again.predict_proba(X_NEW))


@pytest.mark.parametrize("scaling", ["common", "standard", None])
def test_a_source_is_scaled_as_an_array_is(scaling):
    """But for the rows held out."""
    source, array = (classifier(scaling=scaling).fit(*given) for given in ((Arrays(X, Y),), (X, Y)))
    assert type(source._encoding) is type(array._encoding)
    a, b = (model._encoding.transform(X_NEW) for model in (source, array))
    np.testing.assert_allclose(a, b, rtol=0, atol=0.3)
    assert list(tried(source)) == [str(scaling)]


@left_out
@pytest.mark.parametrize("cities", [8, 80])
def test_a_source_with_categories_larger_than_its_sample(cities, tmp_path, monkeypatch):
    """Levels that are rare in the sample are not rare in all rows: the search uses the encoding of all."""
    for module in (fit, fit_settings):
        for name in ("MOST_HELD_OUT", "LEAST_HELD_OUT"):
            monkeypatch.setattr(module, name, 50)
    monkeypatch.setattr(fit, "INDUCING_ROWS", 150)
    table, new = mixed_table(1000, cities=cities), mixed_table(300, seed=1, cities=cities)
    model = classifier().fit(CSV(write_csv(table, tmp_path / "rows"), target="label"))
    assert log_loss(new["label"], model.predict_proba(new.drop(columns="label"))) < 0.9 * np.log(3)


@left_out
def test_categories_do_not_count_for_the_common_scale_of_a_source(tmp_path):
    """Their numbers are names."""
    table = mixed_table(300).drop(columns="day").assign(weight=np.random.default_rng(0).standard_normal(300))
    source = CSV(write_csv(table, tmp_path / "rows"), target="label")
    found = classifier(scaling="common").fit(source)._encoding.scaler.sd
    expected = np.sqrt(np.mean(table[["size", "weight"]].std() ** 2))
    np.testing.assert_allclose(found, expected, rtol=0.1)


# --- Afterwards ---


@both
def test_what_comes_back_from_a_file_says_the_same(way, models, tmp_path):
    models[way].save(tmp_path / "m.cavity")
    back = cavity.load(tmp_path / "m.cavity")
    for other in (back, pickle.loads(pickle.dumps(models[way]))):
        assert np.array_equal(other.predict_proba(X_NEW), models[way].predict_proba(X_NEW))
        assert tried(other) == tried(models[way])
        assert other.sharpness_ == models[way].sharpness_


@both
def test_partial_fit_continues_from_it(way, models):
    model = deepcopy(models[way])
    before = loss(model)
    p = model.predict_proba(X_NEW)
    model.partial_fit(X_NEW, Y_NEW)
    assert loss(model) < before + 0.05
    assert not np.array_equal(model.predict_proba(X_NEW), p)


@both
def test_uncertainty_is_epistemic_where_no_row_is_near(way, models):
    near, far = models[way].uncertainty(X_NEW), models[way].uncertainty(X_NEW + 50.0 * X.std(0))
    assert far.epistemic.mean() > 2.0 * near.epistemic.mean()


def test_the_report_gives_no_advice_on_what_was_chosen(models):
    page = models["ep"].report(X_NEW, Y_NEW, train=rows("ep"))._repr_html_()
    assert "more than needed" not in page
    assert "had not converged" not in page


def test_a_watch_sees_mini_batches():
    seen = []
    classifier().fit(*rows("batches"), watch=Watch([1e-6], lambda model, seconds: seen.append(loss(model))))
    assert len(seen) == 1


@both
def test_progress_names_the_candidates(way, capfd):
    classifier(verbose=2).fit(*rows(way))
    shown = capfd.readouterr()
    for scaling in ("common", "default", "quantile"):
        assert scaling in shown.out + shown.err


# --- Too many features for a search ---


@pytest.fixture
def pictures(monkeypatch):
    """Rows of more features than a search takes, whose labels are clear."""
    for module in (fit_settings, many_features):
        monkeypatch.setattr(module, "MOST_SEARCHED", 20)
    monkeypatch.setattr(many_features, "STEPS", (60, 60))
    monkeypatch.setattr(many_features, "BATCH_SIZE", 40)
    monkeypatch.setattr(many_features, "N_INDUCING", N_INDUCING)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    return rng.uniform(0.0, 1.0, (400, 21)) + (np.arange(21) % 3 == y[:, None]), y


@pytest.mark.parametrize("give", [lambda X, y: (X, y), lambda X, y: (Arrays(X, y, lanes=2),)], ids=["array", "source"])
def test_clear_pictures_are_learned_by_vi(pictures, give, tmp_path):
    X, y = pictures
    model = classifier().fit(*give(X[:300], y[:300]))
    assert model.method_ == "vi"
    assert model.inducing_points_.shape == (3, N_INDUCING, 21)
    assert log_loss(y[300:], model.predict_proba(X[300:])) < 0.3
    model.save(tmp_path / "model.cavity")
    assert np.array_equal(cavity.load(tmp_path / "model.cavity").predict_proba(X), model.predict_proba(X))


def test_partial_fit_continues_from_vi(pictures):
    X, y = pictures
    model = classifier().fit(X[:300], y[:300])
    before = model.predict_proba(X)
    model.partial_fit(X[300:], y[300:])
    assert log_loss(y, model.predict_proba(X)) < log_loss(y, before) + 0.05
    assert not np.array_equal(model.predict_proba(X), before)


def test_noisy_pictures_are_learned_by_sep(pictures):
    X, y = pictures
    y = np.where(np.arange(400) % 5 < 2, y, np.random.default_rng(1).integers(0, 3, 400))
    assert classifier().fit(X[:300], y[:300]).method_ == "sep"
