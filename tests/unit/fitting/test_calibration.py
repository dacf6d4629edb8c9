"""Sharpness: the folds, the number found on rows held out, and what it does to a classifier."""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cavity import GPClassifier
from cavity.data import Arrays
from cavity.datasets import make_waveform
from cavity.fitting.calibration import LOG_BOUND, LOG_SD, HeldOut, best_sharpness, folds, predict_held_out, split_rows
from cavity.fitting.fit import Fit, TrainedModel
from cavity.fitting.rows import TrainingRows, draw_seed, merge_equal_rows
from cavity.fitting.settings import FOLDS, LARGEST_FRACTION
from cavity.gp import probabilities as predict
from cavity.inference.vi import EPSILON
from cavity.training.plan import TrainingError

# --- Folds ---


def labels(*counts, seed=0):
    """So many rows of each class, in random order."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_row_is_held_out_once_and_learned_from_otherwise(count):
    y = labels(20, 13, 9)
    parts = list(folds(y, count, 0))
    assert len(parts) == count
    held = np.concatenate([hold for _, hold in parts])
    assert sorted(held) == list(range(len(y)))
    for learn, hold in parts:
        assert sorted([*learn, *hold]) == list(range(len(y)))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_folds_are_of_one_size_and_classes_are_spread_evenly(count):
    y = labels(20, 13, 9)
    shares = np.array([np.bincount(y[hold], minlength=3) for _, hold in folds(y, count, 0)])
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert np.ptp(shares.sum(1)) <= 1


def test_a_class_that_would_have_no_row_left_is_not_held_out():
    y = np.array([0, 0, 0, 0, 1, 0, 0])
    held = Counter()
    for learn, hold in folds(y, 3, 0):
        assert set(y[hold]) <= set(y[learn])
        held.update(hold.tolist())
    assert held == {i: 1 for i in range(7) if i != 4}


def test_a_fold_that_holds_out_no_row_is_left_out():
    assert list(folds(np.arange(6), 3, 0)) == []
    y = np.array([0, 0, 0, 1, 2, 3, 4])
    parts = list(folds(y, 3, 0))
    assert all(len(hold) and set(y[hold]) <= {0} for _, hold in parts)
    assert sorted(np.concatenate([hold for _, hold in parts])) == [0, 1, 2]


def test_a_seed_fixes_the_folds():
    y = labels(20, 13, 9)
    a, b, other = ([hold.tolist() for _, hold in folds(y, 3, seed)] for seed in (5, 5, 6))
    assert a == b
    assert a != other


def test_rows_of_a_class_are_dealt_at_random():
    """Rows may come in an order that means something; neighbors must not share a fold always."""
    y = np.zeros(300, dtype=np.int64)
    fold = np.empty(300)
    for i, (_, hold) in enumerate(folds(y, 3, 0)):
        fold[hold] = i
    assert 0.2 < (fold[1:] == fold[:-1]).mean() < 0.47


def test_rows_of_a_group_are_in_one_fold():
    """Whatever their labels; every row is still held out once."""
    rng = np.random.default_rng(0)
    y, group = labels(40, 30, 20), rng.integers(0, 35, 90).astype(np.uint64)
    parts = list(folds(y, 3, 0, group))
    assert sorted(np.concatenate([hold for _, hold in parts])) == list(range(90))
    for learn, hold in parts:
        assert not set(group[learn]) & set(group[hold])
        assert 15 <= len(hold) <= 45


def test_groups_of_one_row_change_nothing():
    y = labels(20, 13, 9)
    group = np.random.default_rng(0).permutation(len(y)).astype(np.uint64)
    for (learn, hold), (a, b) in zip(folds(y, 3, 0, group), folds(y, 3, 0), strict=True):
        np.testing.assert_array_equal(learn, a)
        np.testing.assert_array_equal(hold, b)


# --- The best sharpness ---


def drawn(sharpness, n_rows, seed=0, epsilon=0.0, n_classes=3):
    """Moments of f, and labels drawn from the probabilities that the sharpness makes of them."""
    rng = np.random.default_rng(seed)
    mean = torch.from_numpy(1.5 * rng.standard_normal((n_classes, n_rows)))
    var = torch.from_numpy(rng.uniform(0.5, 2.0, (n_classes, n_rows)))
    p = torch.exp(predict.log_p_of(sharpness * mean, var, epsilon)).numpy()
    y = torch.from_numpy((p.cumsum(0) < rng.uniform(size=n_rows)).sum(0).clip(max=n_classes - 1))
    frequencies = torch.full((n_classes,), 1.0 / n_classes, dtype=torch.float64)
    return HeldOut(mean, var, y, torch.ones(n_rows, dtype=torch.float64), epsilon, frequencies)


def some(part, rows):
    return part._replace(mean=part.mean[:, rows], var=part.var[:, rows], y=part.y[rows], weight=part.weight[rows])


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("sharpness", [0.4, 1.0, 2.5])
def test_the_sharpness_that_labels_were_drawn_with_is_found(sharpness, epsilon):
    """From 4000 rows, to about three standard errors."""
    assert best_sharpness([drawn(sharpness, 4000, epsilon=epsilon)]) == pytest.approx(sharpness, rel=0.15)


def test_labels_that_are_random_anyway_must_not_be_put_down_to_dull_means():
    """Without ε in its likelihood the same rows ask for far less sharpness."""
    part = drawn(2.0, 2000, epsilon=0.2)
    assert best_sharpness([part]) > 1.5 * best_sharpness([part._replace(epsilon=0.0)])


def test_parts_count_together():
    part = drawn(1.7, 600)
    parts = [some(part, rows) for rows in (slice(0, 100), slice(100, 350), slice(350, 600))]
    assert best_sharpness(parts) == pytest.approx(best_sharpness([part]), rel=1e-9)


def test_weights_count_as_copies():
    part, weight = drawn(1.7, 120), torch.arange(120) % 3
    weighted = part._replace(weight=weight.double())
    copies = some(part, torch.arange(120).repeat_interleave(weight))
    assert best_sharpness([weighted]) == pytest.approx(best_sharpness([copies]), rel=1e-9)
    assert best_sharpness([weighted]) != pytest.approx(best_sharpness([part]), rel=1e-3)


def test_it_is_the_top_of_likelihood_times_prior():
    """No step of a coarse grid over all that is allowed is better, nor one of a fine grid around it."""
    part = drawn(1.7, 60)

    def log_joint(x):
        log_p = predict.log_p_of(np.exp(x) * part.mean, part.var, 0.0)[part.y, torch.arange(60)]
        return float(log_p.sum()) - 0.5 * (x / LOG_SD) ** 2

    found = np.log(best_sharpness([part]))
    grid = [*np.linspace(-LOG_BOUND, LOG_BOUND, 21), *(found + np.linspace(-0.02, 0.02, 9))]
    assert abs(max(grid, key=log_joint) - found) < 5e-3


def test_few_rows_say_little():
    """Always right with one row, or ten: the more of them, the further from 1."""
    right = [best_sharpness([some(p, p.mean.argmax(0) == p.y)]) for p in (drawn(3.0, 3, 1), drawn(3.0, 300, 1))]
    assert 1.0 < right[0] < right[1] < np.exp(LOG_BOUND)


def test_no_rows_leave_it_at_one():
    nothing = some(drawn(2.0, 5), slice(0, 0))
    assert best_sharpness([nothing]) == 1.0
    assert best_sharpness([]) == 1.0
    assert best_sharpness([drawn(2.0, 50)._replace(weight=torch.zeros(50, dtype=torch.float64))]) == 1.0


def test_no_gain_leaves_it_at_one(monkeypatch):
    """Means that are all equal say the same at any sharpness; and what is worse than 1 is not taken."""
    part = drawn(1.0, 50)
    assert best_sharpness([part._replace(mean=torch.zeros_like(part.mean))]) == 1.0

    class Astray:
        x, fun = 1.9, 1e9

    monkeypatch.setattr("scipy.optimize.minimize_scalar", lambda *args, **kwargs: Astray)
    assert best_sharpness([part]) == 1.0


def test_held_out_rows_are_described_by_the_model(fitted):
    """Means, variances and ε are those that predictions are made of; labels and weights come along."""
    model, X, y = fitted
    weight = np.linspace(0.5, 2.0, 20)
    rows = TrainingRows(X[:20], y[:20], weight)
    found = predict_held_out(model.posterior_, model._encoding, rows, np.array([1.0, 2.0, 5.0]))
    assert found.frequencies.tolist() == [0.125, 0.25, 0.625]
    for part, expected in zip((found.mean, found.var), model.latent(X[:20]), strict=True):
        np.testing.assert_array_equal(part.mT, expected)
    assert (found.y.tolist(), found.epsilon) == (y[:20].tolist(), 0.0)
    np.testing.assert_array_equal(found.weight, weight)


# --- The classifier ---


def classifier(method="ep", **changes):
    settings = {"n_inducing": 6, "max_epochs": 15, "random_state": 0, "device": "cpu"}
    return GPClassifier(method, **(settings | changes))


X_NEW, Y_NEW = make_waveform(400, random_state=1)


@pytest.fixture(scope="module")
def rows():
    return make_waveform(90, random_state=0)


@pytest.fixture(scope="module")
def fitted(rows):
    X, y = rows
    model = classifier().fit(X, y)
    assert model.sharpness_ != 1.0
    return model, X, y


def test_calibration_is_on_where_all_rows_are_used_at_once(fitted):
    model, X, y = fitted
    for same in (True, FOLDS):
        assert classifier(calibrate=same).fit(X, y).sharpness_ == model.sharpness_
    assert classifier(calibrate=2).fit(X, y).sharpness_ not in (1.0, model.sharpness_)


@pytest.mark.filterwarnings("ignore:.* has not converged:cavity.runtime.warnings.CavityWarning")
@pytest.mark.parametrize("changes", [{"calibrate": False}, {"learn_kernel": False, "learn_inducing": False}],
                         ids=["off", "nothing learned"])  # fmt: skip
def test_where_it_is_off_sharpness_is_one(rows, changes):
    model = classifier(**changes).fit(*rows)
    assert model.sharpness_ == model.posterior_.sharpness == 1.0


@pytest.mark.filterwarnings("ignore:.* has not converged:cavity.runtime.warnings.CavityWarning")
@pytest.mark.parametrize("changes", [{"batch_size": 30}, {"learn_kernel": False, "learn_inducing": False}],
                         ids=["batches", "nothing learned"])  # fmt: skip
def test_those_who_ask_for_it_get_it(rows, changes):
    assert classifier(calibrate=True, **changes).fit(*rows).sharpness_ != 1.0


def test_batches_do_without_the_rows_that_they_are_calibrated_on(rows):
    """The fit is that of the other rows alone, and the sharpness the best for those held out."""
    X, y = rows
    model = classifier(batch_size=30).fit(X, y)
    count = len(X) // LARGEST_FRACTION
    merged = merge_equal_rows(TrainingRows(X, np.searchsorted(model.classes_, y), np.ones(len(X))))
    learn, hold = next(folds(merged.y, -(-len(merged.y) // count), draw_seed(0)))
    rest = classifier(batch_size=30, calibrate=False, max_epochs=model.n_iter_, tol=0.0)
    rest.fit(merged.X[learn], model.classes_[merged.y[learn]])
    np.testing.assert_allclose(model.noise_, rest.noise_, rtol=1e-9)
    part = predict_held_out(rest.posterior_, rest._encoding, merged.take(hold), np.ones(3))
    assert model.sharpness_ == pytest.approx(best_sharpness([part]), rel=1e-6)


def test_only_the_sharpness_differs(fitted):
    """The model itself is that of all rows, whatever the folds."""
    model, X, y = fitted
    plain = classifier(calibrate=False).fit(X, y)
    np.testing.assert_array_equal(model.posterior_.mean, plain.posterior_.mean)
    np.testing.assert_array_equal(model.posterior_.cov, plain.posterior_.cov)
    assert model.log_marginal_likelihood_ == plain.log_marginal_likelihood_
    assert model.posterior_.sharpness == model.sharpness_
    for found, expected in zip(model.latent(X_NEW), plain.latent(X_NEW), strict=True):
        np.testing.assert_array_equal(found, expected)  # f is what it is; probabilities are made sharper


def test_probabilities_are_those_of_sharper_means(fitted):
    model, *_ = fitted
    mean, var = (torch.from_numpy(part.T) for part in model.latent(X_NEW))
    expected = predict.log_p_of(model.sharpness_ * mean, var, 0.0).mT
    np.testing.assert_allclose(model.predict_log_proba(X_NEW), expected, rtol=0, atol=1e-12)


def test_calibrated_probabilities_sum_to_one_whatever_rows_come_together(fitted):
    p = fitted[0].predict_proba(X_NEW)
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)
    for size in (1, 7):
        parts = [fitted[0].predict_proba(X_NEW[i : i + size]) for i in range(0, 10 * size, size)]
        np.testing.assert_allclose(np.concatenate(parts), p[: 10 * size], rtol=0, atol=1e-10)


def test_uncertainty_is_of_the_calibrated_probabilities(fitted):
    model, *_ = fitted
    found, log_p = model.uncertainty(X_NEW[:30]), model.predict_log_proba(X_NEW[:30])
    np.testing.assert_allclose(found.total, -(np.exp(log_p) * log_p).sum(1), rtol=1e-10)
    assert (found.aleatoric >= 0).all()
    assert (found.aleatoric <= found.total).all()


@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_the_order_of_the_classes_is_kept_in_most_rows(fitted, sharpness):
    """Between two classes in every row, where their variances are equal; elsewhere in most."""
    q, X = fitted[0].posterior_, torch.from_numpy(fitted[0]._encoding.transform(X_NEW))
    before, after = (predict.log_probabilities(replace(q, sharpness=c), X) for c in (1.0, sharpness))
    assert (before.argmax(1) == after.argmax(1)).mean() > 0.98
    surer = np.exp(after.max(1)) > np.exp(before.max(1))
    assert (surer == (sharpness > 1)).mean() > 0.95


def nll(model):
    return -model.predict_log_proba(X_NEW)[np.arange(len(Y_NEW)), Y_NEW].mean()


def test_calibration_helps_where_the_model_is_timid(rows):
    """A noise that is far too large, and may not be learned, drowns f."""
    settings = {"noise": 30.0, "learn_kernel": False, "n_inducing": 15}
    off, on = (classifier(calibrate=c, **settings).fit(*rows) for c in (False, True))
    assert on.sharpness_ > 1.5
    assert nll(on) < nll(off) - 0.05


def test_vi_is_over_confident_where_classes_overlap():
    X, y = make_waveform(200, random_state=0)
    model = classifier("vi", n_inducing=10, max_epochs=60).fit(X, y)
    assert model.posterior_.epsilon == EPSILON
    assert model.sharpness_ < 0.95
    calibrated = nll(model)
    model.posterior_ = replace(model.posterior_, sharpness=1.0)
    assert calibrated < nll(model)


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_copies_equal_weights(rows, method):
    X, y = rows
    weight = np.arange(len(X)) % 3 + 1
    weighted = classifier(method).fit(X, y, sample_weight=weight)
    copies = classifier(method).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.sharpness_ == pytest.approx(copies.sharpness_, rel=1e-9)
    np.testing.assert_allclose(weighted.predict_proba(X_NEW), copies.predict_proba(X_NEW), rtol=0, atol=1e-10)


def test_a_copy_of_a_row_is_never_held_out_while_the_other_is_learned_from(rows, monkeypatch):
    """Else the model would be judged by rows that it knows."""
    X, y = rows
    dealt = []
    monkeypatch.setattr("cavity.fitting.calibration.folds", lambda y, *args: dealt.append(len(y)) or folds(y, *args))
    classifier(max_epochs=1).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    assert dealt == [len(X)]


def sides(monkeypatch):
    """The rows that each fit learns from, and those that its model is calibrated on."""
    train, predict_rows, found = Fit._train, TrainedModel.predict, []

    def watched(self, load, sample, *args):
        data = load(torch.float64)
        batches = list(data.in_order(100))
        found.append([torch.cat([batch.X for batch in batches]).numpy(), None])
        return train(self, load, sample, *args)

    def held(self, rows):
        found[-1][1] = self.encoding.transform(rows.X)
        return predict_rows(self, rows)

    monkeypatch.setattr(Fit, "_train", watched)
    monkeypatch.setattr(TrainedModel, "predict", held)
    return found


@pytest.mark.parametrize("way", ["folds", "batches", "unmerged", "source"])
def test_copies_of_a_row_are_on_one_side(way, monkeypatch):
    """Also where rows are too many to be merged, where copies have different labels, and in sources."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((150, 2))[rng.integers(0, 150, 600)], rng.integers(0, 2, 600)
    X[::7, 0] *= -1.0
    X[:40] = 0.0
    X[:20] = -0.0
    found = sides(monkeypatch)
    if way == "unmerged":
        monkeypatch.setattr("cavity.fitting.rows.MERGE_ROWS", 100)
    settings = {} if way == "folds" else {"batch_size": 50}
    rows = (Arrays(X, y, lanes=3), None) if way == "source" else (X, y)
    classifier("sep", max_epochs=1, **settings).fit(*rows)
    judged = [(learn, hold) for learn, hold in found if hold is not None]
    assert len(judged) == (FOLDS if way == "folds" else 1)
    for learn, hold in judged:
        assert len(hold) > 10
        assert not set(map(bytes, learn + 0.0)) & set(map(bytes, hold + 0.0))


