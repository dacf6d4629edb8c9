"""Where the methods put their inducing points, kernel and noise known: the paper's Figure 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from cavity.classifier import GPClassifier
from cavity.kernels import RBF
from cavity.records import Record
from cavity.reproduce import plane
from cavity.reproduce.common import device_for, grouped, markdown, mean_of, scored_fit
from cavity.reproduce.experiment import Config, Job, Shown, Verdict
from cavity.reproduce.inducing_figures import STYLES, draw_curves, draw_maps

EP_FAMILY, VI = ("gfitc", "ep", "sep"), "vi"
NATURAL = "vi-natural"  # our own VI: natural gradients for q
BATCHED = (VI, NATURAL)
SETTINGS = ("rows", "test_rows", "grid", "lengthscale", "variance", "noise")
DIGITS = 4
# Seconds of an epoch on one core: of a few points, and what the square of M adds.
SECONDS = {"gfitc": (0.02, 4e-5), "ep": (0.003, 3e-6), "sep": (0.003, 3e-6), VI: (0.026, 1e-5), NATURAL: (0.03, 1e-5)}

SCORES = ("error", "nll", "seconds")
TITLES = {
    "error": "Error on fresh rows",
    "nll": "NLL of fresh rows / nats",
    "distinct": "Share of the inducing points that are distinct",
    "distance": "Median distance of the inducing points to the nearest true boundary",
    "outside": "Share of the inducing points outside the square",
    "seconds": "Seconds of a fit",
}

Table = dict[tuple[str, int], float]


def jobs(config: Config) -> list[Job]:
    """A fit for every method and M; the seed draws functions, rows and where the points of all methods start."""
    fixed = {name: config[name] for name in SETTINGS}
    return [
        {"method": method, "inducing": M, "seed": seed, "max_epochs": config["max_epochs"][method],
         "batch_size": config["batch_size"] if method in BATCHED else None, **fixed}
        for method, M, seed in product(config["methods"], config["inducing"], range(config["repetitions"]))
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Whole seconds, about."""
    alone, more = SECONDS[job["method"]]
    return float(math.ceil(job["max_epochs"] * (alone + more * job["inducing"] ** 2)))


def run(job: Job) -> Record:
    """Learn the inducing points, all else at its true value: where they end, and what is predicted in the square."""
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
        "labels": "".join(map(str, model.predict(plane.grid(job["grid"])))),
    }


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Scores, how many points share a place and how near they are to the boundaries, for every M."""
    found = _measure(records, config)
    first = [r for r in records if r["seed"] == min(r["seed"] for r in records)]
    maps, curves = draw_maps(first, _problem(first[0]), config), draw_curves(found, config)
    return Shown(_tables(found, config), _verdicts(found, config), {"inducing": maps, "inducing-measures": curves})


def _measure(records: list[Record], config: Config) -> dict[str, Table]:
    """Means over the seeds, of every method and of the points before training."""
    radius = config["radius"] * config["lengthscale"]
    of_points: dict[str, Callable[[Record], float]] = {
        "distinct": lambda r: plane.distinct(np.array(r["points"]), radius),
        "distance": lambda r: plane.distance(np.array(r["points"]), _boundary(r)),
        "outside": lambda r: plane.outside(np.array(r["points"])),
    }
    starts = {(r["inducing"], r["seed"]): r | {"method": "start", "points": r["start"]} for r in records}
    fits, all_ = (grouped(rs, "method", "inducing") for rs in (records, [*records, *starts.values()]))
    scores = {name: {key: mean_of(r[name] for r in rs).mean for key, rs in fits.items()} for name in SCORES}
    return scores | {
        name: {key: mean_of(map(of, rs)).mean for key, rs in all_.items()} for name, of in of_points.items()
    }


def _problem(job: Job) -> plane.Problem:
    return _drawn(*(job[name] for name in ("seed", "rows", "test_rows", "lengthscale", "variance", "noise")))


@cache
def _drawn(seed: int, rows: int, test_rows: int, lengthscale: float, variance: float, noise: float) -> plane.Problem:
    return plane.draw(seed, rows, test_rows, lengthscale, variance, noise)


def _start(job: Job) -> plane.Array:
    """Rows at random, drawn for each class apart."""
    rng, X = np.random.default_rng([job["seed"], job["inducing"]]), _problem(job).X
    return np.stack([X[rng.choice(len(X), job["inducing"], replace=False)] for _ in range(plane.CLASSES)])


def _boundary(job: Job) -> plane.Array:
    """The true one: where the largest function changes."""
    return plane.boundary(_problem(job).functions(plane.grid(job["grid"])).argmax(1), job["grid"])


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
    """Each claim where all methods have been run; from `many` points on there are more than the problem needs."""
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
        Verdict(f"GFITC, EP and SEP put inducing points on top of each other: {apart:g} or more of all are no longer "
                "distinct that were at the start",
                all(distinct[m] <= distinct["start"] - apart for m in EP_FAMILY), f"{_list(distinct)}; {of_many}"),
        Verdict("VI does not: fewer than that", distinct[VI] > distinct["start"] - apart,
                f"{_list(distinct, VI, 'start')}; {of_many}"),
        Verdict("VI places them nearer to the decision boundaries than the others, and than chance",
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
        Verdict("what VI lacks is a good q early on, as the paper supposes: with natural gradients fewer points do",
                needed[NATURAL] < needed[VI], f"M = {_list(needed, VI, NATURAL)} for {good:.3g}"),
    ]  # fmt: skip


def _mean(table: Table, method: str, sizes: list[int]) -> float:
    return float(np.mean([table[method, M] for M in sizes]))


def _list(values: dict[str, float], *names: str) -> str:
    return ", ".join(f"{STYLES[m].label} {values[m]:.3g}" for m in names or values)
