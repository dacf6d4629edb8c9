"""EP with one site per factor and SEP with one site for all, in one dimension: Figure 2 of the paper, many problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import STYLES, legend, new_figure
from benchmarks.records import Record
from experiments.common import grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.sep_toy import one_dimension as line

Pairs = list[tuple[Record, Record]]  # EP and SEP on the same problem
Cells = dict[tuple[str, int], Pairs]

METHODS = ("ep", "sep")
SETTINGS = ("prior_variance", "damping", "tol", "max_sweeps")
DIGITS = 8
SITES = {"ep": "a site for each factor", "sep": "one site for all, to the power 1/n"}
WINDOW, EVERY = 2.8, 2  # of the figure: standard deviations of the prior to each side, and a step of the grid

MEASURES: dict[str, Callable[[Record], float]] = {
    "error of the mean / sd": lambda r: abs(r["mean"] - r["exact_mean"]) / r["exact_variance"] ** 0.5,
    "variance / exact": lambda r: r["variance"] / r["exact_variance"],
    "excess KL / nats": lambda r: r["kl"] - r["kl_best"],
    "log Z − exact / nats": lambda r: r["log_z"] - r["exact_log_z"],
    "sweeps": lambda r: r["sweeps"],
}
MEAN, VARIANCE, EXCESS, *_ = MEASURES


def jobs(config: Config) -> list[Job]:
    """List a fit of both methods for every problem."""
    settings = {name: config[name] for name in SETTINGS}
    cells = product(config["families"], config["factors"], range(config["repetitions"]), METHODS)
    return [{"family": f, "factors": n, "seed": seed, "method": method, **settings} for f, n, seed, method in cells]


def cost(job: Job) -> float:
    """Estimate the cost: a sweep grows with the number of factors."""
    return 10.0 + float(job["factors"])


def run(job: Job) -> Record:
    """Approximate the posterior and compare with the exact one. A run that does not converge has no scores."""
    problem, fit = _solve(job)
    ended = {"converged": fit.converged, "sweeps": fit.sweeps}
    if not fit.converged:
        return ended
    log_p = line.log_posterior(problem)
    exact = line.moments(problem.x, log_p)
    log_p, q, best = log_p - exact.log_z, line.posterior(problem, fit.sites), line.natural(exact.mean, exact.variance)
    found = {
        "mean": q[1] / q[0], "variance": 1.0 / q[0], "log_z": line.log_evidence(problem, fit.sites),
        "exact_mean": exact.mean, "exact_variance": exact.variance, "exact_log_z": exact.log_z,
        "kl": line.divergence(problem.x, log_p, q), "kl_best": line.divergence(problem.x, log_p, best),
    }  # fmt: skip
    return ended | {name: round(float(value), DIGITS) for name, value in found.items()}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare both methods with the exact posterior on all problems that both solve."""
    solved = _solved(records)
    text = [
        "Medians over the problems that both methods solve, the 10 % and 90 % quantiles in brackets. The excess is "
        "KL(p‖q) above that of the best Gaussian, the one with the moments of p.",
        _table(solved),
        f"Runs that converged within {config['max_sweeps']} sweeps: {_ended(records)}.",
    ]
    figures = {f"sep-toy-{family}": _draw(fits) for family, fits in _drawn(records, config).items()}
    return Summary("\n\n".join(text), _verdicts(solved, config), figures)


def _solve(job: Job) -> tuple[line.Problem, line.Fit]:
    problem = line.draw(job["family"], job["factors"], job["seed"], job["prior_variance"])
    return problem, line.approximate(problem, job["method"] == "sep", job["damping"], job["tol"], job["max_sweeps"])


def _solved(records: list[Record]) -> Cells:
    cells: Cells = {}
    for (family, n, _), fits in grouped(records, "family", "factors", "seed").items():
        of = {r["method"]: r for r in fits if r["converged"]}
        if len(of) == len(METHODS):
            cells.setdefault((family, n), []).append((of["ep"], of["sep"]))
    return cells


def _ended(records: list[Record]) -> str:
    parts = []
    for (family, method), fits in grouped(records, "family", "method").items():
        parts.append(f"{STYLES[method].label} {sum(r['converged'] for r in fits)} of {len(fits)} ({family})")
    return ", ".join(parts)


def _table(solved: Cells) -> str:
    rows = []
    for (family, n), pairs in sorted(solved.items()):
        for method, fits in zip(METHODS, zip(*pairs, strict=True), strict=True):
            cells = [_spread([of(r) for r in fits]) for of in MEASURES.values()]
            rows.append([family, str(n), str(len(pairs)), STYLES[method].label, *cells])
    return markdown(["factors", "n", "problems", "method", *MEASURES], rows)