def test_a_row_with_very_many_copies_stays_in_the_training(monkeypatch):
    """Held out, it would take most of the rows away."""
    X, y = np.random.default_rng(0).standard_normal((1000, 2)), np.arange(1000) % 2
    X[:700] = 1.0
    found = sides(monkeypatch)
    monkeypatch.setattr("cavity.fitting.rows.MERGE_ROWS", 100)
    for rows in ((X, y), (Arrays(X, y, lanes=3), None)):
        for seed in range(3):
            classifier("sep", max_epochs=1, batch_size=50, random_state=seed).fit(*rows)
    assert len(found) == 6
    for learn, hold in found:
        assert len(learn) >= 700
        assert len(hold) >= 30


def test_pickles_and_clones_predict_the_same_bits(fitted):
    model, X, y = fitted
    for again in (pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        assert again.sharpness_ == again.posterior_.sharpness == model.sharpness_
        np.testing.assert_array_equal(again.predict_proba(X_NEW), model.predict_proba(X_NEW))


def test_q_on_another_device_is_as_sharp(fitted):
    assert fitted[0].posterior_.to(torch.device("cpu")).sharpness == fitted[0].sharpness_


def test_a_fold_that_cannot_be_trained_leaves_sharpness_at_one_and_a_note(rows, monkeypatch):
    train, calls = Fit._train_rows, []

    def broken(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise TrainingError("made to fail")
        return train(self, *args, **kwargs)

    monkeypatch.setattr(Fit, "_train_rows", broken)
    model = classifier().fit(*rows)
    assert model.sharpness_ == 1.0
    assert len(calls) == 3
    assert (model.history_[-1]["event"], model.history_[-1]["reason"]) == ("calibration_failed", "made to fail")
    assert model.history_[-1]["objective"] is None
    assert model.history_[-1]["epoch"] == model.n_iter_ == 15
    assert [record["event"] for record in model.history_[:-1]] == [None] * 15


def test_errors_of_the_program_itself_are_not_swallowed(rows, monkeypatch):
    def broken(*args):
        raise KeyError("ours")

    monkeypatch.setattr("cavity.fitting.fit.predict_held_out", broken)
    with pytest.raises(KeyError, match="ours"):
        classifier(max_epochs=1).fit(*rows)


def test_rows_may_be_too_few_to_hold_any_out():
    X, y = make_waveform(2 * FOLDS - 1, random_state=3)
    y[:2] = 0, 1
    assert classifier(max_epochs=3, calibrate=True).fit(X, y).sharpness_ == 1.0


@pytest.mark.parametrize(
    "y", [[0, 0, 0, 0, 0, 1], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3, 4]], ids=["one", "all", "four"]
)
@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_classes_of_a_single_row(method, y):
    """A fold without them has nothing to learn of them, or nothing to hold out at all."""
    X = np.random.default_rng(0).standard_normal((len(y), 2))
    model = classifier(method, max_epochs=3).fit(X, y)
    assert 0.1 < model.sharpness_ < 10
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, rtol=0, atol=1e-12)


