"""What the records of `defaults` show: tables, the geometric means over sets, verdicts and the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from cavity.bench.figures import STYLES, legend, new_figure, plain
from cavity.records import Record
from cavity.reproduce.common import Mean, grouped, markdown, mean_of
from cavity.reproduce.experiment import Config, Shown, Verdict

CHOICE = "choice"
PLAIN, CALIBRATED = "nll", "nll_calibrated"
TEXT = (
    "Means over folds; cells that lack folds are left out. Then the geometric mean over sets, and how far it is from "
    "the choice's on the same folds, ± a standard error."
)
WIDTH = 32  # of a name in the figure, in letters
MARKS = {PLAIN: (STYLES["ep"], "not calibrated", "white"), CALIBRATED: (STYLES["sep"], "calibrated", None)}

Cells = dict[tuple[str, str], list[Record]]


def folds_of(config: Config, data_set: str) -> int:
    """How many folds a set has: large sets have fewer."""
    return int(config.get("folds_of", {}).get(data_set, config["folds"]))


def show_results(records: list[Record], config: Config) -> Shown:
    """Two tables of NLL, one of sharpness and one of the choice alone."""
    cells = whole(records, config)
    parts = [
        TEXT,
        "### NLL of the validation rows, with calibration",
        _table(cells, config, CALIBRATED),
        "### The same fits without it",
        _table(cells, config, PLAIN),
        "### Sharpness",
        _table(cells, config, "sharpness", compare=False),
        "### The choice without and with calibration: expected calibration error, error",
        _choice_table(cells, config),
    ]
    done = [c for c in config["candidates"] if all((c["name"], data_set) in cells for data_set in config["sets"])]
    if CHOICE not in [c["name"] for c in done]:
        return Shown("\n\n".join(parts), [], {})
    return Shown("\n\n".join(parts), _verdicts(cells, config, done), {"defaults": _draw(cells, config, done)})


def whole(records: list[Record], config: Config) -> Cells:
    """The records of each candidate and set in the order of their folds, where no fold is missing."""
    groups = grouped(sorted(records, key=lambda r: r["fold"]), "candidate", "data_set")
    return {(c, d): group for (c, d), group in groups.items() if len(group) == folds_of(config, d)}


def log_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Mean:
    """Log of the ratio of two means over the same folds; its error to first order, fold by fold."""
    a, b = np.array(ours), np.array(theirs)
    return Mean(math.log(a.mean() / b.mean()), mean_of(a / a.mean() - b / b.mean()).se)


def compared(cells: Cells, sets: Sequence[str], ours: tuple[str, str], theirs: tuple[str, str]) -> Mean:
    """Log of the ratio of two geometric means over sets; each side is a candidate and a score."""
    pairs = [[[r[score] for r in cells[name, d]] for name, score in (ours, theirs)] for d in sets]
    found = [log_ratio(*pair) for pair in pairs]
    return Mean(float(np.mean([r.mean for r in found])), math.hypot(*(r.se for r in found)) / len(found))


def geometric_mean(cells: Cells, sets: Sequence[str], name: str, score: str) -> float:
    """Over sets, of the means over folds."""
    return math.exp(float(np.mean([math.log(_mean(cells[name, d], score)) for d in sets])))


def _mean(records: list[Record], score: str) -> float:
    return mean_of(r[score] for r in records).mean


def _percent(ratio: Mean) -> str:
    return f"{100 * math.expm1(ratio.mean):+.1f} ± {100 * math.exp(ratio.mean) * ratio.se:.1f} %"


def _table(cells: Cells, config: Config, score: str, compare: bool = True) -> str:
    sets, rows = config["sets"], []
    for candidate in config["candidates"]:
        name = candidate["name"]
        found = [cells.get((name, d)) for d in sets]
        row = [candidate["what"], *(f"{_mean(cell, score):.3f}" if cell else "" for cell in found)]
        row.append(f"{geometric_mean(cells, sets, name, score):.4f}" if all(found) else "")
        if compare:
            both = all(found) and all((CHOICE, d) in cells for d in sets) and name != CHOICE
            row.append(_percent(compared(cells, sets, (name, score), (CHOICE, score))) if both else "")
        rows.append(row)
    return markdown(["candidate", *sets, "geometric mean", *(["against the choice"] if compare else [])], rows)


def _choice_table(cells: Cells, config: Config) -> str:
    names = ("ece", "ece_calibrated", "error", "error_calibrated")
    rows = [
        [d, *(f"{_mean(cells[CHOICE, d], name):.3f}" for name in names)] for d in config["sets"] if (CHOICE, d) in cells
    ]
    return markdown(["set", "ECE", "with calibration", "error", "with calibration"], rows)


def _verdicts(cells: Cells, config: Config, done: list[dict[str, Any]]) -> list[Verdict]:
    sets = config["sets"]
    rivals = {c["name"]: c["what"] for c in done if c.get("kernel", "rbf") == "rbf"}
    level = {name: geometric_mean(cells, sets, name, CALIBRATED) for name in rivals}
    best = min(level, key=lambda name: level[name])
    before, after = geometric_mean(cells, sets, CHOICE, PLAIN), level[CHOICE]
    gain = compared(cells, sets, (CHOICE, CALIBRATED), (CHOICE, PLAIN))
    lower = sum(_mean(cells[CHOICE, d], CALIBRATED) < _mean(cells[CHOICE, d], PLAIN) for d in sets)
    return [
        Verdict(
            f"the choice, calibrated, is within {config['close']:.0%} of the lowest geometric mean of the candidates "
            "with an RBF kernel",
            after <= (1.0 + config["close"]) * level[best],
            f"{after:.4f}; the lowest of {len(level)} is {level[best]:.4f}, {rivals[best]}",
        ),
        Verdict(
            "calibration lowers the geometric mean of the choice",
            gain.mean < 0.0,
            f"from {before:.4f} to {after:.4f}, {_percent(gain)}; lower on {lower} of {len(sets)} sets",
        ),
    ]


def _draw(cells: Cells, config: Config, done: list[dict[str, Any]]) -> Any:
    """Left the candidates against the calibrated choice, right what calibration does to the choice on every set."""
    sets, base = config["sets"], (CHOICE, CALIBRATED)
    figure = new_figure(9.2, 0.34 * max(len(done), len(sets)) + 1.3)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    for score, shift in ((PLAIN, -0.14), (CALIBRATED, 0.14)):
        _draw_ratios(left, [compared(cells, sets, (c["name"], score), base) for c in done], score, shift)
    _draw_ratios(right, [compared(cells, [d], base, (CHOICE, PLAIN)) for d in sets], CALIBRATED, 0.0)
    _finish(
        left, [fill(c["what"], WIDTH) for c in done], "Candidates, all sets", "NLL against the calibrated choice / %"
    )
    _finish(right, sets, "Calibration of the choice", "change of NLL / %")
    legend(figure)
    return figure


def _draw_ratios(axes: Any, ratios: list[Mean], score: str, shift: float) -> None:
    """In percent, with bars of two standard errors."""
    style, label, inside = MARKS[score]
    places = np.arange(len(ratios)) + shift
    low, middle, high = (100.0 * np.expm1([r.mean + k * r.se for r in ratios]) for k in (-2.0, 0.0, 2.0))
    axes.hlines(places, low, high, color=style.color, linewidth=1.0)
    axes.plot(middle, places, color=style.color, marker=style.marker, markerfacecolor=inside, markersize=5,
              linestyle="none", label=label)  # fmt: skip


def _finish(axes: Any, names: Sequence[str], title: str, label: str) -> None:
    plain(axes, "x").axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(label)
    axes.set_title(title, fontsize="medium", loc="left")
