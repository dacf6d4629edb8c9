"""Eight UCI sets, M = 5, 10 and 20 % of the rows, 20 splits: Table 2 of the paper, and those of its supplement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.figures import STYLES, legend, log_ticks, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from experiments.common import Mean, agree, device_for, grouped, markdown, mean_of, read_csv, scored_fit, split
from experiments.experiment import Config, Job, Summary, Verdict

PAPER = ("gfitc", "ep", "sep", "vi")
AUTO, GIVEN, GIVEN_SEP = "cavity-auto", "cavity", "cavity-sep"  # our defaults, and with as many points as the paper
OURS_LABELS = {AUTO: "cavity", GIVEN: "cavity, M as given", GIVEN_SEP: "cavity, SEP, M as given"}
LABELS = {name: STYLES[name].label for name in PAPER} | OURS_LABELS
EVERY_M = "auto"  # the share of a fit that chooses its inducing points itself
NAMES = {"glass": "Glass", "new_thyroid": "New-thyroid", "satellite": "Satellite", "svmguide2": "Svmguide2",
         "vehicle": "Vehicle", "vowel": "Vowel", "waveform": "Waveform", "wine": "Wine"}  # fmt: skip
STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)

Share = float | str
Cell = tuple[str, Share, str]

MODELS: dict[str, Callable[..., GPClassifier]] = {
    AUTO: GPClassifier,
    GIVEN: GPClassifier,
    GIVEN_SEP: partial(GPClassifier, "sep"),
}
# Rows and classes of a training set, to estimate the cost of a fit.
SIZES = {"glass": (193, 6), "new_thyroid": (194, 3), "satellite": (1287, 6), "svmguide2": (352, 3), "vehicle": (761, 4),
         "vowel": (486, 6), "waveform": (300, 3), "wine": (160, 3), "iris": (135, 3)}  # fmt: skip
EFFORT = {"gfitc": 4.0, "ep": 1.0, "sep": 0.9, "vi": 2.0, AUTO: 1.0, GIVEN: 3.0, GIVEN_SEP: 1.5}


def jobs(config: Config) -> list[Job]:
    """List a fit for every set, share of inducing points, method and split. The split is also the seed."""
    return [
        {"data_set": data_set, "inducing": share, "method": method, "split": i, "seed": i, "splits": config["splits"]}
        for (data_set, share, method), i in product(_cells(config), range(config["repetitions"]))
    ]


def _cells(config: Config) -> list[Cell]:
    """List sets, shares and methods. Our defaults choose the inducing points: one fit stands for all shares."""
    cells = product(config["sets"], config["inducing"], config["methods"])
    return list(dict.fromkeys((d, EVERY_M if method == AUTO else share, method) for d, share, method in cells))


def cost(job: Job) -> float:
    """Count the factorizations and products of a step, plus a constant."""
    rows, classes = SIZES[job["data_set"]]
    if job["inducing"] == EVERY_M:
        return float(EFFORT[AUTO] * (1.0 + classes * min(rows, 1000) ** 3 * 2e-9))
    M = job["inducing"] * rows
    return float(EFFORT[job["method"]] * (1.0 + classes * (M * M * rows + M**3) * 2e-7))


def run(job: Job) -> Record:
    """Fit with the paper's settings or ours. Large fits use a GPU if there is one."""
    device = device_for(cost(job))
    settings: dict[str, Any] = {"random_state": job["seed"], "device": device}
    if job["inducing"] != EVERY_M:
        settings["n_inducing"] = job["inducing"]
    make = MODELS.get(job["method"]) or partial(GPClassifier.paper, job["method"])
    model = make(**settings)
    return scored_fit(model, split(job["data_set"], job["split"], job["splits"])) | {"device": device}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare our means with the paper's, cell by cell."""
    found = {score: _means(records, score, config) for score in ("nll", "error")}
    paper = _paper(folder, "nll"), _paper(folder, "error")
    parts = [
        "### Negative log-likelihood of the test rows\n\nOur run of the paper's settings, the paper's figure in "
        "brackets; ! where they differ by more than two combined standard errors. Then our defaults, which "
        "choose the inducing points themselves: one figure for all M. The two columns after it have M as given. ✓ at "
        "or below the best figure of the paper's four methods, (✓) if rounded to its two digits.",
        _nll_table(config, found["nll"], paper[0]),
        "### Test error",
        _error_table(config, found["error"], paper[1]),
        "### Training time: seconds of a fit on one core, the paper's in brackets\n\nMeans over the sets of which no "
        "fit went to a GPU; the paper's are over all sets.",
        _time_table(config, records, folder),
        _short_cells(records, config),
        *_finding(records, config),
        *_paired(records, folder),
    ]
    return Summary(
        "\n\n".join(filter(None, parts)),
        _verdicts(config, found["nll"], paper[0], sum(r["method"] == AUTO for r in records)),
        {"nll": _draw(config, found["nll"], paper[0])},
    )


