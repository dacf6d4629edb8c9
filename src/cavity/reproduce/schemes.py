"""Three schemes of updating the hyper-parameters, log Z_q against training time: the paper's Figure 1."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cavity.bench.figures import Style, legend, log_ticks, new_figure, plain
from cavity.classifier import GPClassifier
from cavity.records import Record
from cavity.reproduce.common import DIGITS, Mean, grouped, markdown, mean_of, scored_fit, split
from cavity.reproduce.experiment import Config, Job, Shown, Verdict

SCHEMES = {
    "outer": Style("outer", "#D55E00", "s", (0, (6, 1.5))),
    "inner": Style("inner", "#0072B2", "o", "-"),
    "inner-exact": Style("inner, exact gradient", "#000000", "x", (0, (1, 1.2))),
}
EFFORT = {"outer": 40.0, "inner": 13.0, "inner-exact": 13.0}  # seconds on Vehicle
POINTS = 80  # of a curve, before those that fall together
SHARES = (0.9, 0.95, 0.99)  # of the rise
SAME = 0.05  # of the rise: a gap that counts as small

TEXT = (
    "Means over splits, ± a standard error. *Converged*: log Z_q of the learned hyper-parameters once EP has converged "
    "there, and how far it is from that of *outer*. The rise goes from the lowest first value of a scheme to the "
    "lowest last one, so that every scheme makes it. *By time*: seconds of training until that share of the rise."
)

BySplit = dict[int, dict[str, Record]]


def jobs(config: Config) -> list[Job]:
    """A fit for every scheme and split; the split is the seed, so all schemes start from the same point."""
    fixed = {name: config[name] for name in ("data_set", "splits", "inducing", "steps")}
    return [
        {"scheme": scheme, "split": i, "seed": i, **fixed}
        for scheme, i in product(config["schemes"], range(config["repetitions"]))
    ]


def cost(job: Job) -> float:
    """Seconds, on Vehicle."""
    return EFFORT[job["scheme"]]


def run(job: Job) -> Record:
    """The paper's settings but for the scheme, on one thread; log Z_q after every step, thinned."""
    torch.set_num_threads(1)
    rows = split(job["data_set"], job["split"], job["splits"])
    model = GPClassifier.paper("ep", job["inducing"], updates=job["scheme"], max_epochs=job["steps"],
                               random_state=job["seed"], device="cpu")  # fmt: skip
    return scored_fit(model, rows) | {
        "converged_log_z": round(converged_log_z(model, rows[0], rows[1]), DIGITS),
        "curve": thinned(model.history_),
    }


def converged_log_z(model: GPClassifier, X: Any, y: Any) -> float:
    """log Z_q at the model's hyper-parameters once EP has converged: the same yardstick for every scheme."""
    still = GPClassifier(
        "ep", kernel=model.kernel_, noise=model.noise_, inducing_points=model.inducing_points_, learn_kernel=False,
        learn_inducing=False, priors=None, batch_size=None, tol=1e-8, device="cpu",
    )  # fmt: skip
    return float(still.fit(X, y).log_marginal_likelihood_)


