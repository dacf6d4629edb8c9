"""A fitted classifier as an ONNX model: the same probabilities, with onnxruntime and without this library."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.datasets import load, make_waveform
from cavity.kernels import RBF, Constant, Laplace, Linear, Matern12, Matern32, Matern52
from tests.searches import N_ROWS, make_small

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

TOLERANCE = 1e-9  # a thousandth of what is promised
BUNDLED = ("iris", "breast_cancer", "digits")
PAPER = ("glass", "new_thyroid", "satellite", "svmguide2", "vehicle", "vowel", "waveform", "wine")
KERNELS = {
    "Matern12": Matern12(),
    "Laplace": Laplace(),
    "Matern32": Matern32(),
    "Matern52": Matern52(),
    "Linear + Constant": Linear() + Constant(),
    "RBF * Matern32 + Linear": RBF() * Matern32() + Linear(),
}
has_data = pytest.mark.skipif("CAVITY_DATA" not in os.environ, reason="CAVITY_DATA names no data folder")


def fitted(X, y, method="auto", **changes):
    settings = {"n_inducing": 20, "max_epochs": 8, "calibrate": False, "random_state": 0, "device": "cpu"}
    return GPClassifier(method, **(settings | changes)).fit(X, y)


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def demanding(clf, X):
    """Rows as they come, rows far out, rows at inducing points, and every feature at its extremes, or beyond."""
    low, high = X.min(0), X.max(0)
    Z = clf.inducing_points_.reshape(-1, X.shape[1])[:50]
    return np.concatenate([X, 1e6 * X[:20], -1e6 * X[:5], 3 * X[:20], Z, [low, high, low - high, 2 * high - low]])


def assert_same(clf, X, tolerance=TOLERANCE):
    p, label = session(clf.to_onnx()).run(None, {"X": X})
    expected = clf.predict_proba(X)
    np.testing.assert_allclose(p, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(p.sum(1), 1, rtol=0, atol=1e-12)
    first, second = np.sort(expected, axis=1)[:, :-3:-1].T
    clear = first - second > 2 * tolerance
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(label[clear], clf.predict(X)[clear])


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets(name):
    data = load(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:400]
    clf = fitted(data.X[rows], data.y[rows])
    assert_same(clf, demanding(clf, data.X[:400]))


@has_data
@pytest.mark.parametrize("name", ["glass", "wine"])
def test_sets_of_the_paper(name):
    data = load(name)
    clf = fitted(data.X, data.y)
    assert_same(clf, demanding(clf, data.X))


@has_data
@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAPER, *BUNDLED])
def test_models_as_they_come(name):
    """All rows up to a thousand, calibrated, of the usual length; predicted for all rows there are."""
    data = load(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:1000]
    clf = fitted(data.X[rows], data.y[rows], n_inducing=50, max_epochs=60, calibrate="auto")
    assert clf.sharpness_ != 1.0
    assert_same(clf, demanding(clf, data.X))


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_every_method(method):
    data = load("iris")
    clf = fitted(data.X, data.y, method, max_epochs=3)
    assert (clf.posterior_.epsilon > 0) == (method == "vi")
    assert_same(clf, demanding(clf, data.X))


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel(name):
    """With one kernel for each class, and with one for all. A root of what should be zero is known to 1e-8 only."""
    data = load("iris")
    for shared in (False, True):
        clf = fitted(data.X, data.y, kernel=KERNELS[name], max_epochs=3, share_kernel=shared, share_inducing=shared)
        assert_same(clf, demanding(clf, data.X), 1e-6 if name == "Matern12" else TOLERANCE)


@pytest.mark.parametrize(
    "changes",
    [
        {"scaling": "quantile"},
        {"scaling": "common"},
        {"scaling": None},
        {"dtype": "float32"},
        {"calibrate": 2},
        {"batch_size": 50},
    ],
    ids=str,
)
def test_every_setting_that_predictions_depend_on(changes):
    data = load("iris")
    clf = fitted(data.X, data.y, **changes)
    assert (clf.sharpness_ != 1.0) == ("calibrate" in changes)
    assert_same(clf, demanding(clf, data.X))


@pytest.mark.parametrize("way", N_ROWS)
def test_what_a_search_has_found(way, monkeypatch):
    """A sum of kernels, with inducing points that all classes share and without noise, or as mini-batches learn it."""
    make_small(monkeypatch)
    X, y = make_waveform(400, random_state=0)
    clf = GPClassifier(random_state=0, device="cpu").fit(X[: N_ROWS[way]], y[: N_ROWS[way]])
    assert_same(clf, demanding(clf, X), 1e-6)


def test_an_ill_conditioned_kernel():
    """As many inducing points as rows, functions that hardly bend, next to no noise: rounding errors grow 10⁴-fold."""
    data = load("iris")
    fixed = {"kernel": RBF(lengthscale=30.0), "noise": 1e-10, "learn_kernel": False, "priors": None}
    clf = fitted(data.X, data.y, n_inducing=1.0, **fixed)
    assert_same(clf, demanding(clf, data.X), 1e-6)


def test_a_hundred_classes():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 5)), np.arange(300) % 100
    clf = fitted(X + y[:, None] / 10, y, "sep", max_epochs=2, n_inducing=5)
    assert_same(clf, demanding(clf, X))


def test_labels_are_those_of_the_classifier():
    data = load("iris")
    clf = fitted(data.X, np.array(data.class_names)[data.y], max_epochs=3)
    label = session(clf.to_onnx()).run(["label"], {"X": data.X})[0]
    np.testing.assert_array_equal(label, clf.predict(data.X))


def test_names_of_features_come_along():
    pandas = pytest.importorskip("pandas")
    data = load("iris")
    clf = fitted(pandas.DataFrame(data.X, columns=data.feature_names), data.y, max_epochs=3)
    about = session(clf.to_onnx()).get_modelmeta().custom_metadata_map
    assert json.loads(about["feature_names"]) == list(data.feature_names)
    assert json.loads(about["classes"]) == [0, 1, 2]


SINGLE_PROCESS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"cavity", "torch", "sklearn", "scipy", "onnx", "pandas", "pyarrow"}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Absent())
import numpy as np
import onnxruntime

given = dict(np.load(sys.argv[2]))
p, label = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, given)
np.save(sys.argv[3], p)
"""


