"""The flights: preparation, the copy without Parquet, and E[log p] from predictions."""

import numpy as np
import pytest
import torch

from cavity.data.training_data import ArrayData
from cavity.datasets import Dataset
from cavity.inference.vi import expected_log_lik as bound_term
from experiments.airline import flights
from experiments.curves import Point, is_earlier, look_times, seconds_to, tracked_fit

JOB = {"data": "made-up", "rows": 300, "test_rows": 100, "times": "minutes", "inducing": 8, "batch": 50, "seconds": 0.1,
       "seed": 0, "device": "cpu"}  # fmt: skip


def test_test_rows_stay_the_same_when_fewer_rows_train(monkeypatch):
    rows = flights.synthetic_flights(400)
    monkeypatch.setattr(flights, "_read", lambda: rows)
    job = JOB | {"data": "airline"}
    all_rows = flights.flights(job | {"rows": "all"})
    few = flights.flights(job | {"rows": 50})
    assert [len(part) for part in all_rows] == [300, 300, 100, 100]
    assert len(few[0]) == 50
    np.testing.assert_array_equal(few[0], all_rows[0][:50])
    np.testing.assert_array_equal(few[2], all_rows[2])


def test_times_are_minutes_only_where_asked():
    as_given, in_minutes = (flights.flights(JOB | {"times": times})[0] for times in ("hhmm", "minutes"))
    hhmm, minutes = as_given[:, flights.TIMES], in_minutes[:, flights.TIMES]
    assert (hhmm % 100 < 60).all()
    np.testing.assert_array_equal(minutes, hhmm // 100 * 60 + hhmm % 100)
    others = [i for i in range(8) if i not in flights.TIMES]
    np.testing.assert_array_equal(as_given[:, others], in_minutes[:, others])


def test_made_up_rows_have_three_classes_that_can_be_learned():
    X, y = flights.synthetic_flights(500)
    assert X.shape == (500, 8)
    assert set(y) == {0, 1, 2}


def test_expected_log_likelihood_is_the_term_of_the_bound():
    X, y, X_test, y_test = flights.flights(JOB)
    model = flights.natural_vi(JOB).fit(X, y)
    mean, var = (torch.from_numpy(part.T.copy()) for part in model.latent(X_test))
    data = ArrayData(torch.from_numpy(X_test), torch.from_numpy(y_test), torch.ones(len(y_test), dtype=mean.dtype), 3)
    wanted = float(bound_term(mean, var, data.full).log_lik) / len(y_test)
    log_p = model.predict_log_proba(X_test)
    found = flights.expected_log_lik(log_p, y_test)
    assert found == pytest.approx(wanted, rel=1e-6)
    assert found <= log_p[np.arange(len(y_test)), y_test].mean()  # Jensen


def test_the_copy_is_read_where_parquet_cannot_be(tmp_path, monkeypatch):
    X, y = flights.synthetic_flights(50)
    monkeypatch.setattr(flights, "load", lambda name: Dataset(name, X, y, (), (), "", ""))
    flights.write_copy(tmp_path / "deep" / flights.COPY)

    def refuse(name):
        raise ImportError("no Parquet here")

    monkeypatch.setattr(flights, "load", refuse)
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path))
    with pytest.raises(ImportError, match="no Parquet"):
        flights._read()
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path / "deep"))
    found_X, found_y = flights._read()
    np.testing.assert_array_equal(found_X, X.astype(np.float32))
    np.testing.assert_array_equal(found_y, y)


def test_a_watched_fit_has_a_point_at_its_start_and_its_end():
    rows = flights.flights(JOB)
    found = tracked_fit(flights.paper_model("sep", JOB), rows, look_times(0.1, 4))
    seconds = [point[0] for point in found["curve"]]
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(found["train_seconds"], abs=1e-3)
    assert 0.1 <= found["train_seconds"] < 5.0
    assert found["curve"][-1][1:] == [found["nll"], found["error"]]
    assert found["start_seconds"] >= 0
    assert found["end_seconds"] >= 0


def test_the_first_look_below_both_levels_counts():
    curve = [Point(1.0, 1.0, 0.3), Point(2.0, 0.8, 0.5), Point(4.0, 0.7, 0.4)]
    assert seconds_to(curve, 0.9) == 2.0
    assert seconds_to(curve, 0.9, 0.4) == 4.0
    assert seconds_to(curve, 0.5) is None
    assert is_earlier(1.0, None)
    assert not is_earlier(None, 1.0)
    assert not is_earlier(2.0, 1.0)
