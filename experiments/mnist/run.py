"""Handwritten digits in mini-batches: Figure 5 (top) of the paper, and what larger models reach."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import STYLES, legend, line, log_ticks
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.fitting.settings import BATCH_START
from cavity.kernels import RBF, Matern52
from experiments import curves
from experiments.common import Split, markdown, split
from experiments.experiment import Config, Job, Summary, Verdict

Scores = dict[str, float]

PAPER = ("sep", "ep", "vi")  # names of the fits with the paper's settings
PRINTED = {"sep": {"error": 0.0208, "nll": 0.0725}, "vi": {"error": 0.0202, "nll": 0.0686}}  # in the paper's text
KERNELS = {"rbf": RBF, "matern52": Matern52}
MAX_PIXEL = {"mnist": 255.0, "digits": 16.0}
HELD_OUT = 12  # one row in twelve: 5,000 of 60,000
SPLIT_SEED = 0
SPACE_BELOW = 0.8  # of the lowest value, for a label
TOP = {"error": 50.0, "nll": 2.0}  # of the figure: above it, a model has learned nothing yet
VALIDATION, TEST = "validation", "test"
COLORS, MARKERS = ("#000000", "#56B4E9", "#CC79A7", "#E69F00"), ("*", "P", "D", "v")
LINES = ("-", (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (8, 1.5)))


def jobs(config: Config) -> list[Job]:
    """List a fit for each table of the settings and each kind of rows that it is scored on."""
    common = {name: config[name] for name in ("data_set", "looks", "device")}
    return [
        {"name": fit["name"], "recipe": fit["recipe"], "method": fit["method"], "rows": rows,
         "settings": dict(sorted(fit["settings"].items())), "seconds": fit["seconds"],
         "seed": fit.get("seed", config["seed"]), **common}
        for fit in config["fits"]
        for rows in fit.get("rows", [TEST])
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the seconds of a fit, reading and scoring included."""
    return curves.fit_cost(job["seconds"])


def run(job: Job) -> Record:
    """Fit with a time limit and score during training."""
    rows = digits(job["data_set"], job["rows"])
    curves.warm_up(job["method"], job["device"])
    return curves.tracked_fit(model_of(job), rows, curves.look_times(job["seconds"], job["looks"]))