def _means(records: list[Record], score: str, config: Config) -> dict[Cell, Mean]:
    """Return the means by cell. Those of our defaults are in the cells of all shares."""
    means: dict[Cell, Mean] = {}
    for (data_set, share, method), group in grouped(records, "data_set", "inducing", "method").items():
        mean = mean_of(r[score] for r in group)
        means |= {(data_set, s, method): mean for s in (config["inducing"] if share == EVERY_M else [share])}
    return means


def _paper(folder: Path, metric: str) -> dict[Cell, Mean]:
    rows = [row for row in read_csv(folder / "paper.csv") if row["metric"] == metric]
    return {
        (row["data_set"], float(row["inducing_fraction"]), row["method"]): Mean(
            float(row["mean"]), float(row["standard_error"])
        )
        for row in rows
    }


def _nll_table(config: Config, found: dict[Cell, Mean], paper: dict[Cell, Mean]) -> str:
    rows = []
    for data_set, share in product(config["sets"], config["inducing"]):
        cells = [_beside(found.get((data_set, share, m)), paper.get((data_set, share, m))) for m in PAPER]
        best = _best(paper, data_set, share)
        cells += [_marked(found.get((data_set, share, m)), best) for m in OURS_LABELS]
        rows.append([NAMES.get(data_set, data_set), f"{share:.0%}", *cells, f"{best:.2f}" if best is not None else ""])
    return markdown(["set", "M", *LABELS.values(), "best of the paper"], rows)


def _error_table(config: Config, found: dict[Cell, Mean], paper: dict[Cell, Mean]) -> str:
    rows = []
    for data_set, share in product(config["sets"], config["inducing"]):
        cells = [_beside(found.get((data_set, share, m)), paper.get((data_set, share, m)), "") for m in LABELS]
        rows.append([NAMES.get(data_set, data_set), f"{share:.0%}", *cells])
    return markdown(["set", "M", *LABELS.values()], rows)


def _beside(ours: Mean | None, theirs: Mean | None, mark: str = " !") -> str:
    if ours is None:
        return ""
    if theirs is None:
        return str(ours)
    return f"{ours} ({theirs.mean:.2f}){'' if agree(ours, theirs) else mark}"


def _marked(ours: Mean | None, best: float | None) -> str:
    mark = {"below": " ✓", "rounded": " (✓)"}.get(_standing(ours, best), "")
    return f"{ours}{mark}" if ours else ""


def _best(paper: dict[Cell, Mean], data_set: str, share: Share) -> float | None:
    return min((paper[data_set, share, m].mean for m in PAPER if (data_set, share, m) in paper), default=None)


def _standing(ours: Mean | None, best: float | None) -> str:
    if ours is None or best is None:
        return ""
    return "below" if ours.mean <= best else "rounded" if round(ours.mean, 2) <= best else "above"


