"""The curve has the objectives that were evaluated; every event is marked."""

from types import SimpleNamespace

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.datasets import make_waveform
from cavity.plot import HistoryDisplay
from cavity.plot.history import MAX_EVENTS, MAX_LETTERS


def record(epoch, objective, event=None):
    return {"epoch": epoch, "objective": objective, "seconds": epoch / 4, "rate": 0.1, "damping": 0.5, "event": event}


RECORDS = [record(1, -50.0), record(2, None, "went back: why"), record(2, -40.0), record(3, -35.0),
           record(3, None, "stopped")]  # fmt: skip


def test_the_curve_has_the_objectives_that_there_are(ax, no_new_figure):
    display = HistoryDisplay(RECORDS, name="EP").plot(ax)
    assert display.line_.get_xydata().tolist() == [[1, -50], [2, -40], [3, -35]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "objective / nats")
    assert display.figure_ is ax.figure


def test_by_seconds(ax):
    display = HistoryDisplay(RECORDS).plot(ax, by="seconds")
    assert display.line_.get_xdata().tolist() == [0.25, 0.5, 0.75]
    assert [mark.get_offsets()[:, 0].tolist() for mark in display.events_] == [[0.5], [0.75]]
    assert ax.get_xlabel() == "seconds of training"


def test_events_are_marked_and_told(ax):
    display = HistoryDisplay(RECORDS, name="EP").plot(ax)
    assert [mark.get_offsets()[:, 0].tolist() for mark in display.events_] == [[2.0], [3.0]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["EP", "went back: why", "stopped"]


def test_the_same_event_is_told_once(ax):
    display = HistoryDisplay([record(1, -1.0), *(record(i, None, "went back") for i in (2, 5, 7))]).plot(ax)
    assert display.events_[0].get_offsets()[:, 0].tolist() == [2, 5, 7]
    assert display.events_[0].get_label() == "went back (3 times)"


def test_many_events_are_marked_but_not_all_told(ax):
    events = [record(i, -1.0, f"event {i}") for i in range(1, MAX_EVENTS + 4)]
    display = HistoryDisplay(events).plot(ax)
    assert len(display.events_) == MAX_EVENTS + 1
    assert display.events_[-1].get_label() == "3 other events"
    assert sum(len(mark.get_offsets()) for mark in display.events_) == len(events)


def test_long_events_are_cut(ax):
    display = HistoryDisplay([record(1, -1.0, "a" * 200)]).plot(ax)
    assert display.events_[0].get_label() == "a" * (MAX_LETTERS - 1) + "…"


def test_no_events_and_no_name_need_no_legend(ax):
    display = HistoryDisplay([record(1, -1.0)]).plot(ax)
    assert display.events_ == []
    assert ax.get_legend() is None


def test_two_on_the_same_axes_have_two_colors(ax):
    lines = [HistoryDisplay(RECORDS, name=name).plot(ax).line_ for name in ("one", "two")]
    assert lines[0].get_color() != lines[1].get_color()


def test_of_a_fit(ax):
    clf = GPClassifier("sep", n_inducing=5, max_epochs=4, calibrate=False).fit(*make_waveform(60, random_state=0))
    display = HistoryDisplay.from_estimator(clf, ax=ax, color="red")
    expected = [[found["epoch"], found["objective"]] for found in clf.history_]
    np.testing.assert_array_equal(display.line_.get_xydata(), expected)
    assert (display.line_.get_label(), display.line_.get_color()) == ("SEP", "red")


def test_a_stream_has_epochs_but_no_seconds(ax):
    X, y = make_waveform(60, random_state=0)
    clf = GPClassifier("sep", n_inducing=5).partial_fit(X[:40], y[:40], classes=[0, 1, 2]).partial_fit(X[40:], y[40:])
    assert HistoryDisplay.from_estimator(clf, ax=ax).line_.get_xdata().tolist() == [1, 2]
    if clf.history_[0].get("seconds") is None:
        with pytest.raises(ValueError, match="use by='epoch'"):
            HistoryDisplay.from_estimator(clf, ax=ax, by="seconds")


def test_without_an_objective_there_is_nothing_to_draw(ax):
    with pytest.raises(ValueError, match="no objective"):
        HistoryDisplay([record(1, None)]).plot(ax)


def test_epochs_are_whole_numbers_on_any_axes(ax):
    ax.set_xscale("log")
    HistoryDisplay(RECORDS).plot(ax)
    assert all(tick == round(tick) for tick in ax.get_xticks())


def test_other_arguments_are_named(ax):
    with pytest.raises(ValueError, match="by='hour'"):
        HistoryDisplay(RECORDS).plot(ax, by="hour")
    with pytest.raises(TypeError, match="got SimpleNamespace without history_"):
        HistoryDisplay.from_estimator(SimpleNamespace())


def test_without_axes_it_opens_a_figure():
    from matplotlib import pyplot

    assert HistoryDisplay(RECORDS).plot().figure_ is pyplot.gcf()