def digits(data_set: str, kind: str) -> Split:
    """Scale pixels to [0, 1]. For validation, hold out some training rows in place of the test rows."""
    X, y, X_test, y_test = split(data_set, 0, "random") if data_set == "digits" else _mnist(data_set)
    if kind == VALIDATION:
        order = np.random.default_rng(SPLIT_SEED).permutation(len(X))
        test, train = np.split(order, [len(order) // HELD_OUT])
        X, y, X_test, y_test = X[train], y[train], X[test], y[test]
    return X / MAX_PIXEL[data_set], y, X_test / MAX_PIXEL[data_set], y_test


def _mnist(data_set: str) -> Split:
    data = load(data_set)
    if not data.splits:
        raise FileNotFoundError("This copy of MNIST does not mark the test images. Set CAVITY_DATA to the data folder.")
    return data.split(0)


def model_of(job: Job) -> GPClassifier:
    """Return a model with the paper's settings, or ours with changes. `lengthscale` is the initial one."""
    settings = dict(job["settings"])
    kernel, lengthscale = KERNELS[settings.pop("kernel", "rbf")], settings.pop("lengthscale", None)
    if lengthscale is not None:
        settings["kernel"] = kernel(lengthscale, BATCH_START.variance)
    settings |= curves.time_limit(job["seconds"])
    settings |= {"scaling": None, "random_state": job["seed"], "device": job["device"]}
    make = GPClassifier.paper if job["recipe"] == "paper" else GPClassifier
    return make(job["method"], **settings)


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the test scores. Choices were made by the validation rows, which have a table of their own."""
    found = {kind: {r["name"]: r for r in records if r["rows"] == kind} for kind in (TEST, VALIDATION)}
    parts = ["### Test rows", _table(found[TEST], config["level"])] if found[TEST] else []
    if found[VALIDATION]:
        parts += [
            "### Held-out training rows, by which our own settings were chosen",
            _table(found[VALIDATION], config["level"]),
        ]
    drawn = {name: record for name, record in found[TEST].items() if name in config["drawn"]}
    figures = {"mnist": _draw(drawn)} if drawn else {}
    return Summary("\n\n".join(parts), _verdicts(config, found[TEST], found[VALIDATION]), figures)


def _table(found: dict[str, Record], level: float) -> str:
    rows = [
        [_label(record), f"{record['settings']['n_inducing']}", f"{record['settings']['batch_size']}",
         f"{record['train_seconds']:.0f}", f"{record['epochs']}", f"{100 * record['error']:.2f} %",
         f"{record['nll']:.4f}", curves.format_seconds(curves.seconds_to(curves.curve_of(record), level))]
        for record in found.values()
    ]  # fmt: skip
    return markdown(["fit", "M", "batch", "training / s", "epochs", "error", "NLL", f"NLL of {level:g} after"], rows)


def _label(record: Record) -> str:
    return f"{STYLES[record['method']].label}, the paper's settings" if record["recipe"] == "paper" else record["name"]


def _verdicts(config: Config, test: dict[str, Record], held_out: dict[str, Record]) -> list[Verdict]:
    verdicts = []
    if set(PAPER) <= set(test):
        verdicts += _paper_verdicts(config, test)
    ours = {name: record for name, record in test.items() if record["recipe"] != "paper"}
    small = {name for name, record in ours.items() if record["settings"]["n_inducing"] <= config["paper_inducing"]}
    chosen = {}
    for method in PAPER:
        names = {name for name in small if ours[name]["method"] == method}
        if names:
            chosen[method] = ours[_chosen(names, ours, held_out)]
            which = f"{STYLES[method].label} with M = {config['paper_inducing']}"
            verdicts.append(_own_verdict(which, chosen[method], PRINTED.get(method, PRINTED["sep"])))
    if set(PAPER) <= set(chosen):
        verdicts.append(Verdict("with our training the three methods end within "
                                f"{100 * config['same_error']:g} points and {config['same_nll']:g} nats of each other",
                                _are_alike(chosen, config), _all_figures(chosen), is_ours=True))  # fmt: skip
    if set(ours) - small:
        large_one = ours[_chosen(set(ours) - small, ours, held_out)]
        verdicts.append(_own_verdict("a model with a larger M", large_one, PRINTED["vi"]))
    return verdicts


def _paper_verdicts(config: Config, test: dict[str, Record]) -> list[Verdict]:
    scores = _all_figures(test)
    when = {m: curves.seconds_to(curves.curve_of(test[m]), config["level"]) for m in PAPER}
    is_near = all(_is_near(test[m], PRINTED[m], config) for m in PRINTED)
    return [
        Verdict("with the paper's settings SEP ends at or below its 2.08 % and 0.0725",
                _is_below(test["sep"], PRINTED["sep"]), _figures(test["sep"])),
        Verdict(f"SEP and VI end within {100 * config['same_error']:g} points and {config['same_nll']:g} nats of the "
                "paper's figures", is_near, scores),
        Verdict("SEP, EP and VI end within the same distance of each other", _are_alike(test, config), scores),
        Verdict(f"SEP and EP reach an NLL of {config['level']:g} before VI",
                all(curves.is_earlier(when[m], when["vi"]) for m in ("sep", "ep")),
                ", ".join(f"{STYLES[m].label} {curves.format_seconds(when[m])}" for m in PAPER)),
    ]  # fmt: skip


def _own_verdict(which: str, record: Record, printed: Scores) -> Verdict:
    claim = f"our training of {which} ends at or below the paper's {_figures(printed)}"
    return Verdict(claim, _is_below(record, printed), f"{record['name']}: {_figures(record)}", is_ours=True)


def _are_alike(found: dict[str, Record], config: Config) -> bool:
    return all(_is_near(found[one], _scores(found[other]), config) for one, other in combinations(PAPER, 2))


def _all_figures(found: dict[str, Record]) -> str:
    return ", ".join(f"{STYLES[m].label} {_figures(found[m])}" for m in PAPER)


def _chosen(names: set[str], test: dict[str, Record], held_out: dict[str, Record]) -> str:
    """Choose the best fit by the validation rows; by the test rows only if no fit has validation rows."""
    judged = names & set(held_out)
    return min(judged or names, key=lambda name: (held_out if judged else test)[name]["nll"])


def _figures(record: Record | Scores) -> str:
    return f"{100 * record['error']:.2f} % and {record['nll']:.4f}"


def _scores(record: Record) -> Scores:
    return {score: record[score] for score in ("error", "nll")}


def _is_below(record: Record, printed: Scores) -> bool:
    return all(record[score] <= printed[score] for score in printed)


def _is_near(record: Record, printed: Scores, config: Config) -> bool:
    return all(abs(record[score] - printed[score]) <= config[f"same_{score}"] for score in printed)


def _draw(found: dict[str, Record]) -> Any:
    figure, all_axes = curves.time_panels(["error of the test images / %", "NLL of the test images / nats"], 9.5, 4.4)
    own = [name for name, record in found.items() if record["recipe"] != "paper"]
    for axes, score, factor, unit in zip(all_axes, ("error", "nll"), (100.0, 1.0), (" %", ""), strict=True):
        for name, record in found.items():
            curve = curves.curve_of(record)
            x, y = [point.seconds for point in curve], [factor * getattr(point, score) for point in curve]
            line(axes, record["method"], x, y, **(_own_style(own.index(name), name) if name in own else {}))
        axes.set_yscale("log")
        axes.set_ylim(top=TOP[score])
        log_ticks(axes.yaxis)
        _draw_printed(axes, {m: factor * PRINTED[m][score] for m in PRINTED}, unit)
    legend(figure, columns=4)
    return figure


def _own_style(place: int, name: str) -> dict[str, Any]:
    i = place % len(COLORS)
    return {"color": COLORS[i], "marker": MARKERS[i], "linestyle": LINES[i], "label": name}


def _draw_printed(axes: Any, levels: dict[str, float], unit: str) -> None:
    """Draw the paper's numbers as thin lines, the label of the higher one above it, of the lower one below."""
    for method, level in levels.items():
        style, is_higher = STYLES[method], level == max(levels.values())
        axes.axhline(level, color=style.color, linewidth=0.8, zorder=1)
        axes.text(0.01, level, f"paper: {style.label} {level:.3g}{unit}", transform=axes.get_yaxis_transform(),
                  va="bottom" if is_higher else "top", fontsize="x-small", color=style.color)  # fmt: skip
    axes.set_ylim(bottom=SPACE_BELOW * min(axes.dataLim.y0, *levels.values()))
