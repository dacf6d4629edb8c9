"""The training curve from a history."""

import numpy as np
import pytest

from cavity.report.course import course, is_rising


def records(objectives):
    return [{"epoch": i + 1, "objective": v, "seconds": 0.5 * i, "event": None} for i, v in enumerate(objectives)]


def test_epochs_with_an_objective_make_the_curve_and_events_are_kept():
    history = [*records([-9.0, None, -4.0, float("nan"), -3.0]), {"epoch": 5, "objective": None, "event": "stopped"}]
    found = course(history)
    np.testing.assert_array_equal(found.epoch, [1, 3, 5])
    np.testing.assert_array_equal(found.objective, [-9, -4, -3])
    np.testing.assert_array_equal(found.seconds, [0, 1, 2])
    assert found.events == [(5, "stopped")]


def test_a_stream_keeps_no_time_and_some_models_no_history():
    found = course([{"epoch": 1, "objective": -2.0, "rate": 0.1, "event": None}])
    np.testing.assert_array_equal(found.seconds, [0.0])
    assert course([]).objective.shape == (0,)
    assert not is_rising(course([]))


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
    assert is_rising(course(records(np.asarray(objectives).tolist()))) is rises
