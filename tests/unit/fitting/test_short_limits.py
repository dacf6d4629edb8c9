"""Fits that `max_seconds` cuts short: calibrated all the same, and no worse than class frequencies."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import cavity
from cavity import GPClassifier
from cavity.data import Arrays
from cavity.datasets import make_waveform
from cavity.fitting.calibration import LARGEST_SHRINKAGE, Calibration, HeldOut, calibrate
from cavity.fitting.fit import Fit
from cavity.gp import probabilities
from cavity.gp.probabilities import log_p_of
from cavity.inference.vi import EPSILON
from cavity.training import Event, describe

FREQUENCIES = np.array([0.85, 0.1, 0.05])
AT_ONCE = 1e-9  # seconds: over before the first step ends, on any machine


def noise(n_rows, seed):
    """Labels of very different frequencies that have nothing to do with the rows."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_rows, 4)), rng.choice(3, n_rows, p=FREQUENCIES)


X, Y = noise(400, 0)
X_NEW, Y_NEW = noise(4000, 1)


def classifier(method="auto", **changes):
    settings = {"n_inducing": 20, "random_state": 0, "device": "cpu", "max_seconds": AT_ONCE}
    return GPClassifier(method, **(settings | changes))


def nll(log_p, y):
    return -log_p[np.arange(len(y)), y].mean()


def events(model):
    return [record["event"] for record in model.history_ if record["event"] is not None]


WAYS = {
    "ep": {}, "sep": {"method": "sep"}, "gfitc": {"method": "gfitc"}, "vi": {"method": "vi"},
    "outer": {"updates": "outer"}, "batches": {"batch_size": 50}, "ep in batches": {"method": "ep", "batch_size": 50},
    "vi in batches": {"method": "vi", "batch_size": 50},
}  # fmt: skip


@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
def test_a_fit_without_time_is_no_worse_than_class_frequencies(changes):
    """With noise for rows there is nothing better; new rows differ from those held out by chance alone."""
    model = classifier(**changes).fit(X, Y)
    log_p = model.predict_log_proba(X_NEW)
    assert nll(log_p, Y_NEW) < nll(np.log(np.bincount(Y) / len(Y))[None].repeat(len(Y_NEW), 0), Y_NEW) + 0.02
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1.0, rtol=0, atol=1e-12)
    assert Event.TIME_LIMIT in events(model)


def test_a_source_too():
    model = classifier(batch_size=50).fit(Arrays(X, Y, lanes=2))
    assert nll(model.predict_log_proba(X_NEW), Y_NEW) < -(FREQUENCIES * np.log(FREQUENCIES)).sum() + 0.03


@pytest.mark.parametrize("batch_size", [None, 50])
def test_calibration_happens_whatever_the_limit(batch_size):
    X, y = make_waveform(200, random_state=0)
    model = classifier(batch_size=batch_size).fit(X, y)
    assert model.sharpness_ != 1.0
    assert events(model) == [Event.TIME_LIMIT]
    assert model.n_iter_ == 1


def test_folds_learn_as_long_as_the_model(monkeypatch):
    """Else they say nothing about it."""
    train, plans = Fit._train_rows, []

    def watched(self, *args):
        plans.append(self.plan.training)
        return train(self, *args)

    monkeypatch.setattr(Fit, "_train_rows", watched)
    model = classifier(max_epochs=77).fit(X, Y)
    assert [(plan.min_epochs, plan.max_epochs) for plan in plans] == [(1, 77)] + [(model.n_iter_, model.n_iter_)] * 3
    assert [plan.final_sweeps for plan in plans] == [50] + [50 - model.n_iter_] * 3
    plans.clear()
    classifier(max_seconds=None, max_epochs=2).fit(X, Y)
    assert [(plan.min_epochs, plan.max_epochs, plan.final_sweeps) for plan in plans] == [(1, 2, 50)] * 4


# --- Shrinkage ---


def held_out(n_rows=300, scale=5.0, epsilon=0.0, seed=0):
    """Confident predictions that have nothing to do with the labels."""
    rng = np.random.default_rng(seed)
    mean, var = torch.from_numpy(scale * rng.standard_normal((3, n_rows))), torch.ones(3, n_rows, dtype=torch.float64)
    y = torch.from_numpy(rng.choice(3, n_rows, p=FREQUENCIES))
    return HeldOut(mean, var, y, torch.ones(n_rows, dtype=torch.float64), epsilon, torch.from_numpy(FREQUENCIES))


def held_out_nll(found, part):
    q = found.apply(replace(POSTERIOR, epsilon=part.epsilon), FREQUENCIES)
    log_p = log_p_of(found.sharpness * part.mean, part.var, q.epsilon)
    return -float(log_p.gather(0, part.y[None]).sum())


POSTERIOR = GPClassifier(n_inducing=4, max_epochs=1, calibrate=False, device="cpu").fit(X[:50], Y[:50]).posterior_


