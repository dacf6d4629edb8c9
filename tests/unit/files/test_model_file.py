"""Model files: what is saved comes back, predicts the same bits, and is on the disk as a whole or not at all."""

import errno
import json
import math
import os
from dataclasses import replace
from datetime import datetime, time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_iris

from cavity import GPClassifier
from cavity.data.schema import MAX_LEVELS, Schema, find_schema
from cavity.files import tensor_file as tensorfile
from cavity.files.model_file import ModelFileError, _parameter_axes, read, write
from cavity.fitting.encoding import Standard, Unscaled, fit_encoding
from cavity.gp.gaussian import Whitened
from cavity.kernels import RBF, Constant, Grouped, Laplace, Linear, Matern12, Matern32, Matern52
from tests.models import X_NEW, log_p, mixed_model, mixed_table, model, posterior, quantile, run, said

REFERENCE = Path(__file__).parents[2] / "reference"


def there_and_back(tmp_path, given):
    write(tmp_path / "model.cavity", given)
    return read(tmp_path / "model.cavity")


# --- What goes in comes out ---


def test_everything_comes_back_to_the_bit(tmp_path):
    given = model()
    found = there_and_back(tmp_path, given)
    assert said(found) == said(given)
    assert found.params["class_weight"] == {"a": 1, "bb": 0.1}
    assert found.params["priors"] == {"lengthscale": (None, 2.0, math.inf)}
    assert os.listdir(tmp_path) == ["model.cavity"]


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        Matern12(2.0),
        Matern32(),
        Matern52(np.ones(2)),
        Linear() + Constant(),
        RBF() * (Linear() + Matern32()),
        Laplace(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_every_kernel_predicts_the_same_bits(tmp_path, kernel, shared):
    given = model(posterior=posterior(kernel, shared))
    found = there_and_back(tmp_path, given)
    assert said(found) == said(given)
    np.testing.assert_array_equal(log_p(found), log_p(given))


@pytest.mark.parametrize(
    "scaler", [Standard(np.array([1e-300, 1e300]), np.array([1e-300, 1e300])), quantile(), Unscaled()], ids=repr
)
def test_every_scaler_comes_back(tmp_path, scaler):
    found = there_and_back(tmp_path, model(encoding=scaler))
    assert said(found) == said(model(encoding=scaler))
    np.testing.assert_array_equal(found.encoding.transform(X_NEW), scaler.transform(X_NEW))
    np.testing.assert_array_equal(found.encoding.inverse(X_NEW), scaler.inverse(X_NEW))


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": torch.float32},
        {"epsilon": 1e-3},
        {"epsilon": torch.tensor([0.5, 0.2, 0.0], dtype=torch.float64)},
        {"sharpness": math.exp(-2)},
        {"n_inducing": 1},
    ],
    ids=str,
)
def test_every_kind_of_posterior_comes_back(tmp_path, changes):
    given = model(posterior=posterior(**changes))
    found = there_and_back(tmp_path, given)
    assert said(found) == said(given)
    assert found.posterior.prior.dtype == given.posterior.prior.dtype
    np.testing.assert_array_equal(log_p(found), log_p(given))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("is_upper", [False, True])
def test_factors_lie_in_memory_as_they_did(tmp_path, by_columns, is_upper):
    """The last bits of a product depend on it. The paper's VI has the other triangle."""
    q = posterior()
    factor = q.whitened.R_inverse.mT if is_upper else q.whitened.R_inverse
    factor = factor.mT.contiguous().mT if by_columns else factor.contiguous()
    given = model(posterior=replace(q, whitened=Whitened(factor, q.whitened.m)))
    found = there_and_back(tmp_path, given)
    assert found.posterior.whitened.R_inverse.stride() == factor.stride()
    assert torch.equal(found.posterior.whitened.R_inverse, factor)


def test_labels_come_back_with_their_dtype(tmp_path):
    for classes in (
        np.array([1, 5, 9], np.int32),
        np.array(["a", "b", "c"], "<U20"),
        np.array(["x", "y", "z"], object),
    ):
        found = there_and_back(tmp_path, model(classes=classes)).classes
        np.testing.assert_array_equal(found, classes, strict=True)


