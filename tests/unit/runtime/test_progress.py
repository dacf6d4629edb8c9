"""Progress on a terminal and elsewhere."""

import sys

import pytest

from cavity.runtime import progress as module
from cavity.runtime.progress import command_clock, show_progress
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def record(epoch, objective=-12.34, event=None, **fields):
    return {"epoch": epoch, "objective": objective, "event": event, **fields}


def describe(record):
    return record["event"]


def test_without_a_terminal_every_tenth_of_the_epochs_is_a_line(capsys, clock):
    with show_progress("cavity ep", 200, 1, describe) as report:
        for epoch in range(1, 201):
            clock.now += 0.5
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[1] == "cavity ep: epoch 40 of 200, objective=-12.3, 0:20 elapsed, at most 1:20 remaining"


def test_where_epochs_take_long_every_half_minute_is_a_line(capsys, clock):
    with show_progress("cavity ep", 10_000, 1, describe) as report:
        for epoch in range(1, 101):
            clock.now += 4.0
            report(record(epoch))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 13  # each eighth epoch, and the last
    assert "epoch 100 of 10000" in lines[-1]
    assert "11:00:00 remaining" in lines[-1]


def test_the_last_line_is_that_of_the_last_epoch(capsys, clock):
    with show_progress("cavity ep", 100, 1, describe) as report:
        for epoch in range(1, 14):
            report(record(epoch))
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "cavity ep: epoch 10 of 100", "cavity ep: epoch 13 of 100",
    ]  # fmt: skip


def test_the_pace_is_that_since_a_checkpoint(capsys, clock):
    with show_progress("cavity ep", 100, 1, describe) as report:
        clock.now += 2.0
        report(record(81))
    assert "0:02 elapsed, at most 0:38 remaining" in capsys.readouterr().err


def test_events_are_lines_and_further_fits_say_how_long(capsys, clock):
    with show_progress("cavity ep", 100, 1, describe) as report:
        report(record(1, event="went back: log Z is not finite"))
        clock.now += 30.0
        report(record(2, None, event="calibration by 3 more fits", folds=3))
    assert capsys.readouterr().err.splitlines() == [
        "epoch 1: went back: log Z is not finite", "epoch 2: calibration by 3 more fits, about 1:00 more",
    ]  # fmt: skip


def test_lines_are_never_written_over(capsys, clock):
    with show_progress("cavity ep", 20, 2, describe) as report:
        for epoch in range(1, 21):
            report(record(epoch))
    err = capsys.readouterr().err
    assert "\r" not in err
    assert len(err.splitlines()) == 20


