"""Training that is asked to stop: it ends after the step at hand, with a model that works."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from cavity import GPClassifier

X, y = load_iris(return_X_y=True)


class AfterAsking:
    """Set once it has been asked so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def fitted(times: int, method: str, **changes: Any) -> GPClassifier:
    settings = {"max_epochs": 200, "tol": 0.0, "n_inducing": 10, "random_state": 0} | changes
    return GPClassifier(method, **settings).fit(X, y, stop=AfterAsking(times))


@pytest.mark.parametrize("method", ["ep", "sep", "vi", "gfitc"])
@pytest.mark.parametrize("times", [0, 7])
def test_what_there_is_by_then_predicts(method: str, times: int) -> None:
    clf = fitted(times, method)
    assert clf.n_iter_ < 200
    assert any(record["event"] == "stopped" for record in clf.history_)
    assert np.abs(clf.predict_proba(X).sum(1) - 1).max() < 1e-12


def test_a_mini_batch_fit_stops_within_an_epoch() -> None:
    clf = fitted(2, "sep", batch_size=10, calibrate=False)
    assert clf.n_iter_ <= 1


def test_calibration_is_left_out() -> None:
    clf = fitted(30, "ep")
    assert clf.sharpness_ == 1.0
    assert clf.history_[-1]["event"] == "calibration_stopped"


def test_calibration_that_is_under_way_ends() -> None:
    whole = GPClassifier("ep", max_epochs=20, n_inducing=10, random_state=0)
    asked = AfterAsking(10**9)
    whole.fit(X, y, stop=asked)
    times = 10**9 - asked.left
    clf = GPClassifier("ep", max_epochs=20, n_inducing=10, random_state=0).fit(X, y, stop=AfterAsking(times - 30))
    assert clf.history_[-1]["event"] == "calibration_stopped"
    assert clf.log_marginal_likelihood_ == whole.log_marginal_likelihood_
    assert clf.sharpness_ == 1.0 != whole.sharpness_


def test_an_event_that_is_never_set_changes_nothing() -> None:
    plain, asked = (GPClassifier("sep", max_epochs=20, n_inducing=10, random_state=0) for _ in range(2))
    plain.fit(X, y)
    asked.fit(X, y, stop=threading.Event())
    assert np.array_equal(plain.predict_proba(X), asked.predict_proba(X))


@pytest.mark.parametrize("batch_size", [None, 20])
def test_a_stopped_fit_goes_on_from_its_checkpoint(batch_size: int | None, tmp_path: Any) -> None:
    def make(folder: str) -> GPClassifier:
        settings = {"max_epochs": 12, "tol": 0.0, "n_inducing": 10, "batch_size": batch_size, "random_state": 0}
        return GPClassifier("sep", checkpoint=tmp_path / folder, calibrate=False, **settings)

    whole = make("a").fit(X, y)
    stopped = make("b").fit(X, y, stop=AfterAsking(9))
    resumed = make("b").fit(X, y, resume=True)
    assert stopped.n_iter_ < 12 == resumed.n_iter_
    assert np.array_equal(whole.posterior_.mean, resumed.posterior_.mean)
