"""Advice on the rows: too few, seen before, lopsided, far away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cavity.report.evidence import Evidence, counted, listed
from cavity.report.findings import Advice
from cavity.report.unsure import is_far

FEW_ROWS, FEW_OF_A_CLASS, FEW_TO_LEARN = 100, 10, 10
LOPSIDED = 10  # rows of the largest class for one of the smallest
MANY_FAR = 0.02


def _training_rows(e: Evidence) -> Iterator[Advice]:
    if e.is_training:
        what = "These are the rows that the model learned from: its scores here are better than on new rows."
        yield Advice("warning", what, "Keep rows aside before `fit` (train_test_split) and report on those.")
    elif e.n_known:
        what = f"{counted(e.n_known, 'row')} of {len(e.y):,} are also among the training rows, label and all."
        remedy = "Leave copies out of one of the two. Where features take few values, rows may be equal by chance."
        yield Advice("warning" if e.is_known_by_heart else "note", what, remedy)


def _sampled(e: Evidence) -> Iterator[Advice]:
    if len(e.y) < e.n_given:
        what = f"A random sample of {len(e.y):,} of the {e.n_given:,} rows was looked at."
        yield Advice("note", what, "For scores of all rows use cavity.metrics, or `cavity evaluate`.")


def _few(e: Evidence) -> Iterator[Advice]:
    few = e.counts < FEW_OF_A_CLASS
    if len(e.y) < FEW_ROWS:
        what = f"There are {counted(len(e.y), 'row')} only, so every interval is wide."
        yield Advice("note", what, "Report on more rows, if there are any.")
    elif few.any():
        what = f"Fewer than {FEW_OF_A_CLASS} rows are of {e.named(few)}: little can be said of them."
        yield Advice("note", what, "Collect more rows of these classes to report on.")


def _few_to_learn(e: Evidence) -> Iterator[Advice]:
    learned = e.learned_counts
    if learned is not None and (few := learned < FEW_TO_LEARN).any():
        what = f"The model learned from fewer than {FEW_TO_LEARN} rows of {e.named(few)}."
        yield Advice("warning", what, "Collect more training rows of these classes, or merge them with others.")


def _lopsided(e: Evidence) -> Iterator[Advice]:
    counts = e.counts if e.learned_counts is None else e.learned_counts
    if counts.max() < LOPSIDED * max(counts.min(), 1) or e.setting("class_weight") is not None:
        return
    what = (f"The classes are lopsided: {counted(int(counts.max()), 'row')} of {e.classes[counts.argmax()]}, "
            f"{counts.min():,} of {e.classes[counts.argmin()]}.")  # fmt: skip
    yield Advice("note", what, "If rare classes matter as much as common ones: class_weight='balanced'.")


def _never_predicted(e: Evidence) -> Iterator[Advice]:
    missed = (e.counts > 0) & (np.bincount(e.guess, minlength=len(e.classes)) == 0)
    if missed.any():
        rows = counted(int(e.counts[missed].sum()), "row")
        what = f"Never predicted, though {rows} bear the label: {e.named(missed)}."
        remedy = "Collect more training rows of it, or fit with class_weight='balanced'. See what it is taken for."
        yield Advice("warning", what, remedy)


def _far(e: Evidence) -> Iterator[Advice]:
    share = float(is_far(e.entropy.epistemic, len(e.classes)).mean())
    if share >= MANY_FAR:
        what = f"{100 * share:.0f} % of the rows are far from everything the model has learned from."
        remedy = ("Do not trust predictions there: set rows of large epistemic entropy aside (clf.uncertainty) and add "
                  "rows like them to the training rows.")  # fmt: skip
        yield Advice("warning", what, remedy)


def _constant(e: Evidence) -> Iterator[Advice]:
    if e.is_constant.any() and len(e.y) >= FEW_ROWS:
        names = [name for name, constant in zip(e.features, e.is_constant, strict=True) if constant]
        verb = "is" if len(names) == 1 else "are"
        what = f"{counted(len(names), 'feature')} {verb} the same in every row: {listed(names)}."
        yield Advice("note", what, "Leave them out, unless rows to come will differ in them.")


ON_ROWS = (_training_rows, _sampled, _few, _few_to_learn, _lopsided, _never_predicted, _far, _constant)