def test_the_folds_get_the_scaling_that_was_chosen(rows, monkeypatch):
    """And no row held out has a say in its numbers."""
    train, seen = Fit._train_rows, []

    def watched(self, rows, scaling, *args, **kwargs):
        seen.append((len(rows.X), scaling))
        return train(self, rows, scaling, *args, **kwargs)

    monkeypatch.setattr(Fit, "_train_rows", watched)
    classifier(scaling="quantile", max_epochs=1).fit(*rows)
    assert seen == [(90, "quantile")] + [(60, "quantile")] * FOLDS


def test_time_is_shared_among_the_fits(rows):
    """Four fits of a quarter each."""
    model = classifier(max_seconds=0.4, max_epochs=100_000, tol=0.0, calibrate=3).fit(*rows)
    assert 0.1 <= model.history_[-1]["seconds"] < 0.35


def test_a_bar_says_that_calibration_follows(rows, capfd):
    classifier(max_epochs=2, verbose=1).fit(*rows)
    assert "calibration by 3 more fits" in capfd.readouterr().err


@pytest.mark.parametrize("value", [0, 1, -3, 2.5, "yes", None])
def test_what_calibrate_may_not_be_is_named(rows, value):
    with pytest.raises(ValueError, match=r"calibrate must be"):
        classifier(calibrate=value).fit(*rows)