def _time_table(config: Config, records: list[Record], folder: Path) -> str:
    theirs = {
        (float(r["inducing_fraction"]), r["method"]): float(r["mean_seconds"])
        for r in read_csv(folder / "paper_time.csv")
    }
    found, on_gpu = _means(records, "cpu_seconds", config), {_place(r) for r in records if r["device"] != "cpu"}
    rows = []
    for share in config["inducing"]:
        sets = [d for d in config["sets"] if (d, share) not in on_gpu]
        cells = [_mean_time(found, sets, share, method, theirs.get((share, method))) for method in LABELS]
        rows.append([f"{share:.0%}", str(len(sets)), *cells])
    return markdown(["M", "sets", *LABELS.values()], rows)


def _place(record: Record) -> tuple[str, Share]:
    return record["data_set"], record["inducing"]


def _mean_time(found: dict[Cell, Mean], sets: list[str], share: float, method: str, paper: float | None) -> str:
    """Return an empty cell if a set is missing: the sets differ too much."""
    own = [found[d, share, method].mean for d in sets if (d, share, method) in found]
    if not own or len(own) < len(sets):
        return ""
    return f"{sum(own) / len(own):.1f}" + (f" ({paper:g})" if paper is not None else "")


def _short_cells(records: list[Record], config: Config) -> str:
    groups = grouped(records, "data_set", "inducing", "method")
    short = [
        f"{NAMES.get(d, d)} {'' if share == EVERY_M else f'{share:.0%} '}{LABELS[m]}: {count}"
        for d, share, m in _cells(config)
        if (count := len(groups.get((d, share, m), []))) < config["repetitions"]
    ]
    return f"Cells with fewer than {config['repetitions']} splits: {', '.join(short)}." if short else ""


def _finding(records: list[Record], config: Config) -> list[str]:
    """Check the paper's finding that VI's NLL is worse than EP's at a similar error, split by split."""
    by_split = {tuple(r[n] for n in ("data_set", "inducing", "method", "split")): r for r in records}
    rows = []
    for data_set, share in product(config["sets"], config["inducing"]):
        both = [
            (by_split[data_set, share, "vi", i], by_split[data_set, share, "ep", i])
            for i in range(config["repetitions"])
            if {(data_set, share, "vi", i), (data_set, share, "ep", i)} <= set(by_split)
        ]
        if both:
            gaps = (mean_of(vi[score] - ep[score] for vi, ep in both) for score in ("nll", "error"))
            rows.append([NAMES.get(data_set, data_set), f"{share:.0%}", *(gap.signed() for gap in gaps)])
    return ["### VI minus EP, same splits", markdown(["set", "M", "NLL", "error"], rows)] if rows else []


def _paired(records: list[Record], folder: Path) -> list[str]:
    """Compare the paper's settings with the authors' own program on the same splits, M = 10 %."""
    theirs = {
        (r["data_set"], r["method"], int(r["split"])): float(r["nll"]) for r in read_csv(folder / "authors_program.csv")
    }
    ours = {(r["data_set"], r["method"], r["split"]): r["nll"] for r in records if r["inducing"] == 0.1}
    rows = []
    for data_set, method in sorted({key[:2] for key in theirs}):
        keys = [key for key in theirs if key[:2] == (data_set, method) and key in ours]
        if len(keys) > 1:
            gap = mean_of(ours[key] - theirs[key] for key in keys)
            rows.append([NAMES.get(data_set, data_set), STYLES[method].label, gap.signed()])
    title = "### Our run of the paper's settings minus the authors' program, NLL, same splits, M = 10 %"
    return [title, markdown(["set", "method", "difference"], rows)] if rows else []


