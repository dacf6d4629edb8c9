"""Where the methods place their inducing points when kernel and noise are known: Figure 3 of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import figures
from benchmarks.figures import Style, legend, log_ticks, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.kernels import RBF
from experiments.common import device_for, grouped, markdown, mean_of, scored_fit
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.inducing import problem as square

EP_FAMILY, VI = ("gfitc", "ep", "sep"), "vi"
NATURAL = "vi-natural"  # our own VI: natural gradients for q
BATCHED = (VI, NATURAL)
SETTINGS = ("rows", "test_rows", "grid", "lengthscale", "variance", "noise")
DIGITS = 4
# Seconds of an epoch on one core: for a few points, and what the square of M adds.
SECONDS = {"gfitc": (0.02, 4e-5), "ep": (0.003, 3e-6), "sep": (0.003, 3e-6), VI: (0.026, 1e-5), NATURAL: (0.03, 1e-5)}

SCORES = ("error", "nll", "seconds")
TITLES = {
    "error": "Test error",
    "nll": "NLL of the test rows / nats",
    "distinct": "Share of the inducing points that are distinct",
    "distance": "Median distance of the inducing points to the nearest true boundary",
    "outside": "Share of the inducing points outside the square",
    "seconds": "Seconds of a fit",
}

Table = dict[tuple[str, int], float]

STYLES = figures.STYLES | {
    "vi-natural": Style("VI, natural gradients", "#E69F00", "v", (0, (6, 1.5, 1, 1.5))),
    "start": Style("at the start", "0.55", "", (0, (1, 1))),
}
# Colors that differ in black and white: light for rows, strong for inducing points; and a marker for each class.
LIGHT, STRONG, MARKERS = ("#f3dd94", "#a9cfe8", "#b98aa6"), ("#f5c400", "#2a87c8", "#7d1f5c"), ("o", "s", "^")
CURVES = {
    "error": "test error",
    "distinct": "distinct share of the inducing points",
    "distance": "median distance to a boundary",
}
MARGIN = 0.2  # around the square, where inducing points may go


def jobs(config: Config) -> list[Job]:
    """List a fit for every method and M. The seed draws functions, rows and the initial points of all methods."""
    fixed = {name: config[name] for name in SETTINGS}
    return [
        {"method": method, "inducing": M, "seed": seed, "max_epochs": config["max_epochs"][method],
         "batch_size": config["batch_size"] if method in BATCHED else None, **fixed}
        for method, M, seed in product(config["methods"], config["inducing"], range(config["repetitions"]))
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the seconds of a fit."""
    alone, more = SECONDS[job["method"]]
    return float(math.ceil(job["max_epochs"] * (alone + more * job["inducing"] ** 2)))