def _spread(values: Sequence[float]) -> str:
    low, median, high = (f"{value:.3g}" for value in np.quantile(values, [0.1, 0.5, 0.9]))
    return f"{median} ({low}, {high})"


def _medians(solved: Cells, measure: str, method: str, family: str) -> list[float]:
    """Return the median for each number of factors, fewest first."""
    place, of = METHODS.index(method), MEASURES[measure]
    cells = sorted((n, pairs) for (f, n), pairs in solved.items() if f == family)
    return [float(np.median([of(pair[place]) for pair in pairs])) for _, pairs in cells]


def _verdicts(solved: Cells, config: Config) -> list[Verdict]:
    families = [f for f in config["families"] if any(f == family for family, _ in solved)]
    return [
        *(_is_close(solved, "ep", f, config) for f in families),
        *(_is_close(solved, "sep", f, config) for f in families),
        *(_catches_up(solved, f) for f in families),
    ]


def _is_close(solved: Cells, method: str, family: str, config: Config) -> Verdict:
    means, ratios = (_medians(solved, measure, method, family) for measure in (MEAN, VARIANCE))
    mean, variance = config["close_mean"], config["close_variance"]
    holds = max(means) <= mean and all(abs(r - 1.0) <= variance for r in ratios)
    within = f"its mean within {mean:g} sd, its variance within {variance:.0%}"
    claim = f"{STYLES[method].label} is close to the exact posterior, {family} factors: {within}"
    evidence = f"error of the mean {_list(means)} sd, variance ratio {_list(ratios)}"
    return Verdict(claim, holds, evidence, is_ours=family == "probit")  # the paper draws others


def _catches_up(solved: Cells, family: str) -> Verdict:
    excess = _medians(solved, EXCESS, "sep", family)
    holds = all(later < before for before, later in pairwise(excess))
    claim = f"the more factors, the less SEP loses, {family} factors"
    return Verdict(claim, holds, f"excess KL {_list(excess)} nats", is_ours=True)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _drawn(records: list[Record], config: Config) -> dict[str, list[Record]]:
    """Return the fits to draw for each family: the seed in the settings, and the fewest factors."""
    n = min(config["factors"])
    pairs = {family: _solved([r for r in records if r["family"] == family and r["seed"] == seed]).get((family, n))
             for family, seed in config["drawn"].items()}  # fmt: skip
    return {family: list(found[0]) for family, found in pairs.items() if found}


def _draw(fits: list[Record]) -> Any:
    """Draw a row for each method: the prior, every factor with its site, and the posterior."""
    n = fits[0]["factors"]
    figure = new_figure(1.7 * (n + 2), 1.6 * len(fits) + 0.7)
    panels = figure.subplots(len(fits), n + 2, sharex=True, sharey=True, squeeze=False)
    for row, fit in zip(panels, fits, strict=True):
        _draw_row(row, fit)
    for axes, title in zip(panels[0], ["prior", *(f"× factor {i + 1}" for i in range(n)), "∝ posterior"], strict=True):
        axes.set_title(title, fontsize="medium")
    for axes in panels[-1]:
        axes.set_xlabel("θ")
    legend(figure)
    return figure


def _draw_row(row: Any, fit: Record) -> None:
    """Scale everything to the exact curve: cavity × site has the mass of cavity × factor."""
    style, reach = STYLES[fit["method"]], WINDOW * fit["prior_variance"] ** 0.5
    problem, (sites, *_) = _solve(fit)
    prior, q = (np.exp(line.log_density(problem.x, g)) for g in (problem.prior, line.posterior(problem, sites)))
    exact = [prior, *np.exp(problem.log_factors), np.exp(line.log_posterior(problem) - fit["exact_log_z"])]
    approximate = np.exp(line.exponent(problem.x, sites) + line.log_scales(problem, sites)[:, None])
    inside = np.flatnonzero(np.abs(problem.x) <= reach)[::EVERY]
    x = problem.x[inside]
    for axes, truth, curve in zip(row, exact, [prior, *approximate, q], strict=True):
        axes.fill_between(x, truth[inside] / truth.max(), color="0.88", linewidth=0)
        axes.plot(x, truth[inside] / truth.max(), color="0.45", linewidth=1.0, label="exact")
        if curve is not prior:
            axes.plot(x, curve[inside] / truth.max(), color=style.color, linestyle=style.line, linewidth=1.8,
                      label=f"{style.label}: {SITES[fit['method']]}, and q")  # fmt: skip
        axes.set(xlim=(-reach, reach), ylim=(0.0, 1.5), yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
    row[0].set_ylabel(style.label)
