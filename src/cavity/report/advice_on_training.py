"""Advice on training: what was noted on the way, and whether it came to an end."""

from __future__ import annotations

from collections.abc import Iterator

from cavity.report.course import is_rising
from cavity.report.evidence import Evidence, counted
from cavity.report.findings import Advice
from cavity.training import Event, describe

OFTEN = 5  # steps back
MOST_QUOTED = 120  # characters
SHARP = 2.0

# Events, the level, what it means, and what to do about it.
EVENTS = [
    ((Event.CALIBRATION_FAILED,), "warning", "The probabilities were not calibrated, since a fit of one fold failed",
     "Fit again with a larger noise or a smaller learning_rate, or calibrate with other folds: calibrate=5."),
    ((Event.STOPPED, Event.CALIBRATION_STOPPED), "note",
     "Training was stopped before its end, and nothing was calibrated",
     "Fit again to the end, or with a checkpoint folder and resume=True go on from there."),
    ((Event.DTYPE_TOO_COARSE,), "note", "float32 was too coarse for these rows, so distances were computed in float64",
     "Use dtype='float64', or bring far rows nearer with scaling='quantile'."),
    ((Event.HYPERPARAMETERS_KEPT,), "note", "Some batches could not move the kernel",
     "Give partial_fit larger batches, or a smaller learning_rate."),
    ((Event.CHECKPOINT_SKIPPED,), "note", "A damaged checkpoint was skipped", "See that the disk is sound."),
]  # fmt: skip
SETBACKS = (Event.STEP_REJECTED, Event.EVALUATION_REJECTED)


def _events(e: Evidence) -> Iterator[Advice]:
    for events, level, what, remedy in EVENTS:
        found = [record for record in e.course.records if record["event"] in events]
        if found:
            yield Advice(level, f"{what}{_quoted(found[-1].get('reason', ''))}.", remedy)


def _quoted(reason: str) -> str:
    """The reason in short, if there is one."""
    return f" ({reason[:MOST_QUOTED]}{'…' if len(reason) > MOST_QUOTED else ''})" if reason else ""


def _setbacks(e: Evidence) -> Iterator[Advice]:
    found = [record for record in e.course.records if record["event"] in SETBACKS]
    if found:
        times, last = counted(len(found), "time"), describe(found[-1])[:MOST_QUOTED]
        what = f"Training went too far and had to step back {times} (last: {last})."
        remedy = (
            "It went on from there. If scores disappoint: a smaller learning_rate, or a larger noise to start with."
        )
        yield Advice("warning" if len(found) > OFTEN else "note", what, remedy)


def _unsettled(e: Evidence) -> Iterator[Advice]:
    if is_rising(e.course):
        epochs = counted(int(getattr(e.clf, "n_iter_", e.course.epoch[-1])), "epoch")
        what = f"Training had not settled after {epochs}: its objective was still rising."
        yield Advice("warning", what, _longer(e))


def _longer(e: Evidence) -> str:
    if e.setting("max_seconds") is not None:
        return f"Fit again with more than max_seconds={e.setting('max_seconds')}."
    epochs = max(1, int(getattr(e.clf, "n_iter_", 1)))
    return f"Fit again with max_epochs={2 * epochs} or more."


def _crowded(e: Evidence) -> Iterator[Advice]:
    if e.is_crowded and e.learned_counts is not None:
        rows, points = counted(int(e.learned_counts.sum()), "training row"), counted(e.n_inducing, "inducing point")
        remedy = f"Nothing is lost but time; n_inducing={max(1, e.n_inducing // 2)} is likely to do as well."
        yield Advice("note", f"{points} of each class for {rows}: little is summarized.", remedy)


def _sharpness(e: Evidence) -> Iterator[Advice]:
    sharpness = float(getattr(e.clf, "sharpness_", 1.0))
    if sharpness > SHARP:
        what = f"Calibration had to make the probabilities much sharper ({sharpness:.1f} times): the model is timid."
        more = "training rows" if e.is_crowded else "inducing points (n_inducing)"
        yield Advice("note", what, f"More {more} explain more, and leave less to calibration.")
    elif sharpness < 1 / SHARP:
        what = f"Calibration had to make the probabilities much flatter ({sharpness:.2f} times): the model over-fits."
        yield Advice("note", what, "Keep priors='default'; collect more rows; leave features out that do not matter.")


ON_TRAINING = (_events, _setbacks, _unsettled, _crowded, _sharpness)