def run(job: Job) -> Record:
    """Learn the inducing points with all else at its true value. Return them, and predictions in the square."""
    problem, start, device = _problem(job), _start(job), device_for(cost(job))
    settings: dict[str, Any] = {
        "kernel": RBF(job["lengthscale"], job["variance"]), "noise": job["noise"], "learn_kernel": False,
        "scaling": None, "n_inducing": job["inducing"], "inducing_points": start, "batch_size": job["batch_size"],
        "max_epochs": job["max_epochs"], "tol": 0.0, "random_state": job["seed"], "device": device,
    }  # fmt: skip
    is_ours = job["method"] == NATURAL
    model = GPClassifier("vi", **settings) if is_ours else GPClassifier.paper(job["method"], **settings)
    found = scored_fit(model, (problem.X, problem.y, problem.X_test, problem.y_test))
    return found | {
        "device": device,
        "start": start.round(DIGITS).tolist(),
        "points": model.inducing_points_.round(DIGITS).tolist(),
        "labels": "".join(map(str, model.predict(square.grid(job["grid"])))),
    }


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare scores, and how distinct and how near to the boundaries the points are, for every M."""
    found = _measure(records, config)
    first = [r for r in records if r["seed"] == min(r["seed"] for r in records)]
    maps, curves = draw_maps(first, _problem(first[0]), config), draw_curves(found, config)
    return Summary(_tables(found, config), _verdicts(found, config), {"inducing": maps, "inducing-measures": curves})


def _measure(records: list[Record], config: Config) -> dict[str, Table]:
    """Average over seeds, for every method and for the initial points."""
    radius = config["radius"] * config["lengthscale"]
    of_points: dict[str, Callable[[Record], float]] = {
        "distinct": lambda r: square.distinct(np.array(r["points"]), radius),
        "distance": lambda r: square.distance(np.array(r["points"]), _boundary(r)),
        "outside": lambda r: square.outside(np.array(r["points"])),
    }
    starts = {(r["inducing"], r["seed"]): r | {"method": "start", "points": r["start"]} for r in records}
    fits, all_ = (grouped(rs, "method", "inducing") for rs in (records, [*records, *starts.values()]))
    scores = {name: {key: mean_of(r[name] for r in rs).mean for key, rs in fits.items()} for name in SCORES}
    return scores | {
        name: {key: mean_of(map(of, rs)).mean for key, rs in all_.items()} for name, of in of_points.items()
    }


def _problem(job: Job) -> square.Problem:
    return _drawn(*(job[name] for name in ("seed", "rows", "test_rows", "lengthscale", "variance", "noise")))


@cache
def _drawn(seed: int, rows: int, test_rows: int, lengthscale: float, variance: float, noise: float) -> square.Problem:
    return square.draw(seed, rows, test_rows, lengthscale, variance, noise)


def _start(job: Job) -> square.Array:
    """Draw rows at random, independently for each class."""
    rng, X = np.random.default_rng([job["seed"], job["inducing"]]), _problem(job).X
    return np.stack([X[rng.choice(len(X), job["inducing"], replace=False)] for _ in range(square.CLASSES)])


def _boundary(job: Job) -> square.Array:
    """Return the true boundary: where the largest function changes."""
    return square.boundary(_problem(job).functions(square.grid(job["grid"])).argmax(1), job["grid"])


def _tables(found: dict[str, Table], config: Config) -> str:
    parts = []
    for name, title in TITLES.items():
        methods = [m for m in (*config["methods"], "start") if any(m == method for method, _ in found[name])]
        rows = [
            [str(M), *(f"{found[name][m, M]:.3g}" if (m, M) in found[name] else "" for m in methods)]
            for M in config["inducing"]
        ]
        parts += [f"### {title}", markdown(["M", *(STYLES[m].label for m in methods)], rows)]
    return "\n\n".join(parts)


def _verdicts(found: dict[str, Table], config: Config) -> list[Verdict]:
    """Judge each claim for the M that all methods have. From `many` on there are more points than needed."""
    sizes = [M for M in config["inducing"] if all((m, M) in found["error"] for m in (*EP_FAMILY, VI))]
    many = [M for M in sizes if config["many"] <= M]
    if not many:
        return []
    few = [M for M in sizes if config["few"] >= M]
    return [*_about_places(found, many, config["apart"]), *_about_errors(found, sizes, few, config["near_best"])]


def _about_places(found: dict[str, Table], many: list[int], apart: float) -> list[Verdict]:
    distinct, distance = ({m: _mean(found[name], m, many) for m in (*EP_FAMILY, VI, "start")}
                          for name in ("distinct", "distance"))  # fmt: skip
    of_many = f"mean over M = {', '.join(map(str, many))}"
    return [
        Verdict(f"GFITC, EP and SEP put inducing points on top of each other: the distinct share falls by {apart:g} or "
                "more during training",
                all(distinct[m] <= distinct["start"] - apart for m in EP_FAMILY), f"{_list(distinct)}; {of_many}"),
        Verdict("VI does not: its distinct share falls by less than that", distinct[VI] > distinct["start"] - apart,
                f"{_list(distinct, VI, 'start')}; {of_many}"),
        Verdict("VI places them nearer to the decision boundaries than the other methods and than the initial points",
                all(distance[VI] < d for m, d in distance.items() if m != VI), f"{_list(distance)}; {of_many}"),
    ]  # fmt: skip


def _about_errors(found: dict[str, Table], sizes: list[int], few: list[int], near_best: float) -> list[Verdict]:
    nll = {m: _mean(found["nll"], m, few) for m in (*EP_FAMILY, VI)}
    error, methods = found["error"], (*EP_FAMILY, VI)
    good = near_best + min(error[m, M] for m, M in product(methods, sizes))
    first, last = ({m: error[m, M] for m in methods} for M in (sizes[0], sizes[-1]))
    needed = {m: next((float(M) for M in sizes if error.get((m, M), 1.0) <= good), math.inf)
              for m in (*methods, NATURAL)}  # fmt: skip
    return [
        Verdict(f"the methods become more accurate with M: errors fall to a third from M = {sizes[0]} to {sizes[-1]}",
                all(last[m] <= first[m] / 3.0 for m in methods), f"{_list(first)} at first, {_list(last)} in the end"),
        Verdict("with few points GFITC, EP and SEP have a lower NLL than VI", all(nll[m] < nll[VI] for m in EP_FAMILY),
                f"{_list(nll)}; mean over M = {', '.join(map(str, few))}"),
        Verdict(f"GFITC, EP and SEP need fewer points than VI for an error within {near_best:g} of the best",
                all(needed[m] < needed[VI] for m in EP_FAMILY), f"M = {_list(needed, *methods)} for {good:.3g}"),
        Verdict("VI lacks a good q early in training, as the paper supposes: natural gradients need fewer points",
                needed[NATURAL] < needed[VI], f"M = {_list(needed, VI, NATURAL)} for {good:.3g}"),
    ]  # fmt: skip


def _mean(table: Table, method: str, sizes: list[int]) -> float:
    return float(np.mean([table[method, M] for M in sizes]))


def _list(values: dict[str, float], *names: str) -> str:
    return ", ".join(f"{STYLES[m].label} {values[m]:.3g}" for m in names or values)


# --- Figures ---


def draw_maps(records: list[Record], problem: square.Problem, config: Config) -> Any:
    """Draw a row for each method and a column for each M, as in the paper."""
    of = {(r["method"], r["inducing"]): r for r in records}
    methods, sizes = config["methods"], config["inducing"]
    figure = new_figure(1.35 * len(sizes) + 0.3, 1.35 * len(methods) + 0.3)
    panels = figure.subplots(len(methods), len(sizes), sharex=True, sharey=True, squeeze=False)
    for axes, (method, M) in zip(panels.flat, product(methods, sizes), strict=True):
        _draw_rows(axes, problem)
        if (method, M) in of:
            _draw_fit(axes, of[method, M])
    for axes, M in zip(panels[0], sizes, strict=True):
        axes.set_title(f"M = {M}", fontsize="medium")
    for axes, method in zip(panels[:, 0], methods, strict=True):
        axes.set_ylabel(STYLES[method].label.replace(", ", ",\n"))
    return figure


def _draw_rows(axes: Any, problem: square.Problem) -> None:
    for k, color in enumerate(LIGHT):
        axes.scatter(*problem.X[problem.y == k].T, s=3.0, color=color, linewidths=0, rasterized=True)
    reach = square.SIDE / 2 + MARGIN
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")


def _draw_fit(axes: Any, record: Record) -> None:
    n, labels = record["grid"], np.array(list(record["labels"]), dtype=np.int64)
    x = square.grid(n)[:n, 0]
    for k in range(square.CLASSES):
        inside = (labels == k).reshape(n, n).astype(np.float64)
        if 0.0 < inside.mean() < 1.0:
            axes.contour(x, x, inside, levels=[0.5], colors="black", linewidths=0.7)
    size = 14.0 - np.log2(record["inducing"])
    for points, color, marker in zip(np.array(record["points"]), STRONG, MARKERS, strict=True):
        axes.scatter(*points.T, s=size, color=color, marker=marker, edgecolors="black", linewidths=0.5, zorder=3)


def draw_curves(found: dict[str, dict[tuple[str, int], float]], config: Config) -> Any:
    """Draw error, distinct share and distance to the boundary against M."""
    figure = new_figure(10.0, 3.4)
    for place, (name, label) in enumerate(CURVES.items(), start=1):
        axes = plain(figure.add_subplot(1, len(CURVES), place))
        for method in (*config["methods"], "start"):
            sizes = [M for M in config["inducing"] if (method, M) in found[name]]
            if sizes:
                _draw_curve(axes, method, sizes, [found[name][method, M] for M in sizes])
        axes.set_xscale("log", base=2)
        axes.set_xticks(config["inducing"], [str(M) for M in config["inducing"]], fontsize="small")
        axes.set(xlabel="inducing points of a class, M", ylabel=label)
        if name == "error":
            axes.set_yscale("log")
            log_ticks(axes.yaxis)
        else:
            axes.set_ylim(bottom=0.0)
    legend(figure)
    return figure


def _draw_curve(axes: Any, method: str, sizes: list[int], values: list[float]) -> None:
    style = STYLES[method]
    axes.plot(sizes, values, color=style.color, marker=style.marker, linestyle=style.line, label=style.label,
              markersize=4.5, linewidth=1.5)  # fmt: skip