@pytest.mark.parametrize(
    "state",
    [None, 3, np.int64(3), np.random.RandomState(0), np.random.default_rng(0)],
    ids=lambda state: type(state).__name__,
)
def test_a_seed_is_kept_and_a_generator_is_not(tmp_path, state):
    found = there_and_back(
        tmp_path, model(params={"random_state": state, "checkpoint": Path("/x"), "distributed": True})
    )
    seed = 3 if isinstance(state, int | np.integer) else None
    assert found.params == {"random_state": seed, "checkpoint": None, "distributed": "auto"}


def test_what_is_not_finite_is_kept_where_no_prediction_needs_it(tmp_path):
    history = [{"epoch": 1, "objective": -math.inf}, {"epoch": 2, "objective": np.float64("nan")}]
    found = there_and_back(tmp_path, model(history=history, log_marginal_likelihood=-math.inf))
    assert found.log_marginal_likelihood == found.history[0]["objective"] == -math.inf
    assert math.isnan(found.history[1]["objective"])


def test_a_long_history_is_thinned(tmp_path):
    events = {7: "first", 20_001: "x" * 10_000, 39_999: "stopped"}
    history = [{"epoch": i, "event": events.get(i)} for i in range(40_000)]
    found = there_and_back(tmp_path, model(history=history)).history
    epochs = [record["epoch"] for record in found]
    assert {0, 39_999, *events} <= set(epochs)
    assert epochs == sorted(set(epochs))
    assert 290 <= len(found) <= 300
    assert max(np.diff(epochs)) < 200
    assert len(next(record["event"] for record in found if record["epoch"] == 20_001)) == 500


def test_of_very_many_events_some_are_kept(tmp_path):
    history = [{"epoch": i, "event": "again"} for i in range(1000)]
    found = there_and_back(tmp_path, model(history=history)).history
    assert len(found) <= 300
    assert (found[0], found[-1]) == (history[0], history[-1])


def test_settings_that_are_not_known_are_left_out_with_a_warning(tmp_path):
    write(tmp_path / "m", model())
    with pytest.warns(UserWarning, match=r"does not know\. They do not affect predictions and are ignored: tol$"):
        found = read(tmp_path / "m", known=[*(name for name in model().params if name != "tol"), "new"])
    assert set(found.params) == set(model().params) - {"tol"}
    assert set(read(tmp_path / "m", known=list(model().params)).params) == set(model().params)


def test_other_programs_can_read_the_tensors(tmp_path):
    write(tmp_path / "m.cavity", model())
    found = load_file(tmp_path / "m.cavity")
    names = {"Z", "log_noise", "kernel.log_lengthscale", "kernel.log_variance", "R_inverse", "m", "params.noise"}
    names |= {f"scaler.{name}" for name in ("mean", "sd", "knots", "levels", "counts")}
    names |= {f"held_out.{name}" for name in ("y", "weight", "confidence", "adaptive", "threshold")}
    assert set(found) == names | {"params.kernel.0.lengthscale", "params.inducing_points"}
    assert torch.equal(found["Z"], model().posterior.prior.Z)


@pytest.mark.parametrize(
    "kernel", [Matern12(), Linear() + Constant(), RBF() * (Linear() + (Matern32() + RBF()))], ids=repr
)
def test_axes_are_those_of_the_parameters(kernel):
    lengths = {"K": 2, "G": 5}
    shapes = {name: tuple(lengths[axis] for axis in axes) for name, axes in _parameter_axes(kernel, "").items()}
    assert shapes == {name: tuple(value.shape) for name, value in kernel.start(2, 5, 1.0).items()}


def test_a_changed_number_is_noticed(tmp_path):
    path = tmp_path / "m.cavity"
    write(path, model())
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    with pytest.raises(ModelFileError, match="checksum"):
        read(path)


# --- Mixed tables ---


