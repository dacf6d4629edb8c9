"""Progress on a terminal and elsewhere."""

import sys

import pytest

from cavity.runtime import progress as module
from cavity.runtime.progress import progress
from cavity.training import Event, describe
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def record(epoch, objective=-12.34, event=None, **fields):
    return {"epoch": epoch, "objective": objective, "event": event, **fields}


def test_without_a_terminal_every_tenth_of_the_epochs_is_a_line(capsys, clock):
    with progress("cavity ep", 200, 1, describe) as report:
        for epoch in range(1, 201):
            clock.now += 0.5
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[1] == "cavity ep: epoch 40 of 200, objective=-12.3, 0:20 gone, 1:20 left at most"


def test_where_epochs_take_long_every_half_minute_is_a_line(capsys, clock):
    with progress("cavity ep", 10_000, 1, describe) as report:
        for epoch in range(1, 101):
            clock.now += 4.0
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 13  # each eighth epoch, and the last
    assert "epoch 100 of 10000" in lines[-1]
    assert "11:00:00 left" in lines[-1]


def test_the_last_line_is_that_of_the_last_epoch(capsys, clock):
    with progress("cavity ep", 100, 1, describe) as report:
        for epoch in range(1, 14):
            report(record(epoch))
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "cavity ep: epoch 10 of 100", "cavity ep: epoch 13 of 100",
    ]  # fmt: skip


def test_the_pace_is_that_since_a_checkpoint(capsys, clock):
    with progress("cavity ep", 100, 1, describe) as report:
        clock.now += 2.0
        report(record(81))
    assert "0:02 gone, 0:38 left" in capsys.readouterr().err


def test_events_are_lines_and_further_fits_say_how_long(capsys, clock):
    with progress("cavity ep", 100, 1, describe) as report:
        report(record(1, event=Event.STEP_REJECTED, reason="log Z is not finite"))
        clock.now += 30.0
        report(record(2, None, event=Event.CALIBRATION_STARTED, folds=3))
    assert capsys.readouterr().err.splitlines() == [
        "epoch 1: step rejected: log Z is not finite", "epoch 2: calibration by 3 more fits, about 1:00 more",
    ]  # fmt: skip


def test_lines_are_never_written_over(capsys, clock):
    with progress("cavity ep", 20, 2, describe) as report:
        for epoch in range(1, 21):
            report(record(epoch))
    err = capsys.readouterr().err
    assert "\r" not in err
    assert len(err.splitlines()) == 20


def test_a_terminal_has_a_bar_with_the_time_left(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("cavity ep", 50, 1, describe) as report:
        for epoch in range(1, 31):
            report(record(epoch))
        report(record(30, event=Event.STOPPED))
    err = capsys.readouterr().err
    assert "\r" in err
    assert "0/50" in err
    assert "30/30" in err
    assert "epoch 30: stopped" in err


def test_nothing_is_shown_unless_asked(capsys):
    with progress("cavity ep", 50, 0, describe) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")
