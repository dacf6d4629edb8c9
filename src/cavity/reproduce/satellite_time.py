"""Test scores on Satellite against training time: the paper's figure of the NLL and its supplement's of the error."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cavity.bench.figures import STYLES, legend, line, log_ticks, new_figure, plain
from cavity.classifier import GPClassifier
from cavity.records import Record
from cavity.reproduce.common import Mean, grouped, log_times, markdown, mean_of, scored_curve, split
from cavity.reproduce.courses import PLACE, Course, course, moments
from cavity.reproduce.experiment import Config, Job, Shown, Verdict

RIVALS = ("gfitc", "vi")  # of SEP, in the paper's figure
LABELS = {"nll": "NLL of the test rows / nats", "error": "test error"}
HEADROOM = {"nll": 1.15, "error": 1.8}  # top of a panel, times the highest of the final means
LEAST_RANGE = 1e-3  # of a panel, where no row is wrong
CLOSE = 0.01  # nats above SEP at its end: as good
ALIKE = {"nll": 0.02, "error": 0.01}  # differences that count as none
# Seconds of a fit on Satellite, apart from those that an inducing point adds, and these.
SECONDS = {"gfitc": (7.0, 0.43), "ep": (1.2, 0.16), "sep": (0.9, 0.15), "vi": (8.0, 0.11)}
TEXT = (
    "Means over splits, ± a standard error. *Lowest*: of the mean NLL along training, and when. *As SEP*: seconds "
    f"until the mean NLL is within {CLOSE} of SEP's at its end."
)

Groups = dict[tuple[Any, ...], list[Record]]
Courses = dict[tuple[Any, ...], Course]


def jobs(config: Config) -> list[Job]:
    """A fit for every M, method and split; the split is the seed as well."""
    fixed = {name: config[name] for name in ("data_set", "splits", "times")}
    return [
        {"inducing": M, "method": method, "split": i, "seed": i, **fixed}
        for M, method, i in product(config["inducing"], config["methods"], range(config["repetitions"]))
    ]


def cost(job: Job) -> float:
    """Whole seconds, on Satellite."""
    alone, each = SECONDS[job["method"]]
    return float(round(alone + each * job["inducing"]))


def run(job: Job) -> Record:
    """The paper's settings, on one thread however many there are, so that times compare."""
    torch.set_num_threads(1)
    model = GPClassifier.paper(job["method"], job["inducing"], random_state=job["seed"], device="cpu")
    return scored_curve(model, split(job["data_set"], job["split"], job["splits"]), log_times(*job["times"]))


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Curves of the mean scores, and who is ahead when."""
    groups, seconds = grouped(records, "inducing", "method"), moments(records)
    nll, error = (
        {key: course([r["curve"] for r in group], PLACE[score], seconds) for key, group in groups.items()}
        for score in PLACE
    )
    return Shown(
        f"{TEXT}\n\n{_table(groups, config, nll)}",
        _verdicts(groups, config, nll, error),
        {"satellite-time": _draw(config, {"nll": nll, "error": error})},
    )


def _table(groups: Groups, config: Config, nll: Courses) -> str:
    rows = []
    for M, method in product(config["inducing"], config["methods"]):
        if group := groups.get((M, method)):
            ends = [str(mean_of(r[score] for r in group)) for score in PLACE]
            least = "{:.3f} at {:.1f} s".format(*nll[M, method].lowest())
            took = f"{mean_of(r['seconds'] for r in group).mean:.1f}"
            rows.append([str(M), STYLES[method].label, *ends, least, took, _as_sep(nll, M, method), str(len(group))])
    return markdown(["M", "method", "NLL", "error", "lowest", "seconds of a fit", "as SEP", "splits"], rows)


def _as_sep(nll: Courses, M: int, method: str) -> str:
    if (M, "sep") not in nll:
        return ""
    reached = nll[M, method].first_below(nll[M, "sep"].mean[-1] + CLOSE)
    return "never" if reached is None else f"{reached:.1f}"


def _verdicts(groups: Groups, config: Config, nll: Courses, error: Courses) -> list[Verdict]:
    sizes = [M for M in config["inducing"] if all((M, m) in groups for m in ("sep", "ep", *RIVALS))]
    if not sizes:
        return []
    return [
        _verdict(
            "for the time spent SEP's NLL is the lowest of SEP, GFITC and VI through most of its training, in log time",
            [_ahead(M, nll) for M in sizes],
        ),
        _verdict("when SEP ends, the NLLs of GFITC and VI are higher", [_at_end_of_sep(M, nll) for M in sizes]),
        _verdict("GFITC takes longer than SEP", [_slower(M, groups) for M in sizes]),
        _verdict("VI ends with a worse NLL than SEP at a similar error", [_vi_minus_sep(M, groups) for M in sizes]),
        _vi_overfits(sizes, nll, error),
        _verdict(f"EP's NLL ends like SEP's, to {ALIKE['nll']}", [_ep_minus_sep(M, groups) for M in sizes]),
    ]


def _verdict(claim: str, found: list[tuple[bool, str]]) -> Verdict:
    """A claim holds if it does for every M."""
    return Verdict(claim, all(holds for holds, _ in found), "; ".join(figures for _, figures in found))


def _ahead(M: int, nll: Courses) -> tuple[bool, str]:
    sep = nll[M, "sep"]
    during = np.isfinite(sep.mean) & (sep.seconds <= sep.end)
    rivals = [np.nan_to_num(nll[M, m].mean[during], nan=np.inf) for m in RIVALS]  # nothing yet is worse than anything
    share = float(np.mean(sep.mean[during] <= np.min(rivals, axis=0)))
    return share > 0.5, f"M = {M}: {share:.0%} of it"


def _at_end_of_sep(M: int, nll: Courses) -> tuple[bool, str]:
    end = nll[M, "sep"].end
    then = {m: nll[M, m].at(end) for m in ("sep", *RIVALS)}
    values = ", ".join(f"{STYLES[m].label} {value:.3f}" for m, value in then.items())
    return all(then[m] > then["sep"] for m in RIVALS), f"M = {M}, {end:.1f} s: {values}"


def _slower(M: int, groups: Groups) -> tuple[bool, str]:
    gfitc, sep = (mean_of(r["seconds"] for r in groups[M, m]).mean for m in ("gfitc", "sep"))
    return gfitc > sep, f"M = {M}: {gfitc / sep:.1f} times"


def _vi_minus_sep(M: int, groups: Groups) -> tuple[bool, str]:
    nll, error = (_paired(groups[M, "vi"], groups[M, "sep"], score) for score in PLACE)
    holds = nll.mean > ALIKE["nll"] and abs(error.mean) <= ALIKE["error"]
    return holds, f"M = {M}: NLL {_signed(nll)}, error {_signed(error)}"


def _vi_overfits(sizes: list[int], nll: Courses, error: Courses) -> Verdict:
    """How far scores rise again after their lowest: the paper has it for VI's NLL and not for its error."""
    by_nll, by_error = ([_rise(found[M, "vi"]) for M in sizes] for found in (nll, error))
    figures = (f"M = {M}: NLL {a:+.3f}, error {b:+.3f}" for M, a, b in zip(sizes, by_nll, by_error, strict=True))
    holds = max(by_nll) > ALIKE["nll"] and max(by_error) <= ALIKE["error"]
    return Verdict("VI over-fits by its NLL and not by its error", holds, "; ".join(figures) + " since the lowest")