@pytest.mark.parametrize("scaling", ["standard", "common", "quantile", None])
@pytest.mark.parametrize("kernel", [RBF(), Matern32() + Linear() * Constant()], ids=["RBF", "sum"])
def test_mixed_tables_come_back_to_the_bit(tmp_path, kernel, scaling):
    given = mixed_model(kernel, scaling)
    found = there_and_back(tmp_path, given)
    assert said(found) == said(given)
    assert found.schema == given.schema
    assert found.encoding.groups == given.encoding.groups
    cells = given.schema.read(mixed_table(seed=1))
    np.testing.assert_array_equal(found.schema.read(mixed_table(seed=1)), cells)
    np.testing.assert_array_equal(log_p(found, cells), log_p(given, cells))
    np.testing.assert_array_equal(found.encoding.inverse(found.posterior.prior.Z.numpy()),
                                  given.encoding.inverse(given.posterior.prior.Z.numpy()))  # fmt: skip


def table_model(X, schema, scaling="standard"):
    """A model of these cells."""
    encoding = fit_encoding(schema, scaling, X, np.arange(len(X)) % 3, np.ones(len(X)), 3)
    q = posterior(Grouped(RBF(), encoding.feature_groups), rows=encoding.transform(X))
    return model(posterior=q, schema=schema, encoding=encoding, n_features=X.shape[1], feature_names=None)


