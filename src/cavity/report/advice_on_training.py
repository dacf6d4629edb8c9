"""Advice on training: what was noted on the way, and whether it came to an end."""

from __future__ import annotations

from collections.abc import Iterator

from cavity.report.course import is_rising
from cavity.report.evidence import Evidence, counted
from cavity.report.findings import Advice

OFTEN = 5  # steps back
MOST_QUOTED = 120  # characters
SHARP = 2.0

# How an event begins, the level, what it means, and what to do about it.
EVENTS = [
    ("not calibrated", "warning", "The probabilities were not calibrated, since a fit of one fold failed",
     "Fit again with a larger noise or a smaller learning_rate, or calibrate with other folds: calibrate=5."),
    ("stopped", "note", "Training was stopped before its end, and nothing was calibrated",
     "Fit again to the end, or with a checkpoint folder and resume=True go on from there."),
    ("dtype=", "note", "float32 was too coarse for these rows, so distances were computed in float64",
     "Use dtype='float64', or bring far rows nearer with scaling='quantile'."),
    ("hyper-parameters kept", "note", "Some batches could not move the kernel",
     "Give partial_fit larger batches, or a smaller learning_rate."),
    ("passed over a checkpoint", "note", "A damaged checkpoint was passed over", "See that the disk is sound."),
]  # fmt: skip
SETBACKS = ("went back", "rejected a step")


def _events(e: Evidence) -> Iterator[Advice]:
    texts = [text for _, text in e.course.events]
    for start, level, what, remedy in EVENTS:
        found = [text for text in texts if text.startswith(start)]
        if found:
            yield Advice(level, f"{what}{_quoted(found[-1], start)}.", remedy)


def _quoted(event: str, start: str) -> str:
    """What was noted, in short, where it says more than its start."""
    rest = event.removeprefix(start).lstrip(": ")
    return f" ({rest[:MOST_QUOTED]}{'…' if len(rest) > MOST_QUOTED else ''})" if rest else ""


def _setbacks(e: Evidence) -> Iterator[Advice]:
    found = [text for _, text in e.course.events if text.startswith(SETBACKS)]
    if found:
        times, last = counted(len(found), "time"), found[-1][:MOST_QUOTED]
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
