"""The whole model: what goes in, what comes out, and what it says of itself."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cavity import __version__
from cavity.export import model as export
from cavity.export import to_onnx, write_onnx
from cavity.fitting.encoding import Standard, Unscaled, fit_scaler
from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import Prior
from cavity.kernels import RBF, Linear
from cavity.numerics.limits import rounding
from tests.models import held_out_scores

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

D = 4
X = np.random.default_rng(7).standard_normal((50, D)) * 3 + 1
SCALER = Standard(X.mean(0), X.std(0))


def random_posterior(n_classes=3, n_inducing=6, shared=False, kernel=None, seed=0, **changes):
    """Some q(u), not one that any data would lead to."""
    rng, kernel = np.random.default_rng(seed), RBF() if kernel is None else kernel
    own = 1 if shared else n_classes
    params = kernel.start(own, D, 2.0)
    params = {name: value + 0.3 * torch.from_numpy(rng.standard_normal(value.shape)) for name, value in params.items()}
    log_noise = torch.from_numpy(rng.uniform(-6, -2, own))
    Z = torch.from_numpy(rng.standard_normal((own, n_inducing, D)))
    R_inverse = torch.from_numpy(np.tril(0.5 * rng.standard_normal((n_classes, n_inducing, n_inducing))))
    m = torch.from_numpy(3 * rng.standard_normal((n_classes, n_inducing)))
    return Posterior(Prior(kernel, params, log_noise, Z, n_classes, **changes), Whitened(R_inverse, m))


def expected(posterior, X, scaler=SCALER):
    return np.exp(predict.log_probabilities(posterior, torch.from_numpy(scaler.transform(X))))


def session(model, level=None):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if level is not None:
        options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def probabilities(model, X):
    return session(model).run(["probabilities"], {"X": X})[0]


# --- Probabilities ---

POSTERIORS = {
    "of its own for each class": {},
    "shared": {"shared": True},
    "two classes": {"n_classes": 2},
    "many classes": {"n_classes": 30},
    "one inducing point, shared": {"n_inducing": 1, "shared": True},
    "sum, shared": {"kernel": RBF() + Linear(), "shared": True},
    "product, shared": {"kernel": RBF() * Linear(), "shared": True},
    "trained in single precision": {"dtype": torch.float32},
}


@pytest.mark.parametrize("changes", POSTERIORS.values(), ids=POSTERIORS.keys())
def test_probabilities_are_those_of_the_library(changes):
    posterior = random_posterior(**changes)
    p = probabilities(to_onnx(posterior, SCALER, np.arange(posterior.prior.n_classes)), X)
    np.testing.assert_allclose(p, expected(posterior, X), rtol=0, atol=1e-11)
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "changes", [{"sharpness": 2.5}, {"epsilon": 0.2}, {"sharpness": 0.3, "epsilon": 1e-3}], ids=str
)
def test_sharpness_and_random_labels_come_along(changes):
    plain = random_posterior()
    posterior = replace(plain, **changes)
    p = probabilities(to_onnx(posterior, SCALER, np.arange(3)), X)
    np.testing.assert_allclose(p, expected(posterior, X), rtol=0, atol=1e-11)
    assert np.abs(p - expected(plain, X)).max() > 1e-4


@pytest.mark.parametrize("n_rows", [0, 1, 50])
@pytest.mark.parametrize("allow_empty", [False, True])
@pytest.mark.parametrize("score", ["adaptive", "threshold"])
@pytest.mark.parametrize("conditional", [None, "class", "confidence"])
def test_prediction_sets_are_those_of_the_library(monkeypatch, conditional, score, allow_empty, n_rows):
    monkeypatch.setattr(export, "BLOCK_ELEMENTS", 64)  # several blocks
    posterior, X_new = random_posterior(), np.resize(X, (n_rows, D))
    held_out, log_p = held_out_scores(200), np.log(expected(posterior, X_new))
    for coverage in (0.3, 0.8, 0.95):
        rule = held_out.rule(coverage, 3, conditional, score, allow_empty)
        model = to_onnx(posterior, SCALER, np.arange(3), rule=rule)
        found = session(model).run(["set"], {"X": X_new})[0]
        np.testing.assert_array_equal(found, rule.sets(log_p))
    with_all = held_out.rule(1e-9, 3, conditional, score)._replace(least=np.array([-np.inf]), limits=np.empty(0))
    assert session(to_onnx(posterior, SCALER, np.arange(3), rule=with_all)).run(["set"], {"X": X_new})[0].all()


def test_scalings_come_along():
    posterior, rows = random_posterior(), np.random.default_rng(1).exponential(size=(200, D))
    for scaler in (Unscaled(), fit_scaler("quantile", rows, np.ones(200))):
        p = probabilities(to_onnx(posterior, scaler, np.arange(3)), X)
        np.testing.assert_allclose(p, expected(posterior, X, scaler), rtol=0, atol=1e-11)


def test_variances_have_the_same_floor():
    """At an inducing point that is there six times, trained in single precision: rounding is all that is left."""
    posterior = random_posterior(dtype=torch.float32)
    Z = posterior.prior.Z[:1, :1].expand(3, 6, D).clone()
    prior = Prior(RBF(), posterior.prior.params, torch.full((3,), -40.0, dtype=torch.float64), Z, 3, torch.float32)
    q = Whitened(1e-4 * posterior.whitened.R_inverse, 1e-3 * posterior.whitened.m)
    rows = prior.conditional(Z[0], in_double=True)
    assert torch.equal(rows.s, rounding(torch.float32) * (rows.blocks.diag + prior.noise[:, None]))
    p = probabilities(to_onnx(Posterior(prior, q), Unscaled(), np.arange(3)), Z[0].numpy())
    np.testing.assert_allclose(p, expected(Posterior(prior, q), Z[0].numpy(), Unscaled()), rtol=0, atol=1e-9)


def test_optimizations_change_nothing():
    """They may round a number to single precision on their way."""
    levels = onnxruntime.GraphOptimizationLevel
    for name in ("shared", "one inducing point, shared", "product, shared"):
        posterior = random_posterior(**POSTERIORS[name])
        model = to_onnx(posterior, SCALER, np.arange(posterior.prior.n_classes))
        plain, most = (
            session(model, at).run(None, {"X": X})[0] for at in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL)
        )
        np.testing.assert_allclose(most, plain, rtol=0, atol=1e-13)


def test_another_runtime_agrees():
    """The reference implementation of the standard, in NumPy."""
    from onnx.reference import ReferenceEvaluator

    posterior, rows = random_posterior(), np.concatenate([X, np.full((1, D), np.nan), np.full((1, D), np.inf)])
    with np.errstate(invalid="ignore"):
        p, label = ReferenceEvaluator(to_onnx(posterior, SCALER, np.arange(3))).run(None, {"X": rows})
    np.testing.assert_allclose(p[:-1], expected(posterior, rows[:-1]), rtol=0, atol=1e-11)
    np.testing.assert_array_equal(label[:-1], p[:-1].argmax(1))
    assert np.isnan(p[-1]).all()


# --- Rows ---


@pytest.mark.parametrize("n_rows", [0, 1, 6, 7, 8, 13, 14, 15, 50])
def test_any_number_of_rows(monkeypatch, n_rows):
    """Below, at and above the size of a block."""
    monkeypatch.setattr(export, "_block_rows", lambda posterior: 7)
    posterior = random_posterior()
    p, label = session(to_onnx(posterior, SCALER, np.arange(3))).run(None, {"X": X[:n_rows]})
    assert p.shape == (n_rows, 3)
    assert label.shape == (n_rows,)
    if n_rows:
        np.testing.assert_allclose(p, expected(posterior, X[:n_rows]), rtol=0, atol=1e-11)


def test_blocks_shrink_with_classes_and_inducing_points():
    sizes = [export._block_rows(random_posterior(c, m)) for c, m in ((3, 6), (30, 6), (30, 60), (100, 300))]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] * 3 * 40 <= export.BLOCK_ELEMENTS
    assert sizes[-1] == 16


SCALERS = [SCALER, Unscaled(), Unscaled(X.mean(0)), fit_scaler("quantile", X, np.ones(len(X)))]


@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: type(scaler).__name__)
def test_a_gap_is_filled_with_the_center(scaler):
    posterior, rows = random_posterior(), X[:5].copy()
    rows[1, 2] = rows[3] = np.nan
    p = probabilities(to_onnx(posterior, scaler, np.arange(3)), rows)
    np.testing.assert_allclose(p, expected(posterior, rows, scaler), rtol=0, atol=1e-11)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: type(scaler).__name__)
def test_a_row_with_infinity_gets_nan_and_no_other_row_does(scaler, bad):
    posterior, rows = random_posterior(), X[:5].copy()
    rows[1, 2] = bad
    p = probabilities(to_onnx(posterior, scaler, np.arange(3)), rows)
    assert np.isnan(p[1]).all()
    others = [0, 2, 3, 4]
    np.testing.assert_allclose(p[others], expected(posterior, rows[others], scaler), rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", [RBF(), RBF() + Linear()], ids=["RBF", "RBF + Linear"])
def test_rows_far_out(kernel):
    posterior = random_posterior(kernel=kernel)
    far = np.concatenate([factor * X[:12] for factor in (1e-6, 1e6, 1e12, 1e300)])
    p = probabilities(to_onnx(posterior, SCALER, np.arange(3)), far)
    np.testing.assert_allclose(p, expected(posterior, far), rtol=0, atol=1e-9)


# --- Labels and precision ---

LABELS = {
    "whole": (np.array([3, 5, -8]), [3, 5, -8], "value"),
    "bytes": (np.array([3, 5, 200], dtype=np.uint8), [3, 5, 200], "value"),
    "text": (np.array(["a", "é", "小"]), ["a", "é", "小"], "value"),
    "objects": (np.array(["a", "b", "c"], dtype=object), ["a", "b", "c"], "value"),
    "fractions": (np.array([0.0, 1.0, 2.5]), [0, 1, 2], "index"),
    "too large": (np.array([1, 2, 2**63 + 5], dtype=np.uint64), [0, 1, 2], "index"),
}


@pytest.mark.parametrize(("classes", "said", "what"), LABELS.values(), ids=LABELS.keys())
def test_labels(classes, said, what):
    ready = session(to_onnx(random_posterior(), SCALER, classes))
    p, label = ready.run(None, {"X": X})
    assert len(set(label.tolist())) == 3
    assert label.tolist() == [said[k] for k in p.argmax(1)]
    about = ready.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == classes.tolist()
    assert about["label"] == what


def test_truth_values_are_told_by_their_place():
    ready = session(to_onnx(random_posterior(2), SCALER, np.array([False, True])))
    p, label = ready.run(None, {"X": X})
    assert label.tolist() == p.argmax(1).tolist()
    assert ready.get_modelmeta().custom_metadata_map["classes"] == "[false, true]"


def test_single_precision_is_of_the_rows_and_the_result_alone():
    """What happens between is float64: the answer is that to the rounded rows, rounded."""
    posterior, rows = random_posterior(), X.astype(np.float32)
    p = probabilities(to_onnx(posterior, SCALER, np.arange(3), dtype="float32"), rows)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, expected(posterior, rows.astype(np.float64)), rtol=0, atol=6e-8)


# --- What it is made of ---


def test_it_says_who_made_it_and_of_what():
    model = to_onnx(random_posterior(), SCALER, ["x", "y", "z"], ["length", "width", "height", "weight"])
    about = session(model).get_modelmeta()
    assert (about.producer_name, model.producer_version) == ("cavity", __version__)
    assert json.loads(about.custom_metadata_map["feature_names"]) == ["length", "width", "height", "weight"]
    assert (
        "feature_names"
        not in session(to_onnx(random_posterior(), SCALER, [1, 2, 3])).get_modelmeta().custom_metadata_map
    )


def test_inputs_and_outputs_are_named_and_shaped():
    ready = session(to_onnx(random_posterior(), SCALER, ["x", "y", "z"]))
    assert [(i.name, i.type, i.shape) for i in ready.get_inputs()] == [("X", "tensor(double)", ["N", D])]
    assert [(o.name, o.type, o.shape) for o in ready.get_outputs()] == [
        ("probabilities", "tensor(double)", ["N", 3]),
        ("label", "tensor(string)", ["N"]),
    ]


def test_standard_operators_only():
    model = to_onnx(random_posterior(kernel=RBF() + Linear()), SCALER, [1, 2, 3])
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 15)]
    assert model.functions == []
    onnx.checker.check_model(onnx.load_from_string(model.SerializeToString()), full_check=True)


def test_the_same_model_is_the_same_file():
    first, second = (to_onnx(random_posterior(), SCALER, [1, 2, 3]) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


# --- Files ---


def test_a_file_holds_the_model(tmp_path):
    model = to_onnx(random_posterior(), SCALER, [1, 2, 3])
    path = tmp_path / "model.onnx"
    path.write_text("of yesterday")
    write_onnx(model, path)
    write_onnx(model, str(tmp_path / "another.onnx"))
    assert onnx.load(path) == onnx.load(tmp_path / "another.onnx") == model
    assert sorted(p.name for p in tmp_path.iterdir()) == ["another.onnx", "model.onnx"]


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_text("of yesterday")

    def torn(self, content):
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", torn)
    with pytest.raises(OSError, match="no space left"):
        write_onnx(to_onnx(random_posterior(), SCALER, [1, 2, 3]), path)
    assert path.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [path]


# --- Errors ---


def test_what_does_not_fit_together_is_refused():
    posterior = random_posterior()
    with pytest.raises(ValueError, match=r"classes must have shape \(3,\), got \(2,\)"):
        to_onnx(posterior, SCALER, [0, 1])
    with pytest.raises(ValueError, match="feature_names must have 4 names, got 1"):
        to_onnx(posterior, SCALER, [0, 1, 2], ["a"])
    with pytest.raises(ValueError, match=r"dtype must be .*, got 'float16'"):
        to_onnx(posterior, SCALER, [0, 1, 2], dtype="float16")


def test_a_model_too_large_for_a_file_is_refused(monkeypatch):
    monkeypatch.setattr(export, "MAX_FILE_SIZE", 1000)
    with pytest.raises(ValueError, match="fewer inducing points"):
        to_onnx(random_posterior(), SCALER, [0, 1, 2])


def test_without_onnx_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[onnx\]'"):
        to_onnx(random_posterior(), SCALER, [0, 1, 2])
