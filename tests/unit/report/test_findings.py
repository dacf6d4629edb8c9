"""The training curve from a history."""

import numpy as np
import pytest

from cavity.report.findings import training_curve, training_events
from cavity.training import Event


def records(objectives):
    return [{"epoch": i + 1, "objective": v, "seconds": 0.5 * i, "event": None} for i, v in enumerate(objectives)]


def test_epochs_with_an_objective_make_the_curve_and_events_are_kept():
    history = [*records([-9.0, None, -4.0, float("nan"), -3.0]), {"epoch": 5, "objective": None, "event": "stopped"}]
    found = training_curve(history)
    np.testing.assert_array_equal(found.epoch, [1, 3, 5])
    np.testing.assert_array_equal(found.objective, [-9, -4, -3])
    np.testing.assert_array_equal(found.seconds, [0, 1, 2])
    assert [(event.epoch, event.text, event.kind) for event in found.events] == [(5, "stopped", "stopped")]


def test_a_stream_keeps_no_time_and_some_models_no_history():
    found = training_curve([{"epoch": 1, "objective": -2.0, "rate": 0.1, "event": None}])
    np.testing.assert_array_equal(found.seconds, [0.0])
    assert training_curve([]).objective.shape == (0,)
    assert not training_curve([]).is_rising()


@pytest.mark.parametrize(
    ("objectives", "rises"),
    [
        (-100 * np.exp(-np.arange(100) / 10), False),
        (-100 * np.exp(-np.arange(20) / 10), True),
        (np.arange(50.0), True),
        (np.full(50, -3.0), False),
        (-np.arange(50.0), False),
        ([-3.0], False),
    ],
    ids=["settled", "cut short", "a line", "flat", "falling", "one"],
)
def test_what_is_rising(objectives, rises):
    assert training_curve(records(np.asarray(objectives).tolist())).is_rising() is rises


def test_events_are_read_with_their_kind_and_reason():
    given = [{"event": Event.CALIBRATION_FAILED, "reason": "no factor"}, {"event": "something old"}, {"event": None}]
    found = training_events([{"epoch": 3, "seconds": 1.5} | event for event in given])
    assert [event.kind for event in found] == ["calibration_failed", "something old"]
    assert [event.text for event in found] == ["not calibrated: no factor", "something old"]
    assert [event.reason for event in found] == ["no factor", ""]
    assert {(event.epoch, event.seconds) for event in found} == {(3, 1.5)}
