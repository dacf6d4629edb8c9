"""Epistemic uncertainty against the number of rows, inside the data and away from it, with a fixed M."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import STYLES, legend, line, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from experiments.common import grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict

Medians = dict[tuple[str, str, int], dict[str, float]]  # by method, labels and rows, then by place

PLACES = {
    "border": (0.5, 0.5),
    "one cloud": (0.0, 0.0),
    "other cloud": (1.0, 1.0),
    "edge": (4.0, 4.0),
    "far": (10.0, 10.0),
}
INSIDE, FAR = ("border", "one cloud", "other cloud"), "far"
LABELS = {"clouds": "labels of the clouds", "random": "random labels"}


def jobs(config: Config) -> list[Job]:
    """List a fit for each method, kind of label, number of rows and seed."""
    cells = product(config["methods"], config["labels"], config["rows"], range(config["repetitions"]))
    return [
        {"method": method, "labels": labels, "rows": n, "seed": seed, "n_inducing": config["n_inducing"]}
        for method, labels, n, seed in cells
    ]


def cost(job: Job) -> float:
    """Estimate the cost: a fixed part and one that grows with the rows."""
    return 1000.0 + float(job["rows"])


def run(job: Job) -> Record:
    """Fit, and split the uncertainty at each place."""
    rng = np.random.default_rng(job["seed"])
    cloud = rng.integers(0, 2, size=(job["rows"],))
    X = rng.standard_normal((job["rows"], 2)) + cloud[:, None]
    y = cloud if job["labels"] == "clouds" else rng.integers(0, 2, job["rows"])
    clf = GPClassifier(job["method"], n_inducing=job["n_inducing"], random_state=job["seed"], device="cpu").fit(X, y)
    parts = clf.uncertainty(np.array(list(PLACES.values())))._asdict()
    return {name: dict(zip(PLACES, part.round(6).tolist(), strict=True)) for name, part in parts.items()}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show the median over seeds at each place, and judge its way with the number of rows."""
    medians = {
        key: {place: float(np.median([r["epistemic"][place] for r in fits])) for place in PLACES}
        for key, fits in grouped(records, "method", "labels", "rows").items()
    }
    rows = [
        [STYLES[method].label, LABELS[labels], f"{n:,}", *(f"{at[place]:.3f}" for place in PLACES)]
        for (method, labels, n), at in sorted(medians.items())
    ]
    text = "Epistemic uncertainty in nats, the median over the seeds.\n\n" + markdown(
        ["method", "labels", "rows", *PLACES], rows
    )
    verdicts, sizes = [], sorted({n for *_, n in medians})
    for method, labels in sorted({key[:2] for key in medians}):
        curves = {p: [medians[method, labels, n][p] for n in sizes] for p in PLACES}
        who = f"{STYLES[method].label}, {LABELS[labels]}"
        ends = [curves[p][-1] for p in INSIDE]
        falls = all(b < a for p in INSIDE for a, b in pairwise(curves[p]) if a > config["small"])
        verdicts += [
            Verdict(
                f"inside the data the epistemic part falls with the rows, below {config['small']} nats: {who}",
                falls and max(ends) < config["small"],
                "; ".join(f"{p} {', '.join(f'{v:.3f}' for v in curves[p])}" for p in INSIDE),
                is_ours=True,
            ),
            Verdict(
                f"far from the data it is larger than inside: {who}",
                all(far > max(curves[p][i] for p in INSIDE) for i, far in enumerate(curves[FAR])),
                f"far {', '.join(f'{v:.3f}' for v in curves[FAR])}",
                is_ours=True,
            ),
        ]
    return Summary(text, verdicts, {"uncertainty": _draw(medians)})


def _draw(medians: Medians) -> Any:
    kinds = sorted({labels for _, labels, _ in medians})
    figure = new_figure(4.0 * len(kinds), 3.4)
    for axes, kind in zip(figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0], kinds, strict=True):
        plain(axes)
        for method in sorted({method for method, *_ in medians}):
            sizes = sorted(n for m, labels, n in medians if (m, labels) == (method, kind))
            line(axes, method, sizes, [medians[method, kind, n]["border"] for n in sizes])
            far = [medians[method, kind, n][FAR] for n in sizes]
            line(axes, method, sizes, far, linewidth=0.8, markerfacecolor="white", label="_far")
        axes.set(xscale="log", xlabel="rows", title=LABELS[kind], ylim=(0.0, None))
    figure.axes[0].set_ylabel("epistemic uncertainty / nats")
    legend(figure)
    return figure