@pytest.mark.parametrize("epsilon", [0.0, EPSILON])
@pytest.mark.parametrize("scale", [0.0, 0.3, 5.0, 500.0])
def test_held_out_labels_are_as_likely_as_by_frequencies_at_least(scale, epsilon):
    part = held_out(scale=scale, epsilon=epsilon)
    found = calibrate([part])
    by_frequencies = -float(torch.log(part.frequencies)[part.y].sum())
    assert found.shrinkage > 0.5
    assert held_out_nll(found, part) <= by_frequencies + 1e-3
    assert held_out_nll(Calibration(found.sharpness), part) > by_frequencies


def test_predictions_that_are_better_than_frequencies_are_left_alone():
    part = held_out()
    part = part._replace(mean=part.mean + 10.0 * (torch.arange(3)[:, None] == part.y))
    assert calibrate([part]).shrinkage == 0.0
    assert calibrate([]) == Calibration(1.0, 0.0)
    found = Calibration(2.0).apply(POSTERIOR, FREQUENCIES)
    assert (found.sharpness, found.epsilon) == (2.0, 0.0)


def test_a_model_that_was_cut_short_must_be_better_by_more_than_chance():
    """Better on twelve rows proves nothing; on 300 it does. The copies of a row count as one."""
    part = held_out()
    part = part._replace(mean=part.mean + 10.0 * (torch.arange(3)[:, None] == part.y))
    rows = torch.arange(12)
    few = part._replace(mean=part.mean[:, rows], var=part.var[:, rows], y=part.y[rows], weight=part.weight[rows])
    assert [calibrate([few], z).shrinkage > 0.0 for z in (0.0, 2.0)] == [False, True]
    assert [calibrate([part], z).shrinkage > 0.0 for z in (0.0, 2.0)] == [False, False]
    copies = few._replace(weight=torch.full((12,), 25.0, dtype=torch.float64))
    assert calibrate([copies], 2.0).shrinkage > 0.0


def test_a_class_without_rows_keeps_its_small_probability():
    q = Calibration(1.0, 0.5).apply(POSTERIOR, np.array([3.0, 1.0, 0.0]))
    assert q.epsilon.tolist() == [0.375, 0.125, 0.0]
    log_p = probabilities.log_probabilities(q, torch.from_numpy(X_NEW[:20]))
    assert np.isfinite(log_p).all()
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1.0, rtol=0, atol=1e-12)


# --- A model with shrinkage ---


@pytest.fixture(scope="module")
def shrunk():
    model = classifier().fit(X, Y)
    assert events(model) == [Event.TIME_LIMIT, Event.SHRUNK]
    assert 0.0 < float(model.posterior_.epsilon.sum()) <= LARGEST_SHRINKAGE
    return model


def test_the_history_says_how_far(shrunk):
    weight = shrunk.history_[-1]["weight"]
    expected = f"no better than class frequencies on held-out rows: probabilities shrunk {weight:.0%} towards them"
    assert describe(shrunk.history_[-1]) == expected
    assert float(shrunk.posterior_.epsilon.sum()) == pytest.approx(weight)


def test_probabilities_are_mixed_with_frequencies(shrunk):
    w = shrunk.history_[-1]["weight"]
    mean, var = (torch.from_numpy(part.T) for part in shrunk.latent(X_NEW[:50]))
    expected = (1 - w) * log_p_of(shrunk.sharpness_ * mean, var, 0.0).exp().mT.numpy() + w * np.bincount(Y) / len(Y)
    np.testing.assert_allclose(shrunk.predict_proba(X_NEW[:50]), expected, rtol=0, atol=1e-12)


def test_a_file_and_a_pickle_predict_the_same_bits(shrunk, tmp_path):
    shrunk.save(tmp_path / "m.cavity")
    for again in (cavity.load(tmp_path / "m.cavity", device="cpu"), pickle.loads(pickle.dumps(shrunk))):
        np.testing.assert_array_equal(again.predict_proba(X_NEW), shrunk.predict_proba(X_NEW))
        assert torch.equal(again.posterior_.epsilon, shrunk.posterior_.epsilon)


def test_uncertainty_adds_up(shrunk):
    found, log_p = shrunk.uncertainty(X_NEW[:30]), shrunk.predict_log_proba(X_NEW[:30])
    np.testing.assert_allclose(found.total, -(np.exp(log_p) * log_p).sum(1), rtol=1e-10)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.total, rtol=1e-12)
    assert (found.epistemic >= 0).all()


def test_onnx_predicts_the_same(shrunk, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    shrunk.to_onnx(tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: X_NEW[:200]}
    found = next(out for out in session.run(None, given) if out.ndim == 2)
    np.testing.assert_allclose(found, shrunk.predict_proba(X_NEW[:200]), rtol=0, atol=1e-6)


def test_a_stream_keeps_it(shrunk):
    model = pickle.loads(pickle.dumps(shrunk)).partial_fit(X_NEW[:50], Y_NEW[:50])
    assert torch.equal(model.posterior_.epsilon, shrunk.posterior_.epsilon)


def test_it_moves_with_q(shrunk):
    assert shrunk.posterior_.to(torch.device("meta")).epsilon.device.type == "meta"


def test_an_ordinary_fit_is_not_shrunk():
    X, y = make_waveform(100, random_state=0)
    model = classifier(max_seconds=None, max_epochs=10).fit(X, y)
    assert model.posterior_.epsilon == 0.0
    assert events(model) == []