def test_it_runs_where_this_library_is_not_installed(tmp_path):
    data = load("iris")
    clf = fitted(data.X, data.y)
    model, rows, found = (tmp_path / name for name in ("model.onnx", "X.npz", "p.npy"))
    clf.to_onnx(model)
    np.savez(rows, X=data.X)
    done = subprocess.run(
        [sys.executable, "-c", SINGLE_PROCESS, model, rows, found], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(found), clf.predict_proba(data.X), rtol=0, atol=TOLERANCE)
    blocked = subprocess.run(
        [sys.executable, "-c", SINGLE_PROCESS + "import cavity", model, rows, found], capture_output=True, text=True
    )
    assert "cavity is blocked" in blocked.stderr


def mixed_frame(pandas, n_rows, seed):
    """Numbers with gaps, text, truth values, an ordered category, dates, identifiers and many towns."""
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < 0.1, np.nan, rng.standard_normal(n_rows)),
            "color": rng.choice(["red", "green", "blue", *["new"] * seed], n_rows).astype(object),
            "flag": rng.random(n_rows) < 0.5,
            "grade": pandas.Categorical(rng.choice(["a", "b", "c"], n_rows), ["c", "b", "a", "unused"]),
            "when": pandas.Timestamp("1990-05-01") + pandas.to_timedelta(rng.integers(0, 10**9, n_rows), unit="s"),
            "id": [f"{seed}-{i}" for i in range(n_rows)],
            "town": [f"t{k}" for k in rng.integers(0, 90 + 9 * seed, n_rows)],
        }
    )
    for name in ("color", "grade", "when", "town"):
        frame.loc[rng.random(n_rows) < 0.1, name] = None
    return frame, np.nan_to_num(frame["size"]) + (frame["color"] == "red") + 0.3 * rng.standard_normal(n_rows) > 0.5


def frame_inputs(frame, columns):
    """The inputs of a frame, as docs/export.md makes them."""
    given = {}
    for column in (one for one in columns if "input" in one):
        values = frame[[column["name"]]]
        if column["kind"] == "category":
            values = values.astype(object).where(values.notna(), "").astype(str).to_numpy(str)
        elif column["kind"] == "date":
            values = values.apply(lambda dates: (dates - np.datetime64(0, "s")).dt.total_seconds())
        given[column["input"]] = np.asarray(values)
    return given


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_a_mixed_table_runs_where_nothing_else_is_installed(tmp_path, scaling):
    pandas = pytest.importorskip("pandas")
    frame, y = mixed_frame(pandas, 300, 0)
    with pytest.warns(match="'id'"):
        clf = fitted(frame, y, scaling=scaling)
    model, rows, found = (tmp_path / name for name in ("model.onnx", "X.npz", "p.npy"))
    columns = session(clf.to_onnx(model)).get_modelmeta().custom_metadata_map["columns"]
    new, _ = mixed_frame(pandas, 200, 1)
    given = frame_inputs(new, json.loads(columns))
    assert list(given) == ["size", "color", "flag", "grade", "when", "town"]
    np.savez(rows, **given)
    done = subprocess.run(
        [sys.executable, "-c", SINGLE_PROCESS, model, rows, found], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    expected = clf.predict_proba(new)
    np.testing.assert_allclose(np.load(found), expected, rtol=0, atol=TOLERANCE)
    assert expected.std(0).min() > 0.1