def test_a_terminal_has_a_bar_with_the_time_left(capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_progress("cavity ep", 50, 1, describe) as report:
        for epoch in range(1, 31):
            clock.now += 2.0
            report(record(epoch))
        report(record(30, event="stopped"))
    err = capsys.readouterr().err
    drawn = [line.strip() for line in err.replace("\n", "\r").split("\r") if line.strip()]
    assert drawn[0].startswith("0%|")
    assert any(
        "cavity ep: epoch 10 of 50, objective=-12.3, 0:20 elapsed, at most 1:20 remaining" in one for one in drawn
    )
    assert "epoch 30: stopped" in drawn
    assert drawn[-1].startswith("100%|")
    assert drawn[-1].endswith("cavity ep: 1:00 elapsed, objective=-12.3")


# --- the whole fit ---


def lines(capsys):
    return capsys.readouterr().err.splitlines()


@pytest.fixture
def every_line(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)


@pytest.mark.usefixtures("every_line")
def test_calibration_and_final_passes_move_on_with_the_time_left(capsys, clock):
    with show_progress("cavity ep", 100, 1, describe, final=10.0, folds=3) as report:
        report.begin("fit")
        for epoch in range(1, 41):  # converges early
            clock.now += 1.0
            report(record(epoch))
        for done in (42.0, 44.0):
            clock.now += 2.0
            report.advance(done, True)
        for _ in range(3):
            report.begin("fold")
            for epoch in range(11, 45, 11):
                clock.now += 11.0 * 2 / 3
                report.advance(epoch)
    found = lines(capsys)
    assert "cavity ep: epoch 1 of 100, objective=-12.3, 0:01 elapsed, at most 5:29 remaining" in found
    assert "cavity ep: final passes, 0:42 elapsed, at most 4:48 remaining" in found
    assert "cavity ep: calibration fit 1 of 3, 0:44 elapsed, about 1:28 remaining" in found  # two more like the first
    assert "cavity ep: calibration fit 2 of 3, 1:28 elapsed, about 0:44 remaining" in found
    assert found[-1] == "cavity ep: calibration fit 3 of 3, 2:12 elapsed, about 0:00 remaining"


class Seen:
    """The parts of the whole that a progress has shown."""

    def __init__(self, report):
        self.report, self.parts = report, []

    def __call__(self, action, *arguments):
        getattr(self.report, action)(*arguments)
        self.parts.append(self.report._done)


@pytest.mark.parametrize("epochs", [3, 60, 100, 140])  # fewer than planned, as many, and more
@pytest.mark.parametrize("limit", [None, 50.0])
def test_the_bar_never_goes_back_and_ends_full(clock, capsys, epochs, limit):
    with show_progress("cavity ep", 100, 1, describe, trials=60, final=2.0, folds=3, max_seconds=limit) as report:
        seen = Seen(report)
        for name in ("trial", "trial", "fit", "fold", "fold", "fold"):
            seen("begin", name)
            for epoch in range(1, epochs + 1 + 40 * (name == "fold")):
                clock.now += 0.1
                seen("advance", epoch - 0.5)
                seen("advance", epoch)
            seen("advance", epochs + 2.0, True)
    assert seen.parts == sorted(seen.parts)
    assert seen.parts[-1] == pytest.approx(1.0)


def test_with_a_time_limit_the_time_tells(capsys, clock):
    with show_progress("cavity sep", 1000, 1, describe, max_seconds=60.0) as report:
        clock.now += 30.0
        report(record(10))
    assert lines(capsys) == ["cavity sep: epoch 10 of 1000, objective=-12.3, 0:30 elapsed, at most 0:30 remaining"]


@pytest.mark.usefixtures("every_line")
def test_steps_within_a_long_epoch_move_on(capsys, clock):
    with show_progress("cavity sep", 2, 1, describe) as report:
        for step in range(1, 5):
            clock.now += 60.0
            report.advance(step / 4)
    assert lines(capsys)[1] == "cavity sep: epoch 1 of 2, 2:00 elapsed, at most 6:00 remaining"


def test_a_command_counts_from_its_start(capsys, clock):
    with command_clock():
        clock.now += 100.0  # reading a file
        with show_progress("cavity ep", 2, 1, describe) as report:
            clock.now += 10.0
            report(record(1))
    with show_progress("cavity ep", 2, 1, describe) as report:
        clock.now += 10.0
        report(record(1))
    assert [line.split(", ", 2)[2] for line in lines(capsys)] == [
        "1:50 elapsed, at most 0:10 remaining", "0:10 elapsed, at most 0:10 remaining",
    ]  # fmt: skip


def test_a_fit_shows_all_its_phases(capsys, every_line):
    import numpy as np

    from cavity import GPClassifier

    X = np.random.default_rng(0).normal(size=(60, 2))
    settings = {"max_epochs": 5, "n_inducing": 4, "random_state": 0, "scaling": "auto", "verbose": 1}
    plain = GPClassifier(**settings | {"verbose": 0}).fit(X, X[:, 0] > 0)
    shown = GPClassifier(**settings).fit(X, X[:, 0] > 0)
    parts = [line.split(", ")[0] for line in lines(capsys) if line.startswith("cavity ep: ")]
    order = list(dict.fromkeys(parts))
    assert order[:2] == ["cavity ep: trial of scaling 1 of 2", "cavity ep: trial of scaling 2 of 2"]
    assert order[2:7] == [f"cavity ep: epoch {k} of 5" for k in range(1, 6)]
    assert order[7:] == ["cavity ep: final passes", *(f"cavity ep: calibration fit {k} of 3" for k in (1, 2, 3))]
    assert all(parts.count(f"cavity ep: calibration fit {k} of 3") > 3 for k in (1, 2, 3))
    np.testing.assert_array_equal(plain.predict_proba(X), shown.predict_proba(X))


def test_mini_batches_move_within_an_epoch_and_in_the_final_passes(capsys, every_line):
    import numpy as np

    from cavity import GPClassifier

    X = np.random.default_rng(0).normal(size=(60, 2))
    GPClassifier("sep", batch_size=10, max_epochs=2, n_inducing=4, random_state=0, verbose=1).fit(X, X[:, 0] > 0)
    parts = [line.split(", ")[0] for line in lines(capsys)]
    assert parts.count("cavity sep: epoch 1 of 2") >= 4
    assert "cavity sep: final passes" in parts


def test_nothing_is_shown_unless_asked(capsys):
    with show_progress("cavity ep", 50, 0, describe) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")