def thinned(history: list[Record], points: int = POINTS) -> list[list[float]]:
    """[step, seconds, log Z_q] of the first step, the last and some between, evenly in the logarithm of the step."""
    worked = [record for record in history if record["objective"] is not None]
    places = np.unique(np.geomspace(1, len(worked), points).round().astype(int)) - 1
    return [[r["epoch"], round(r["seconds"], 4), round(r["objective"], 4)] for r in (worked[i] for i in places)]


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Time and log Z_q of the schemes, split by split; splits that lack a scheme do not count."""
    groups = grouped(records, "split")
    by_split = {i: {r["scheme"]: r for r in group} for (i,), group in groups.items()}
    whole = {i: by_split[i] for i in sorted(by_split) if set(by_split[i]) >= set(SCHEMES)}
    if not whole:
        return Shown("No split has all schemes yet.", [], {})
    return Shown(f"{TEXT}\n\n{_table(whole)}", _verdicts(whole), {"schemes": _draw(whole)})


def _table(whole: BySplit) -> str:
    shares = [f"{share:.0%} by time" for share in SHARES]
    header = ["scheme", "log Z_q", "converged", "− outer", "seconds", *shares, "NLL", "error"]
    rows = []
    for scheme, style in SCHEMES.items():
        own = [of[scheme] for of in whole.values()]
        ends = (f"{mean_of(r[name] for r in own).mean:.1f}" for name in ("log_z", "converged_log_z"))
        gap = mean_of(of[scheme]["converged_log_z"] - of["outer"]["converged_log_z"] for of in whole.values())
        took = mean_of(r["curve"][-1][1] for r in own)
        times = (mean_of(seconds_to(of, scheme, share) for of in whole.values()) for share in SHARES)
        tests = (str(mean_of(r[name] for r in own)) for name in ("nll", "error"))
        rows.append([style.label, *ends, *map(_short, (gap, took, *times)), *tests])
    return markdown(header, rows)


def _short(mean: Mean) -> str:
    return f"{mean.mean:.1f} ± {mean.se:.1f}"


def seconds_to(of: dict[str, Record], scheme: str, share: float) -> float:
    """Seconds until a scheme has made this share of the rise that all schemes make."""
    bottom, top = _rise(of)
    _, seconds, log_z = np.array(of[scheme]["curve"]).T
    best = np.maximum.accumulate(log_z)
    return float(np.interp(bottom + share * (top - bottom), best, seconds))


def _rise(of: dict[str, Record]) -> tuple[float, float]:
    curves = [of[scheme]["curve"] for scheme in SCHEMES]
    return min(curve[0][2] for curve in curves), min(curve[-1][2] for curve in curves)


def _verdicts(whole: BySplit) -> list[Verdict]:
    splits = list(whole.values())
    spread = [_gap(of, tuple(SCHEMES)) for of in splits]
    between = [_gap(of, ("inner", "inner-exact")) for of in splits]
    sooner = [seconds_to(of, "outer", SHARES[-1]) / seconds_to(of, "inner", SHARES[-1]) for of in splits]
    exact = mean_of(of["inner-exact"]["cpu_seconds"] / of["inner"]["cpu_seconds"] for of in splits)
    return [
        Verdict(
            f"all three schemes maximize log Z_q: they end within {SAME:.0%} of its rise of each other",
            max(share for _, share in spread) <= SAME,
            _gaps(spread),
        ),
        Verdict(
            f"inner updates make {SHARES[-1]:.0%} of the rise sooner than outer ones, on every split",
            min(sooner) > 1.0,
            f"{_short(mean_of(sooner))} times as fast, {min(sooner):.1f} at least",
        ),
        Verdict(
            f"the approximate gradient ends where the exact one does, within {SAME:.0%} of the rise",
            max(share for _, share in between) <= SAME,
            _gaps(between),
        ),
        Verdict(
            "the approximate gradient is faster than the exact one, by more than two standard errors",
            exact.mean - 2.0 * exact.se > 1.0,
            f"fits with the exact one take {exact} times the processor time",
        ),
    ]


def _gap(of: dict[str, Record], schemes: tuple[str, ...]) -> tuple[float, float]:
    """Between the highest and the lowest converged log Z_q: in nats, and as a share of the rise."""
    bottom, top = _rise(of)
    ends = [of[scheme]["converged_log_z"] for scheme in schemes]
    return max(ends) - min(ends), (max(ends) - min(ends)) / (top - bottom)


def _gaps(gaps: list[tuple[float, float]]) -> str:
    nats, shares = zip(*gaps, strict=True)
    return (
        f"{np.mean(nats):.1f} nats on average, {np.mean(shares):.1%}; at most {max(nats):.1f} nats, {max(shares):.1%}"
    )


def _draw(whole: BySplit) -> Any:
    """The first split in full, the others faint; by seconds, and by steps, where the schemes hardly differ."""
    figure = new_figure(8.6, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, place, label in ((left, 1, "training time / s"), (right, 0, "updates of the hyper-parameters")):
        for number, of in enumerate(whole.values()):
            for scheme, style in SCHEMES.items():
                _draw_curve(plain(axes), of[scheme]["curve"], place, style, is_first=number == 0)
        axes.set_xscale("log")
        axes.set_xlabel(label)
        log_ticks(axes.xaxis)
    left.set_ylabel(r"$\log Z_q$ / nats")
    legend(figure)
    return figure


def _draw_curve(axes: Any, curve: list[list[float]], place: int, style: Style, is_first: bool) -> None:
    points = np.array(curve)
    more = (
        {"marker": style.marker, "markevery": 6, "markersize": 4.5, "label": style.label}
        if is_first
        else {"alpha": 0.25}
    )
    axes.plot(points[:, place], points[:, 2], color=style.color, linestyle=style.line,
              linewidth=1.5 if is_first else 0.8, **({"label": "_"} | more))  # fmt: skip
