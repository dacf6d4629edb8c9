"""A classifier that goes into a file and comes back, in this process and in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import cavity
from cavity import GPClassifier
from cavity.kernels import Linear, Matern32

IRIS = load_iris(as_frame=True)
X, y = IRIS.data, IRIS.target_names[IRIS.target]
PREDICT = """
import sys, numpy as np, pandas as pd, cavity
X = pd.read_csv(sys.argv[2], float_precision="round_trip")
np.save(sys.argv[3], cavity.load(sys.argv[1]).predict_log_proba(X))
"""


def fitted(method: str = "ep", **changes: Any) -> GPClassifier:
    settings = {"max_epochs": 8, "n_inducing": 8, "random_state": 0, "calibrate": False}
    return GPClassifier(method, **(settings | changes)).fit(X, y)


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_what_comes_back_says_the_same_to_the_last_bit(method: str, tmp_path: Path) -> None:
    clf = fitted(method, calibrate=2)
    clf.save(tmp_path / "m.cavity")
    back = cavity.load(tmp_path / "m.cavity")
    assert np.array_equal(back.predict_log_proba(X), clf.predict_log_proba(X))
    assert (back.predict(X) == clf.predict(X)).all()
    assert np.array_equal(back.uncertainty(X).epistemic, clf.uncertainty(X).epistemic)
    for name in ("noise_", "inducing_points_", "classes_", "feature_names_in_"):
        assert np.array_equal(getattr(back, name), getattr(clf, name)), name
    for name in ("sharpness_", "log_marginal_likelihood_", "n_iter_", "method_", "training_", "n_features_in_"):
        assert getattr(back, name) == getattr(clf, name), name
    assert back.get_params() == clf.get_params()


def test_another_process_says_the_same_to_the_last_bit(tmp_path: Path) -> None:
    clf = fitted(kernel=Matern32() + Linear(), scaling="quantile")
    clf.save(tmp_path / "m.cavity")
    X.to_csv(tmp_path / "x.csv", index=False)
    paths = [str(tmp_path / name) for name in ("m.cavity", "x.csv", "p.npy")]
    subprocess.run([sys.executable, "-c", PREDICT, *paths], check=True, env=os.environ)
    assert np.array_equal(np.load(tmp_path / "p.npy"), clf.predict_log_proba(X))


def test_the_names_of_the_columns_come_back(tmp_path: Path) -> None:
    fitted().save(tmp_path / "m.cavity")
    with pytest.raises(ValueError, match="feature names"):
        cavity.load(tmp_path / "m.cavity").predict(X[X.columns[::-1]])


def test_metrics_are_kept_and_added_to(tmp_path: Path) -> None:
    clf = fitted()
    clf.save(tmp_path / "m.cavity", metrics={"test": {"error": 0.04}})
    back = cavity.load(tmp_path / "m.cavity")
    back.save(tmp_path / "m.cavity", metrics={"again": [1, 2]})
    assert cavity.load(tmp_path / "m.cavity").metrics_ == {"test": {"error": 0.04}, "again": [1, 2]}


def test_a_model_from_a_file_can_be_fitted_anew(tmp_path: Path) -> None:
    clf = fitted()
    clf.save(tmp_path / "m.cavity")
    again = cavity.load(tmp_path / "m.cavity").fit(X, y)
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert clone(again).get_params() == clf.get_params()


def test_a_model_from_a_file_does_not_go_on_with_a_stream(tmp_path: Path) -> None:
    fitted("sep").save(tmp_path / "m.cavity")
    with pytest.raises(ValueError, match="cannot continue from a model file"):
        cavity.load(tmp_path / "m.cavity").partial_fit(X, y)


def test_a_stream_can_be_saved(tmp_path: Path) -> None:
    clf = GPClassifier("sep", n_inducing=8, random_state=0).partial_fit(X, y, classes=np.unique(y))
    clf.partial_fit(X, y)
    assert clf.training_ == {"rows": 300, "features": 4, "class_counts": [100, 100, 100]}
    clf.save(tmp_path / "m.cavity")
    assert np.array_equal(cavity.load(tmp_path / "m.cavity").predict_proba(X), clf.predict_proba(X))


def test_nothing_is_saved_before_a_fit(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        GPClassifier().save(tmp_path / "m.cavity")
    assert list(tmp_path.iterdir()) == []


def test_settings_that_this_version_does_not_know_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = fitted()
    params = clf.get_params(deep=False) | {"from_the_future": 1}
    monkeypatch.setattr(clf, "get_params", lambda deep=True: params, raising=False)
    clf.save(tmp_path / "m.cavity")
    with pytest.warns(UserWarning, match="from_the_future"):
        back = cavity.load(tmp_path / "m.cavity")
    assert np.array_equal(back.predict_proba(X), clf.predict_proba(X))


def test_rows_without_names_take_frames_too(tmp_path: Path) -> None:
    clf = GPClassifier(max_epochs=5, n_inducing=8, calibrate=False, random_state=0).fit(X.to_numpy(), y)
    clf.save(tmp_path / "m.cavity")
    back = cavity.load(tmp_path / "m.cavity", device="cpu")
    assert back.device == "cpu"
    assert not hasattr(back, "feature_names_in_")
    assert np.array_equal(back.predict_proba(pd.DataFrame(X).to_numpy()), clf.predict_proba(X.to_numpy()))