def _verdicts(config: Config, found: dict[Cell, Mean], paper: dict[Cell, Mean], n_auto: int) -> list[Verdict]:
    cells = [key for key in found if key in paper]
    close = sum(agree(found[key], paper[key]) for key in cells)
    below = _standings(found, paper, AUTO).count("below")
    given, with_sep = (_standings(found, paper, model).count("below") for model in (GIVEN, GIVEN_SEP))
    evidence = f"{_tally(found, paper, AUTO)}; with M as given {given}, with SEP {with_sep}"
    if n_auto < (total := len(config["sets"]) * config["repetitions"]):
        evidence += f" (preliminary: {n_auto} of {total} fits)"
    agreeing = f"{close} of {len(cells)}"
    return [
        Verdict("the paper's settings give the paper's NLL within two combined standard errors in "
                f"{config['least_close']} or more of 96 cells", close >= config["least_close"], agreeing),
        Verdict("our defaults are at or below the best of the paper's four methods in "
                f"{config['least_below']} or more of 24 cells", below >= config["least_below"], evidence, is_ours=True),
    ]  # fmt: skip


def _tally(found: dict[Cell, Mean], paper: dict[Cell, Mean], model: str) -> str:
    standing = _standings(found, paper, model)
    return f"{standing.count('below')} of {len(standing)}, {standing.count('rounded')} more if rounded"


def _standings(found: dict[Cell, Mean], paper: dict[Cell, Mean], model: str) -> list[str]:
    """Compare a model of ours with the paper's best in every cell that the paper has."""
    own = {key[:2]: mean for key, mean in found.items() if key[2] == model}
    return [_standing(mean, best) for key, mean in own.items() if (best := _best(paper, *key)) is not None]


def _draw(config: Config, found: dict[Cell, Mean], paper: dict[Cell, Mean]) -> Any:
    """Draw a panel for each set. Filled markers are ours, hollow ones the paper's."""
    columns = min(4, len(config["sets"]))
    rows = -(-len(config["sets"]) // columns)
    figure = new_figure(3.1 * columns, 2.7 * rows + 0.5)
    for place, data_set in enumerate(config["sets"], start=1):
        axes = plain(figure.add_subplot(rows, columns, place))
        for i, method in enumerate((*PAPER, GIVEN, GIVEN_SEP)):
            _draw_method(axes, data_set, config["inducing"], method, 0.13 * (i - 2), found, paper)
        if (mean := found.get((data_set, config["inducing"][0], AUTO))) is not None:
            axes.axhline(mean.mean, color="black", linewidth=1.2, label=LABELS[AUTO], zorder=1)
            axes.axhspan(mean.mean - 2 * mean.se, mean.mean + 2 * mean.se, color="black", alpha=0.08, linewidth=0)
        axes.set_xticks(range(len(config["inducing"])), [f"{share:.0%}" for share in config["inducing"]])
        axes.set_title(NAMES.get(data_set, data_set), fontsize="medium", loc="left")
        axes.set_yscale("log")
        log_ticks(axes.yaxis, STEPS)
        if (place - 1) % columns == 0:
            axes.set_ylabel("NLL of the test rows / nats")
        if place > len(config["sets"]) - columns:
            axes.set_xlabel("inducing points, share of the rows")
    legend(figure, 7)
    return figure


def _draw_method(
    axes: Any,
    data_set: str,
    shares: list[float],
    method: str,
    shift: float,
    found: dict[Cell, Mean],
    paper: dict[Cell, Mean],
) -> None:
    style = STYLES[method]
    for i, share in enumerate(shares):
        label = LABELS[method] if i == 0 else "_"
        common = {"color": style.color, "marker": style.marker, "capsize": 0, "linestyle": "none"}
        if (mean := found.get((data_set, share, method))) is not None:
            axes.errorbar([i + shift], [mean.mean], [2 * mean.se], markersize=5, elinewidth=1.0, **common)
            axes.plot([i + shift], [mean.mean], color=style.color, marker=style.marker, linestyle="none", label=label)
        if (mean := paper.get((data_set, share, method))) is not None:
            axes.plot([i + shift + 0.06], [mean.mean], color=style.color, marker=style.marker, linestyle="none",
                      markerfacecolor="white", markersize=4.5, zorder=1)  # fmt: skip