def _rise(found: Course) -> float:
    return float(found.mean[-1]) - found.lowest()[0]


def _ep_minus_sep(M: int, groups: Groups) -> tuple[bool, str]:
    gap = _paired(groups[M, "ep"], groups[M, "sep"], "nll")
    return abs(gap.mean) <= ALIKE["nll"], f"M = {M}: EP minus SEP {_signed(gap)}"


def _paired(records: list[Record], others: list[Record], score: str) -> Mean:
    """How much higher a score is at the end, over the splits that both have."""
    mine, theirs = ({r["split"]: r[score] for r in group} for group in (records, others))
    return mean_of(mine[i] - theirs[i] for i in mine.keys() & theirs.keys())


def _signed(gap: Mean) -> str:
    return f"{gap.mean:+.3f} ± {gap.se:.3f}"


def _draw(config: Config, courses: dict[str, Courses]) -> Any:
    """A row for each score, a column for each M; the band is two standard errors either side."""
    sizes = config["inducing"]
    figure = new_figure(3.4 * len(sizes), 5.8)
    panels = figure.subplots(len(LABELS), len(sizes), sharex=True, sharey="row", squeeze=False)
    for (score, label), row in zip(LABELS.items(), panels, strict=True):
        for M, axes in zip(sizes, row, strict=True):
            for method in config["methods"]:
                if (M, method) in courses[score]:
                    _draw_course(plain(axes), method, courses[score][M, method])
        _limits(row[0], courses[score], HEADROOM[score])
        row[0].set_ylabel(label)
    for M, top, bottom in zip(sizes, panels[0], panels[-1], strict=True):
        top.set_title(f"M = {M}", fontsize="medium", loc="left")
        bottom.set_xlabel("training time / s")
    legend(figure)
    return figure


def _draw_course(axes: Any, method: str, found: Course) -> None:
    until = found.seconds <= found.end
    seconds, mean, band = found.seconds[until], found.mean[until], 2.0 * found.se[until]
    axes.fill_between(seconds, mean - band, mean + band, color=STYLES[method].color, alpha=0.15, linewidth=0)
    line(axes, method, seconds, mean)


def _limits(axes: Any, courses: Courses, headroom: float) -> None:
    lowest, highest = min(found.lowest()[0] for found in courses.values()), max(c.mean[-1] for c in courses.values())
    axes.set_ylim(0.95 * lowest, headroom * highest + LEAST_RANGE)
    axes.set_xscale("log")
    log_ticks(axes.xaxis, (1.0,))  # panels are narrow
