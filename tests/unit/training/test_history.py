"""Records, events, the stopping rule and the clock."""

import json
import pickle

import pytest

from cavity.training.history import WINDOW, Clock, Event, History, describe


def history(values):
    found = History()
    for epoch, value in enumerate(values):
        found.add(epoch=epoch, objective=value, event=None)
    return found


def test_records_are_kept_and_reported_as_they_come():
    seen = []
    found = History(seen.append)
    found.add(epoch=1, objective=2.0, event=None)
    found.add(epoch=2, objective=3.0, event=Event.STEP_REJECTED, reason="no factor")
    assert found.records == seen == [
        {"epoch": 1, "objective": 2.0, "event": None},
        {"epoch": 2, "objective": 3.0, "event": "step_rejected", "reason": "no factor"},
    ]  # fmt: skip


def test_settles_when_the_rise_an_epoch_is_below_the_tolerance():
    rising = history([0.1 * epoch for epoch in range(3 * WINDOW)])
    assert rising.has_settled(0.101)
    assert not rising.has_settled(0.099)


def test_settles_on_the_last_epochs_only():
    assert history([100.0 * e for e in range(50)] + [5000.0] * 2 * WINDOW).has_settled(1e-9)


def test_a_falling_objective_has_not_settled():
    assert not history([-5.0 * epoch for epoch in range(3 * WINDOW)]).has_settled(1.0)


def test_noise_about_a_level_settles():
    assert history([(-1.0) ** epoch for epoch in range(2 * WINDOW)]).has_settled(1e-9)


def test_too_few_epochs_never_settle():
    assert not history([1.0] * (2 * WINDOW - 1)).has_settled(1e9)
    assert history([1.0] * 2 * WINDOW).has_settled(1e-9)


def test_tolerance_zero_never_settles():
    assert not history([1.0] * 3 * WINDOW).has_settled(0.0)


def test_failed_steps_do_not_count():
    found = history([1.0] * (2 * WINDOW - 1))
    found.add(epoch=99, objective=None, event=Event.STEP_REJECTED)
    assert not found.has_settled(1.0)
    found.add(epoch=99, objective=1.0, event=None)
    assert found.has_settled(1.0)


def test_a_note_after_the_end_repeats_the_last_record_without_its_objective():
    seen = []
    found = History(seen.append)
    found.add(epoch=4, objective=2.0, seconds=1.5, rate=0.1, damping=0.5, event=None)
    found.note(Event.CALIBRATION_FAILED, reason="no factor")
    assert found.records[-1] == seen[-1]
    assert found.records[-1] == {
        "epoch": 4, "objective": None, "seconds": 1.5, "rate": 0.1, "damping": 0.5, "event": "calibration_failed",
        "reason": "no factor",
    }  # fmt: skip
    assert found.records[0]["event"] is None
    assert found.last_event() == Event.CALIBRATION_FAILED


def test_a_note_may_be_the_first_record():
    found = History()
    found.note(Event.STOPPED)
    assert found.records == [{"epoch": 0, "seconds": 0.0, "objective": None, "event": "stopped"}]


def test_a_note_has_its_own_fields_only():
    found = History()
    found.add(epoch=4, objective=None, seconds=1.5, event=Event.STEP_REJECTED, reason="no factor")
    found.note(Event.CALIBRATION_STOPPED)
    assert found.records[-1] == {"epoch": 4, "seconds": 1.5, "objective": None, "event": "calibration_stopped"}


# --- Events ---


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"event": Event.STEP_REJECTED, "reason": "no {factor}"}, "step rejected: no {factor}"),
        ({"event": Event.EVALUATION_REJECTED, "reason": "no factor"}, "evaluation rejected: no factor"),
        ({"event": Event.STOPPED}, "stopped"),
        (
            {"event": Event.DTYPE_TOO_COARSE, "dtype": "float32"},
            "float32 is too coarse for these rows: distances are computed in float64",
        ),
        ({"event": Event.CALIBRATION_STARTED, "folds": 5}, "calibration by 5 more fits"),
        ({"event": Event.CALIBRATION_FAILED, "reason": "no factor"}, "not calibrated: no factor"),
        ({"event": Event.CALIBRATION_STOPPED}, "not calibrated: stopped"),
        (
            {"event": Event.HYPERPARAMETERS_KEPT, "batches": 2, "reason": "no factor"},
            "hyper-parameters not updated in 2 batches (last: no factor)",
        ),
        ({"event": Event.CHECKPOINT_SKIPPED, "reason": "torn"}, "damaged checkpoint skipped: torn"),
    ],
)
def test_events_in_words(fields, sentence):
    record = {"epoch": 3, "objective": None} | fields
    assert describe(record) == sentence
    assert describe(json.loads(json.dumps(record))) == sentence


def test_an_event_survives_pickling():
    assert pickle.loads(pickle.dumps(list(Event))) == list(Event)


@pytest.mark.parametrize("event", ["went back: log Z is not finite", "x" * 1000, "{reason}"])
def test_events_of_older_files_pass_unchanged(event):
    assert describe({"epoch": 1, "event": event}) == event


def test_no_event_and_missing_fields():
    """A file can hold anything."""
    assert describe({"epoch": 1}) == describe({"epoch": 1, "event": None}) == ""
    assert describe({"event": "step_rejected"}) == "step rejected: unknown"
    assert describe({"event": ["stopped"]}) == "['stopped']"


# --- Clock ---


@pytest.fixture
def at(monkeypatch):
    """Set the time."""
    now = [0.0]
    monkeypatch.setattr("cavity.training.history.time.perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_clock_by_epochs(at):
    clock = Clock(max_epochs=20, max_seconds=None, started=0.0)
    at(1e9)
    assert clock.progress(5) == 0.25
    assert not clock.is_over()
    assert clock.seconds() == 1e9


def test_clock_by_whichever_is_further_on(at):
    clock = Clock(max_epochs=20, max_seconds=10.0, started=0.0)
    at(4.0)
    assert clock.progress(1) == 0.4
    assert clock.progress(15) == 0.75
    assert not clock.is_over()
    at(10.0)
    assert clock.is_over()


def test_a_clock_that_is_stopped_stands_still(at):
    clock = Clock(max_epochs=20, max_seconds=10.0, started=0.0)
    at(4.0)
    with clock.paused():
        at(94.0)
    assert clock.seconds() == 4.0
    assert not clock.is_over()
    at(95.0)
    assert clock.seconds() == 5.0
    assert clock.progress(1) == 0.5


def test_a_clock_goes_on_after_an_error(at):
    clock = Clock(max_epochs=20, max_seconds=10.0, started=0.0)

    def fail():
        at(50.0)
        raise KeyError

    with pytest.raises(KeyError), clock.paused():
        fail()
    assert clock.seconds() == 0.0
