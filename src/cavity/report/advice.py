"""Advice: what went well, what went wrong, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.gp.probabilities import Uncertainty
from cavity.metrics import Array, CalibrationCheck, Indices, Mask, ScoreIntervals, Z, row_losses
from cavity.report.baselines import FREQUENCIES, Baseline
from cavity.report.findings import Advice, ColumnSummary, TrainingCurve
from cavity.report.text import NEGLIGIBLE_ECE, between, calibration_verdict, counted, listed, number
from cavity.report.text import name as shortened
from cavity.report.uncertain import is_far

Parts = Iterator[tuple[str, str, str]]  # level, what, remedy

LEVELS = ("warning", "note", "good")
FEW_ROWS, FEW_OF_A_CLASS, FEW_TRAINING_ROWS = 100, 10, 10
IMBALANCED = 10  # rows of the largest class for one row of the smallest
MANY_FAR = 0.02  # share of rows far from the training rows
MANY_INDUCING = 0.5  # inducing points for each training row
MANY_KNOWN = 0.05  # share of rows that are training rows, beyond chance
CONFIDENT = 0.95
MANY_SDS = 3.5  # standard deviations, because many classes are tested at once
TOLERABLE_ECE = 0.05  # an error up to which probabilities are useful
MANY_SETBACKS = 5
SHARP = 2.0
MANY_GAPS = 0.5  # share of the rows without a value
OTHER_GAPS = 0.05  # difference in the shares of gaps that matters
MANY_UNSEEN = 0.05  # share of the rows with a level that training did not have
LONGEST_QUOTE = 120  # characters

# Training events, level, meaning, remedy.
EVENTS = [
    (("calibration_failed",), "warning", "The probabilities were not calibrated, because the fit of one fold failed",
     "Fit again with a larger noise or a smaller learning_rate, or use other folds: calibrate=5."),
    (("stopped", "calibration_stopped"), "note",
     "Training was stopped early, and the probabilities were not calibrated",
     "Fit again without a stop, or continue from a checkpoint with resume=True."),
    (("dtype_too_coarse",), "note",
     "float32 was not precise enough for these rows, so distances were computed in float64",
     "Use dtype='float64', or reduce outliers with scaling='quantile'."),
    (("hyperparameters_kept",), "note", "Some batches could not update the kernel",
     "Use larger batches in partial_fit, or a smaller learning_rate."),
    (("shrunk",), "warning",
     "Class frequencies were better than the model on held-out rows, so probabilities were shrunk towards them",
     "Train longer, and check that rows and labels match."),
    (("rows_left_out",), "warning", "Some rows of partial_fit were not learned from",
     "Check these rows for extreme values, or use scaling='quantile'."),
    (("not_converged",), "warning", "Inference has not converged", "Fit again with more epochs or a lower damping."),
    (("factors_left_out",), "warning", "Some rows are left out of log Z",
     "Fit again with a larger noise or a lower damping."),
    (("jitter_added",), "warning", "A covariance matrix was nearly singular",
     "Fit again with fewer inducing points or a larger noise."),
    (("checkpoint_skipped",), "note", "A damaged checkpoint was skipped", "Check the disk for errors."),
]  # fmt: skip

# Arguments, and the options that replace them on a page from the command line; some exist in Python only.
OPTIONS = [
    (r"n_inducing=(\d+)", r"`--inducing \1`"),
    (r"\(n_inducing\)", "(`--inducing`)"),
    (r"max_epochs=(\d+)", r"`--epochs \1`"),
    (r"a larger max_epochs", "more `--epochs`"),
    (r"max_seconds=(\S+)\.$", r"`--seconds \1`."),
    (r"(method|scaling)='(\w+)'", r"`--\1 \2`"),
    (r"class_weight='balanced'", "`--class-weight balanced`"),
    (r"kernel=Matern52\(\)", "`--kernel matern52`"),
    (r"resume=True", "`--resume`"),
    (r"pass `train`", "name the training file with `--train`"),
    (r"Hold out rows before `fit` \(train_test_split\) and report on those",
     "Report on other rows, or fit with `--holdout`"),
    (r"cavity\.metrics or ", ""),
    (r"clf\.uncertainty", "`cavity predict --uncertainty`"),
    (r"Keep priors='default', collect", "Collect"),
    (r"name it in categorical_features", "name it with `--categorical`"),
    (r"(kernel=RBF\(\) \+ Linear\(\) \+ Constant\(\)|calibrate=\w+|learning_rate|dtype='\w+'|partial_fit)",
     r"\1 (in Python)"),
]  # fmt: skip


def as_options(text: str) -> str:
    """Replace arguments in advice by options of the command line.

    >>> as_options("Fit again with n_inducing=200 and method='ep'.")
    'Fit again with `--inducing 200` and `--method ep`.'
    """
    for pattern, option in OPTIONS:
        text = re.sub(pattern, option, text)
    return text


@dataclass(frozen=True)
class Evidence:
    """Everything that is known about a model and the rows it was examined on."""

    clf: Any
    classes: list[str]
    features: list[str]
    y: Indices  # labels of the examined rows, 0 … C−1
    log_p: Array  # their log-probabilities, (N, C)
    n_given: int  # rows in the given data
    entropy: Uncertainty  # of a random sample of the examined rows
    scores: list[ScoreIntervals]  # of the model, then of the baselines
    calibration: CalibrationCheck
    baselines: list[Baseline]  # with their predictions for the same rows
    training: TrainingCurve
    is_constant: Mask  # features that are the same in every row
    is_training: bool  # whether these are the training rows
    n_known: int | None  # examined rows that are among the given training rows; None if none were given
    columns: list[ColumnSummary] = field(default_factory=list)  # empty if all are numbers without gaps
    is_command_line: bool = False  # whether advice names options instead of arguments

    @property
    def counts(self) -> Indices:
        """Examined rows of each class."""
        return np.bincount(self.y, minlength=len(self.classes))

    @property
    def training_counts(self) -> Indices | None:
        """Training rows of each class, if known."""
        counts = (getattr(self.clf, "training_", None) or {}).get("class_counts")
        return None if counts is None or len(counts) != len(self.classes) else np.asarray(counts, dtype=np.int64)

    @property
    def no_verdict(self) -> str:
        """Why these rows cannot tell how good the model is: too many are training rows. Empty if they can."""
        known = self.n_known or 0
        if self.is_training or known == len(self.y):
            return "the model was trained on these rows"
        return f"{known:,} of the {len(self.y):,} rows are training rows" if known > MANY_KNOWN * len(self.y) else ""

    @property
    def predicted(self) -> Indices:
        """The most probable class of each row."""
        return self.log_p.argmax(1)

    @property
    def n_inducing(self) -> int:
        """Inducing points of each class."""
        shape = np.shape(getattr(self.clf, "inducing_points_", ()))
        return shape[1] if len(shape) == 3 else 0

    @property
    def is_searched(self) -> bool:
        """Whether a search has chosen the settings, and all rows were used at once, as by default for small tables."""
        posterior = getattr(self.clf, "posterior_", None)
        return posterior is not None and not posterior.prior.noise_in_u

    @property
    def has_many_inducing(self) -> bool:
        """Whether there are almost as many inducing points as training rows."""
        counts = self.training_counts
        return counts is not None and self.n_inducing >= MANY_INDUCING * max(int(counts.sum()), 1)

    def names_of(self, which: Mask) -> str:
        """List the classes of a selection."""
        return listed([name for name, chosen in zip(self.classes, which, strict=True) if chosen])


def give_advice(evidence: Evidence) -> list[Advice]:
    """Return all advice, warnings first; none on probabilities and baselines if the model was trained on these rows."""
    checks = [_rows, _classes, _features, _columns, _confident_errors, _training, _approximation]
    if not evidence.no_verdict:
        checks += [_probabilities, _baselines]
    found = [Advice(*part) for check in checks for part in check(evidence)]
    if evidence.is_command_line:
        found = [advice._replace(what=as_options(advice.what), remedy=as_options(advice.remedy)) for advice in found]
    return sorted(found, key=lambda advice: LEVELS.index(advice.level))


def _rows(e: Evidence) -> Parts:
    if e.is_training:
        what = "The model was trained on these rows, so its scores are better here than on new rows."
        yield "warning", what, "Hold out rows before `fit` (train_test_split) and report on those."
    elif e.n_known:
        verb = "is" if e.n_known == 1 else "are"
        what = f"{counted(e.n_known, 'row')} of {len(e.y):,} {verb} also in the training data, with the same label."
        remedy = "Remove duplicates from one of the two. If features have few values, rows can be equal by chance."
        yield "warning" if e.no_verdict else "note", what, remedy
    if len(e.y) < e.n_given:
        what = f"This report is based on a random sample of {len(e.y):,} of the {e.n_given:,} rows."
        yield "note", what, "To score all rows, use cavity.metrics or `cavity evaluate`."
    if len(e.y) < FEW_ROWS:
        what = f"The report has only {counted(len(e.y), 'row')}, so all intervals are wide."
        yield "note", what, "Report on more rows if you can."


def _classes(e: Evidence) -> Parts:
    few = e.counts < FEW_OF_A_CLASS
    if few.any() and len(e.y) >= FEW_ROWS:
        what = f"Fewer than {FEW_OF_A_CLASS} rows have the label {e.names_of(few)}, so their scores are uncertain."
        yield "note", what, "Collect more test rows of these classes."
    trained = e.counts if e.training_counts is None else e.training_counts
    few = trained < FEW_TRAINING_ROWS
    if few.any() and e.training_counts is not None:
        what = f"The model was trained on fewer than {FEW_TRAINING_ROWS} rows of {e.names_of(few)}."
        yield "warning", what, "Collect more training rows of these classes, or merge them with others."
    if trained.max() >= IMBALANCED * max(trained.min(), 1) and getattr(e.clf, "class_weight", None) is None:
        most, least = e.classes[trained.argmax()], e.classes[trained.argmin()]
        what = f"The classes are imbalanced: {counted(trained.max(), 'row')} of {most}, {trained.min():,} of {least}."
        yield "note", what, "If rare classes matter as much as common ones, use class_weight='balanced'."
    missed = (e.counts > 0) & (np.bincount(e.predicted, minlength=len(e.classes)) == 0)
    if missed.any():
        verb, labels = ("is", "this label") if missed.sum() == 1 else ("are", "these labels")
        n_rows = int(e.counts[missed].sum())
        have = f"{counted(n_rows, 'row')} {'has' if n_rows == 1 else 'have'} {labels}"
        remedy = "Collect more training rows of these classes, or use class_weight='balanced'. The confusion matrix " \
                 "shows what is predicted instead."  # fmt: skip
        yield "warning", f"{e.names_of(missed)} {verb} never predicted, although {have}.", remedy


def _features(e: Evidence) -> Parts:
    far = float(is_far(e.entropy.epistemic, len(e.classes)).mean())
    if far >= MANY_FAR:
        remedy = "Do not rely on predictions there: set rows of large epistemic uncertainty aside (clf.uncertainty), " \
                 "and add similar rows to the training data."  # fmt: skip
        yield "warning", f"{100 * far:.0f} % of the rows are far from all training rows.", remedy
    if e.is_constant.any() and len(e.y) >= FEW_ROWS:
        names = [name for name, constant in zip(e.features, e.is_constant, strict=True) if constant]
        verb = "is" if len(names) == 1 else "are"
        what = f"{counted(len(names), 'feature')} {verb} constant: {listed(names)}."
        yield "note", what, "Remove constant features, unless they will vary in future rows."


def _columns(e: Evidence) -> Parts:
    """Gaps, levels and columns left out."""
    yield from _gaps(e)
    unseen = {column.name: sum(n for _, n in column.unseen) for column in e.columns if column.unseen}
    if unseen:
        levels = [f"{column.name} in {counted(unseen[column.name], 'row')} "
                  f"({listed([shortened(level, 20) for level, _ in column.unseen], 3)})"
                  for column in e.columns if column.unseen]  # fmt: skip
        what = f"Of {len(e.y):,} rows, some have levels that the training rows do not have: {listed(levels)}."
        remedy = "The model treats them as none of the known levels. To learn about them, fit again with such rows."
        yield "warning" if max(unseen.values()) > MANY_UNSEEN * len(e.y) else "note", what, remedy
    rare = [f"{column.n_rare:,} of {column.name}" for column in e.columns if column.n_rare]
    if rare:
        what = f"Levels with few training rows share one indicator: {listed(rare)}."
        yield "note", what, "Merge rare levels that mean the same, or collect more rows of them."
    left_out = [column for column in e.columns if not column.features]
    if left_out:
        what = listed([f"{column.name} is {column.reading}" for column in left_out])
        remedy = "Remove columns without values."
        if any("text" in column.reading for column in left_out):
            remedy = "The model does not see such a column. If it is a category, name it in categorical_features. If " \
                     "a part of its text says something, make that a column."  # fmt: skip
        yield "note", f"{what}.", remedy


def _gaps(e: Evidence) -> Parts:
    differ, new, many = list[str](), list[str](), list[str]()
    n_train = max((getattr(e.clf, "training_", None) or {}).get("rows", 0), 1)
    for column in e.columns:
        before, here = column.gaps, column.gaps_here
        if here is None:
            continue
        if before is not None and len(e.y) >= FEW_ROWS:
            pooled = (before * n_train + here * len(e.y)) / (n_train + len(e.y))
            noise = np.sqrt(pooled * (1.0 - pooled) * (1.0 / n_train + 1.0 / len(e.y)))
            if abs(here - before) > max(OTHER_GAPS, MANY_SDS * noise):
                shares = f"{100 * here:.0f} % here" + (f", {100 * before:.0f} % in training" if before else "")
                (differ if before else new).append(f"{column.name} ({shares})")
                continue
        share = here if before is None else before
        if share >= MANY_GAPS:
            many.append(f"{column.name} ({100 * share:.0f} %)")
    if differ:
        what = f"The share of gaps differs between these rows and the training rows: {listed(differ)}."
        yield "warning", what, "A gap is evidence for the model, as a value is: check that gaps have the same causes."
    if new:
        remedy = "The model reads a gap in numbers as the typical value, and one in a category as none of the known " \
                 "levels. Fit again with rows that have such gaps."  # fmt: skip
        yield "warning", f"These rows have gaps where the training rows have none: {listed(new)}.", remedy
    if many:
        what = f"{counted(len(many), 'column')} {'has' if len(many) == 1 else 'have'} many gaps: {listed(many)}."
        remedy = "The model learns what a gap means. This helps if future rows have gaps for the same reasons."
        yield "note", what, remedy


def _probabilities(e: Evidence) -> Parts:
    ece, mean, accuracy, fault = e.calibration
    measured = f"The calibration error is {number(ece.value)} (95 % interval {between(ece)})."
    if fault is not None:
        how = "correct on average, but too high in some rows and too low in others" if fault == "mixed" else fault
        shares = f"mean confidence {100 * mean:.1f} %, accuracy {100 * accuracy:.1f} %"
        remedy = "Check that these rows are similar to the training rows; if not, add such rows to the training data."
        if getattr(e.clf, "calibrate", None) is False:
            remedy = "Fit again with calibrate=True."
        elif fault == "overconfident" and getattr(e.clf, "method_", None) == "vi":
            remedy = "Fit again with method='ep', which is less overconfident where classes overlap."
        elif fault == "underconfident" and not e.is_searched:
            remedy = "Fit again with more inducing points (n_inducing): what they do not explain counts as noise."
        level = "warning" if ece.high > NEGLIGIBLE_ECE else "note"
        yield level, f"The probabilities are {how}: {shares}. {measured}", remedy
    else:
        rows, verdict = counted(len(e.y), "row"), calibration_verdict(e.calibration)
        remedy = "More rows would show smaller errors."
        if ece.high <= TOLERABLE_ECE:
            remedy = "The probabilities can be used for thresholds and costs that tolerate such an error."
        what = f"On {rows} there is {verdict}. {measured}"
        yield "good" if ece.high <= TOLERABLE_ECE else "note", what, remedy
    p = np.exp(e.log_p)
    expected, noise = p.sum(0), np.sqrt((p * (1 - p)).sum(0) + 1.0)
    for k in np.flatnonzero(np.abs(e.counts - expected) > MANY_SDS * noise)[:3]:
        more, rows = "more" if e.counts[k] > expected[k] else "less", counted(e.counts[k], "row")
        what = f"{e.classes[k]} is {more} frequent than its probabilities predict: {rows}, {expected[k]:.0f} expected."
        yield "warning", what, "Class frequencies may have shifted: fit again with rows like these."


def _confident_errors(e: Evidence) -> Parts:
    is_confident = np.exp(e.log_p.max(1)) >= CONFIDENT
    wrong = int((is_confident & (e.predicted != e.y)).sum())
    if wrong:
        rows, verb = counted(is_confident.sum(), "row"), "is" if wrong == 1 else "are"
        what = f"Of {rows} with a confidence of at least {100 * CONFIDENT:.0f} %, {wrong} {verb} wrong."
        yield "note", what, "Check them in the list of rows to review: wrong labels are a common cause."


def _baselines(e: Evidence) -> Parts:
    """Compare row by row with each baseline; only differences that chance does not explain count."""
    own, others, equal = e.scores[0], {score.name: score for score in e.scores}, []
    rivals, is_worse = [baseline.name for baseline in e.baselines if baseline.name != FREQUENCIES], False
    for name, log_p, _ in e.baselines:
        wrong = [(part.argmax(1) != e.y).astype(np.float64) for part in (e.log_p, log_p)]
        by_nll, other = _compare(row_losses(e.y, e.log_p)[0], row_losses(e.y, log_p)[0]), others[name]
        errors = f"fewer errors ({100 * other.error.value:.1f} % versus {100 * own.error.value:.1f} %)"
        nll = f"better probabilities (NLL {other.nll.value:.3f} versus {own.nll.value:.3f})"
        better = [text for text, verdict in ((errors, _compare(*wrong)), (nll, by_nll)) if verdict == "worse"]
        if better:
            is_worse, verb = True, "have" if name.endswith("s") else "has"
            yield "warning", f"{name.capitalize()} {verb} {' and '.join(better)}.", _what_to_try(e, name)
        if by_nll != "better" and name != FREQUENCIES:
            equal.append(name)
    fair = "" if e.n_known is not None else " Baselines were cross-fitted on this data: pass `train` for a fair test."
    if rivals and not is_worse and not equal:
        what = f"The probabilities (NLL) are better than those of {listed(rivals)}.{fair}"
        yield "good", what, "No action needed."
    elif rivals and not is_worse:
        what = f"The model is not significantly better than {listed(equal)}.{fair}"
        remedy = f"More rows may show a difference; if not, the simplest model is enough. {_what_to_try(e, equal[0])}"
        yield "note", what, remedy


def _compare(own: Array, other: Array) -> str:
    with np.errstate(invalid="ignore"):  # losses can be infinite
        difference = own - other
        mean, noise = difference.mean(), Z * difference.std() / np.sqrt(len(difference))
    if np.isnan(mean) or abs(mean) <= noise:
        return "equal"
    return "better" if mean < 0 else "worse"


def _what_to_try(e: Evidence, name: str) -> str:
    """Suggest settings that have the strengths of the baseline."""
    if name == FREQUENCIES:
        return "The model has learned nothing useful: check that rows and labels match, then train longer."
    if e.is_searched:  # the settings are chosen already
        return "Add columns that say more about the labels, or more rows. Otherwise use that model."
    more = [f"n_inducing={2 * e.n_inducing}"] if e.n_inducing and not e.has_many_inducing else []
    more += ["a larger max_epochs"] if e.training.is_rising() else []
    if name == "logistic regression":
        return f"Try {listed(['kernel=RBF() + Linear() + Constant(), which includes linear functions', *more])}."
    scaling = [] if getattr(e.clf, "scaling", None) == "quantile" else ["scaling='quantile'"]
    return f"Try {listed(['kernel=Matern52()', *scaling, *more])}."


def _training(e: Evidence) -> Parts:
    for kinds, level, what, remedy in EVENTS:
        reasons = [event.reason for event in e.training.events if event.kind in kinds]
        if reasons:
            quote = f"{reasons[-1][:LONGEST_QUOTE]}{'…' if len(reasons[-1]) > LONGEST_QUOTE else ''}"
            yield level, f"{what} ({quote})." if quote else f"{what}.", remedy
    undone = [event.text for event in e.training.events if event.kind in ("step_rejected", "evaluation_rejected")]
    if undone:
        what = f"Training undid a step {counted(len(undone), 'time')} (last: {undone[-1][:LONGEST_QUOTE]})."
        remedy = "It continued from there. If scores are poor, use a smaller learning_rate or a larger initial noise."
        yield "warning" if len(undone) > MANY_SETBACKS else "note", what, remedy
    if e.training.is_rising() and not e.is_searched:
        n_epochs = int(getattr(e.clf, "n_iter_", e.training.epoch[-1]))
        limit = getattr(e.clf, "max_seconds", None)
        more = f"more than max_seconds={limit}" if limit is not None else f"max_epochs={2 * max(1, n_epochs)} or more"
        what = f"Training had not converged after {counted(n_epochs, 'epoch')}: the objective was still increasing."
        yield "warning", what, f"Fit again with {more}."


def _approximation(e: Evidence) -> Parts:
    if e.has_many_inducing and e.training_counts is not None and not e.is_searched:
        points, rows = counted(e.n_inducing, "inducing point"), counted(e.training_counts.sum(), "training row")
        remedy = f"This costs only time; n_inducing={max(1, e.n_inducing // 2)} is probably as good."
        yield "note", f"{points} per class for {rows} are more than needed.", remedy
    sharpness = float(getattr(e.clf, "sharpness_", 1.0))
    if sharpness > SHARP:
        what = f"Calibration made the probabilities much sharper ({sharpness:.1f} times): the model is underconfident."
        yield (
            "note",
            what,
            "Where classes are well separated this is usual. No action is needed.",
        )
    elif sharpness < 1 / SHARP:
        what = f"Calibration made the probabilities much flatter ({sharpness:.2f} times): the model overfits."
        yield "note", what, "Keep priors='default', collect more rows, and remove irrelevant features."