def test_a_stream_keeps_the_sharpness_of_its_fit(rows):
    X, y = rows
    model = classifier("auto").fit(X[:60], y[:60])
    sharpness = model.sharpness_
    assert sharpness != 1.0
    model.partial_fit(X[60:], y[60:])
    assert model.sharpness_ == model.posterior_.sharpness == sharpness
    assert classifier("auto").partial_fit(X, y, classes=[0, 1, 2]).sharpness_ == 1.0


def test_the_paper_knows_no_calibration(rows):
    assert GPClassifier.paper("ep", n_inducing=5, max_epochs=3, device="cpu").fit(*rows).sharpness_ == 1.0


def test_where_every_row_is_the_only_one_of_its_class_none_is_held_out():
    X, y = np.arange(12.0)[:, None], np.arange(12)
    assert classifier(batch_size=5, max_epochs=2).fit(X, y).sharpness_ == 1.0


# --- Natural copies ---


def test_the_copies_of_a_row_are_divided_where_they_are_natural():
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 2.0, 7.0, 0.4, 31.0, 2.6, 1.0, 300.0])
    rows = TrainingRows(np.arange(8.0)[:, None], np.array([0, 0, 0, 1, 1, 1, 2, 0]), weight)
    parts = list(split_rows(rows, 3, seed=1, has_natural_copies=True))
    assert len(parts) == 3
    held = np.zeros(8)
    for learn, hold in parts:
        whole = np.zeros(8)
        for side in (learn, hold):
            assert (side.weight > 0).all()
            np.testing.assert_array_equal(rows.y[side.X[:, 0].astype(int)], side.y)
            np.add.at(whole, side.X[:, 0].astype(int), side.weight)
        np.testing.assert_allclose(whole, weight, rtol=1e-12)  # nothing is lost
        assert set(learn.y) == {0, 1, 2}  # a class of one row is not held out
        np.add.at(held, hold.X[:, 0].astype(int), hold.weight)
    np.testing.assert_allclose(held[[1, 2, 3, 4, 5, 7]], weight[[1, 2, 3, 4, 5, 7]], rtol=1e-12)
    assert held[6] == 0.0
    assert held[7] == pytest.approx(300.0)
    repeated = rows.take(rng.permutation(8))
    assert {len(hold.y) for _, hold in split_rows(repeated, 3, seed=1, has_natural_copies=True)} <= set(range(3, 9))


def test_a_category_alone_is_not_judged_by_levels_that_it_has_not_seen():
    """Each level held out with all its rows would make the model seem useless, and its probabilities flat."""
    rng = np.random.default_rng(0)
    level, y_of = rng.integers(0, 15, 400), np.arange(15) % 2
    y = np.where(rng.random(400) < 0.9, y_of[level], 1 - y_of[level])
    settings = {"n_inducing": 15, "max_epochs": 40, "learning_rate": 0.1, "device": "cpu", "random_state": 0}
    X = np.array([f"l{k}" for k in level], dtype=object)[:, None]
    clf = GPClassifier(**settings).fit(X, y)
    p = clf.predict_proba(np.array([[f"l{k}"] for k in range(15)], dtype=object))
    assert clf.sharpness_ > 0.7
    assert np.abs(p[np.arange(15), y_of] - 0.9).mean() < 0.07
    weighted, counts = np.unique(np.column_stack([level, y]), axis=0, return_counts=True)
    X = np.array([f"l{k}" for k in weighted[:, 0]], dtype=object)[:, None]
    same = GPClassifier(**settings).fit(X, weighted[:, 1], sample_weight=counts)  # weights are copies
    assert same.sharpness_ == clf.sharpness_
