"""Advice on the scores: calibration, and how simpler models do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cavity.report.baselines import FREQUENCIES
from cavity.report.course import is_rising
from cavity.report.evidence import Evidence, counted, listed
from cavity.report.findings import Advice, Array
from cavity.report.intervals import Z, row_losses

SMALL = 0.01  # calibration error that matters to no one, whatever can be proved
BLIND = 0.1  # calibration error by chance that hides too much
SURE = 0.95
FAR_OFF = 3.5  # standard deviations, for a look at many classes at once


def _calibration(e: Evidence) -> Iterator[Advice]:
    found, limit = e.scores[0].ece.value, float(np.quantile(e.chance, 0.95))
    by_chance = f"a model with no fault shows up to {limit:.3f} on so many rows"
    if found > limit:
        how, remedy = _fault(e)
        level = "warning" if found > SMALL else "note"
        yield Advice(level, f"The probabilities are {how}. Calibration error {found:.3f}; {by_chance}.", remedy)
    elif limit > BLIND:
        what = f"Nothing can be said of calibration: its error is {found:.3f}, and {by_chance}."
        yield Advice("note", what, "Report on more rows.")
    else:
        what = f"The probabilities are calibrated within the noise: calibration error {found:.3f}; {by_chance}."
        yield Advice("good", what, "They can be used as they are: for thresholds, costs and ranking.")


def _fault(e: Evidence) -> tuple[str, str]:
    """Over- or under-confident, and what to do about it."""
    confidence, accuracy = np.exp(e.log_p.max(1)), float((e.guess == e.y).mean())
    mean, noise = float(confidence.mean()), Z * float(np.sqrt((confidence * (1 - confidence)).mean() / len(e.y)))
    numbers = f"{100 * mean:.1f} % sure on average, and right in {100 * accuracy:.1f} %"
    if abs(mean - accuracy) <= noise:
        return f"right on average, but too high in some rows and too low in others ({numbers})", _remedy(e, "both")
    return (f"over-confident: {numbers}", _remedy(e, "over")) if mean > accuracy else (
        f"under-confident: {numbers}", _remedy(e, "under"))  # fmt: skip


def _remedy(e: Evidence, fault: str) -> str:
    if e.setting("calibrate") is False:
        return "Fit again with calibrate=True."
    if fault == "over" and e.setting("method_") == "vi":
        return "Fit again with method='ep', which is less over-confident where classes overlap."
    if fault == "under":
        return "Fit again with more inducing points (n_inducing): what they do not explain counts as noise."
    return "See whether these rows are like the training rows; if they are not, add some like them to those."


def _shares(e: Evidence) -> Iterator[Advice]:
    """Classes that come more or less often than their probabilities add up to."""
    p = np.exp(e.log_p)
    expected, noise = p.sum(0), np.sqrt((p * (1 - p)).sum(0) + 1.0)
    off = np.abs(e.counts - expected) > FAR_OFF * noise
    for k in np.flatnonzero(off)[:3]:
        often = "more" if e.counts[k] > expected[k] else "less"
        what = (f"{e.classes[k]} comes {often} often than its probabilities say: {counted(int(e.counts[k]), 'row')}, "
                f"where {expected[k]:.0f} were to be expected.")  # fmt: skip
        yield Advice("warning", what, "Shares of classes may have shifted: fit again with rows like these.")


def _sure_and_wrong(e: Evidence) -> Iterator[Advice]:
    is_sure = np.exp(e.log_p.max(1)) >= SURE
    wrong = int((is_sure & (e.guess != e.y)).sum())
    if wrong:
        verb = "is" if wrong == 1 else "are"
        what = (
            f"Of {counted(int(is_sure.sum()), 'row')} with {100 * SURE:.0f} % confidence or more, {wrong} {verb} wrong."
        )
        yield Advice("note", what, "Look at them in the list of rows: wrong labels are a common cause.")


def _baselines(e: Evidence) -> Iterator[Advice]:
    """Row by row against each baseline; only differences that chance does not explain."""
    verdicts = {baseline.name: _verdict(e, baseline.log_p) for baseline in e.baselines}
    worse = [name for name, verdict in verdicts.items() if "worse" in verdict]
    for name in worse:
        yield Advice("warning", _better(e, name, *verdicts[name]), _what_to_try(e, name))
    rivals = [name for name in verdicts if name != FREQUENCIES]
    if rivals and not worse:
        yield _no_worse(e, rivals, [name for name in rivals if verdicts[name][1] == "better"])


def _better(e: Evidence, name: str, by_error: str, by_nll: str) -> str:
    """In what a baseline beats the model, and only that."""
    own, other = e.scores[0], {score.name: score for score in e.scores}[name]
    errors = f"fewer errors ({100 * other.error.value:.1f} % against {100 * own.error.value:.1f} %)"
    surprise = f"better probabilities (NLL {other.nll.value:.3f} against {own.nll.value:.3f})"
    parts = [text for text, verdict in ((errors, by_error), (surprise, by_nll)) if verdict == "worse"]
    verb = "have" if name.endswith("s") else "has"
    return f"{name.capitalize()} {verb} {' and '.join(parts)}."


def _no_worse(e: Evidence, rivals: list[str], beaten: list[str]) -> Advice:
    fair = "" if e.n_known is not None else " These learned from folds of this data: give `train` to be fair to them."
    if len(beaten) == len(rivals):
        return Advice("good", f"Better probabilities (NLL) than {listed(rivals)}.{fair}", "Nothing to do.")
    equal = [name for name in rivals if name not in beaten]
    what = f"No better than {listed(equal)} by more than chance.{fair}"
    return Advice(
        "note", what, f"More rows may tell them apart; else the simplest will do. {_what_to_try(e, equal[0])}"
    )


def _verdict(e: Evidence, log_p: Array) -> tuple[str, str]:
    """By error and by NLL."""
    wrong = [(part.argmax(1) != e.y).astype(np.float64) for part in (e.log_p, log_p)]
    return _compared(*wrong), _compared(row_losses(e.y, e.log_p)[0], row_losses(e.y, log_p)[0])


def _compared(own: Array, other: Array) -> str:
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        own_is_finite, other_is_finite = np.isfinite(own).all(), np.isfinite(other).all()
        return "better" if own_is_finite else "worse" if other_is_finite else "equal"
    difference = own - other
    noise = Z * difference.std() / np.sqrt(len(difference))
    if abs(difference.mean()) <= noise:
        return "equal"
    return "better" if difference.mean() < 0 else "worse"


def _what_to_try(e: Evidence, name: str) -> str:
    """By what the baseline is good at."""
    if name == FREQUENCIES:
        return "The model has learned nothing of use: see that rows and labels belong together, then train longer."
    more = [f"n_inducing={2 * e.n_inducing}"] if e.n_inducing and not e.is_crowded else []
    more += ["a larger max_epochs"] if is_rising(e.course) else []
    if name == "logistic regression":
        return f"Try {listed(['kernel=RBF() + Linear() + Constant(), which holds planes as well', *more])}."
    scaling = [] if e.setting("scaling") == "quantile" else ["scaling='quantile'"]
    return f"Try {listed(['kernel=Matern52()', *scaling, *more])}."


ON_SCORES = (_calibration, _shares, _sure_and_wrong, _baselines)