def test_numbers_with_gaps_come_back(tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[::3, 1] = X[:, 2] = np.nan  # the last column has no features
    for scaling in ("standard", "common", "quantile", None):
        given = table_model(X, None, scaling)
        found = there_and_back(tmp_path, given)
        assert said(found) == said(given)
        np.testing.assert_array_equal(log_p(found, X), log_p(given, X))


@pytest.mark.parametrize(
    "levels",
    [[""], ["", "\0", "\n", "'\"", ","], ["lone \ud800", "小", "é"], ["x" * 10_000, "y" * 10_000], ["1", "10", "2"]],
    ids=ascii,
)
def test_levels_of_any_content_come_back(tmp_path, levels):
    rows = np.array([[level] for level in levels] * 9, dtype=object)
    schema = find_schema(rows)
    found = there_and_back(tmp_path, table_model(schema.read(rows), schema))
    assert found.schema.columns[0].levels == tuple(sorted(levels))
    assert found.schema == schema


def test_a_category_that_is_left_out_can_have_levels(tmp_path):
    """As one whose rows all have weight 0."""
    rows = np.array([["a", 1.0], ["b", 2.0], [None, 3.0]] * 5, dtype=object)
    schema = find_schema(rows)
    schema = Schema((replace(schema.columns[0], kind="left out", reason="every value is missing"), schema.columns[1]))
    given = table_model(schema.read(rows), schema)
    found = there_and_back(tmp_path, given)
    assert found.schema.columns == (replace(schema.columns[0], levels=None), schema.columns[1])


def test_as_many_levels_as_a_category_can_have(tmp_path):
    """Some megabytes of text with commas and quotes: the header of a file has no room for it."""
    levels = [f'{i}, "{i % 7}" ' + "long " * 20 for i in range(MAX_LEVELS)]
    rows = np.array([[level] for level in levels], dtype=object)
    schema = find_schema(rows, [0])
    found = there_and_back(tmp_path, table_model(schema.read(rows), schema))
    assert found.schema == schema


WITHOUT_PANDAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pandas", "polars"}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Absent())
import numpy as np, pyarrow.ipc
import cavity
clf = cavity.load(sys.argv[1])
table = pyarrow.ipc.open_file(sys.argv[2]).read_all()
np.save(sys.argv[3], clf.predict_log_proba(table))
"""


def test_a_mixed_table_predicts_the_same_bits_without_pandas(tmp_path):
    pytest.importorskip("pandas")
    feather = pytest.importorskip("pyarrow.feather")
    frame = mixed_table(200).to_pandas()
    y = np.where(frame["size"].fillna(0) + (frame["color"] == "red") > 1, "yes", "no")
    clf = GPClassifier(n_inducing=10, max_epochs=3, calibrate=False, device="cpu", random_state=0)
    with pytest.warns(match="'id'"):
        clf.fit(frame, y)
    paths = [tmp_path / name for name in ("m.cavity", "rows.arrow", "found.npy")]
    clf.save(paths[0])
    new = mixed_table(100, seed=1)
    feather.write_feather(new, paths[1], compression="uncompressed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = clf.predict_log_proba(new.to_pandas())
    finally:
        torch.set_num_threads(threads)
    run(WITHOUT_PANDAS, *paths)
    np.testing.assert_array_equal(np.load(paths[2]), expected)


# --- A new process, and a file of long ago ---

FRESH = """
import sys, numpy as np, torch
from cavity.files import model_file as modelfile
from cavity.gp import probabilities as predict
found = modelfile.read(sys.argv[1])
X = torch.from_numpy(found.encoding.transform(np.load(sys.argv[2])))
np.save(sys.argv[3], predict.log_probabilities(found.posterior, X))
"""


def test_a_fit_predicts_the_same_bits_in_a_new_process(tmp_path):
    X, y = load_iris(return_X_y=True)
    kernel = Matern52() + Linear()
    clf = GPClassifier(kernel=kernel, n_inducing=60, max_epochs=5, calibrate=2, device="cpu", random_state=0).fit(X, y)
    paths = [tmp_path / name for name in ("m.cavity", "X.npy", "found.npy")]
    given = model(classes=clf.classes_, n_features=4, feature_names=None, posterior=clf.posterior_,
                  encoding=clf._encoding, params=clf.get_params(deep=False), history=clf.history_)  # fmt: skip
    write(paths[0], given)
    np.save(paths[1], X)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = log_p(given, X)
        np.testing.assert_array_equal(log_p(read(paths[0]), X), expected)
    finally:
        torch.set_num_threads(threads)
    run(FRESH, *paths)
    np.testing.assert_array_equal(np.load(paths[2]), expected)
    assert given.posterior.sharpness != 1.0


def test_a_file_of_the_third_format_loads_ever_after():
    """It has every kind of column; the rows of the table have gaps and unknown levels."""
    stored = json.loads((REFERENCE / "model_v3.json").read_text())
    found = read(REFERENCE / "model_v3.cavity")
    assert [[column.name, column.kind] for column in found.schema.columns] == stored["columns"]
    parsed = {"date": datetime.fromisoformat, "time": time.fromisoformat}
    parse = [parsed.get(kind, lambda cell: cell) for _, kind in stored["columns"]]
    rows = [[None if x is None else parse[j](x) for j, x in enumerate(row)] for row in stored["rows"]]
    p = np.exp(log_p(found, found.schema.read(rows)))
    np.testing.assert_allclose(p, stored["p"], rtol=0, atol=1e-9)
    assert [list(group) for group in found.encoding.groups] == stored["groups"]
    assert found.classes.tolist() == stored["classes"]


def test_a_file_of_the_second_format_loads_ever_after():
    stored = json.loads((REFERENCE / "model_v2.json").read_text())
    found = read(REFERENCE / "model_v2.cavity")
    np.testing.assert_allclose(np.exp(log_p(found, np.array(stored["X"]))), stored["p"], rtol=0, atol=1e-9)
    assert found.classes.tolist() == stored["classes"]
    assert found.posterior.epsilon.tolist() == stored["epsilon"]


def test_a_file_of_the_first_format_loads_ever_after():
    stored = json.loads((REFERENCE / "model_v1.json").read_text())
    found = read(REFERENCE / "model_v1.cavity")
    np.testing.assert_allclose(np.exp(log_p(found, np.array(stored["X"]))), stored["p"], rtol=0, atol=1e-9)
    assert found.classes.tolist() == stored["classes"]
    assert found.classes.dtype == "<U10"
    assert (found.method, found.n_features, found.feature_names) == ("vi", 4, stored["feature_names"])
    assert repr(found.params["kernel"]) == stored["kernel"]
    assert found.params["class_weight"] == {"setosa": 1.0, "versicolor": 2.0, "virginica": 1.5}
    assert found.params["priors"] == {"lengthscale": (None, 2.0, math.inf), "relevance": 0.5}
    assert found.posterior.epsilon == 1e-3


# --- What cannot be written ---


class Mine(RBF):
    """A kernel of one's own."""


def broken(**changes):
    """q(u) with numbers that no fit has."""
    q = posterior()
    of_prior = {name: value for name, value in changes.items() if name != "m"}
    whitened = replace(q.whitened, **{name: value for name, value in changes.items() if name == "m"})
    return model(posterior=replace(q, prior=replace(q.prior, **of_prior), whitened=whitened))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params": {"kernel": Mine()}}, r"params\.kernel=Mine.*pickle"),
        ({"posterior": posterior(Mine())}, r"start=Mine.*pickle"),
        ({"params": {"noise": object()}}, r"params\.noise="),
        ({"classes": np.array([b"a", b"b", b"c"])}, r"classes=.*astype"),
        ({"metrics": {"when": np.datetime64("2020-01-01")}}, r"metrics\.when="),
        ({"history": [{"epoch": 1, "event": {1, 2}}]}, r"history\.0\.event="),
    ],
    ids=["kernel", "kernel of q", "setting", "labels", "metrics", "history"],
)
def test_what_a_file_cannot_hold_is_named(tmp_path, changes, reason):
    with pytest.raises(TypeError, match=reason):
        write(tmp_path / "m", model(**changes))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (broken(m=torch.full((3, 4), math.nan, dtype=torch.float64)), "m has NaN"),
        (broken(log_noise=torch.full((3,), math.inf, dtype=torch.float64)), "log_noise has"),
        (model(posterior=posterior(sharpness=math.nan)), "JSON"),
        (model(posterior=posterior(epsilon=1.0)), "invalid epsilon"),
        (model(classes=np.array(["a", "b"])), "R_inverse must be"),
        (model(classes=np.array(["b", "a", "c"])), "sorted"),
        (model(n_features=3, feature_names=None), "of shape"),
        (model(feature_names=["x"]), "1 feature_names for 2"),
        (model(method="guessing"), "method"),
        (model(feature_names=["x", "y" * tensorfile.MAX_HEADER]), "shorten"),
        (model(params={"n": 10**50}), "digits"),
    ],
    ids=["nan", "inf", "sharpness", "epsilon", "classes", "order", "features", "names", "method", "long", "digits"],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, given, reason):
    with pytest.raises(ModelFileError, match=rf"m\.cavity cannot be written: .*{reason}"):
        write(tmp_path / "m.cavity", given)
    assert os.listdir(tmp_path) == []


def raises(error):
    def call(*args, **kwargs):
        raise error

    return call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, code):
    write(tmp_path / "m.cavity", model())
    monkeypatch.setattr(os, "fsync", raises(OSError(code, "No space left on device")))
    with pytest.raises(ModelFileError, match=r"m\.cavity cannot be written: the disk is full\. Free some space"):
        write(tmp_path / "m.cavity", model(n_iter=9))
    assert os.listdir(tmp_path) == ["m.cavity"]
    assert read(tmp_path / "m.cavity").n_iter == 5


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "m.cavity", model())
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(
        ModelFileError, match=r"no/m\.cavity cannot be written: the folder does not exist\. Create it first"
    ):
        write(tmp_path / "no" / "m.cavity", model())


def test_a_folder_is_not_written_over(tmp_path):
    with pytest.raises(ModelFileError, match="a folder or a device"):
        write(tmp_path, model())


def test_a_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "mkdir", raises(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(ModelFileError, match=r"cannot be written: Permission denied\. Change the permissions"):
        write(tmp_path / "m.cavity", model())


def test_a_link_still_points_to_the_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "m.cavity")
    write(tmp_path / "link", model())
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "m.cavity").n_iter == 5
