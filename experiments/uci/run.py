"""Seven small UCI sets on the authors' 20 splits at M = 10 %: the paper's settings and ours beside the paper's figures.

    python experiments/uci/run.py --jobs 2         # resumes where it stopped; CAVITY_DATA names the data folder
    python experiments/uci/run.py --table          # table.md from results.jsonl

One record per fit is appended to results.jsonl. The paper's figures are in paper.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a fit: the jobs share the cores

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from cavity import GPClassifier
from cavity.datasets import load
from cavity.report import scores

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SETS = ("glass", "new_thyroid", "svmguide2", "vehicle", "vowel", "waveform", "wine")
METHODS = ("gfitc", "ep", "sep", "vi")
SETTINGS = ("paper", "cavity")
SHARE = 0.1
SPLITS = 20


class Job(NamedTuple):
    """One fit."""

    data_set: str
    split: int
    method: str
    settings: str


def classifier(job: Job) -> GPClassifier:
    """The paper's settings or the defaults, with the same number of inducing points and the split as seed."""
    if job.settings == "paper":
        return GPClassifier.paper(job.method, n_inducing=SHARE, random_state=job.split)
    return GPClassifier(job.method, n_inducing=SHARE, random_state=job.split)


def run(job: Job) -> dict[str, Any]:
    """Fit on the training rows of a split, score on its test rows."""
    torch.set_num_threads(1)
    X_train, y_train, X_test, y_test = load(job.data_set).split(job.split)
    started = time.perf_counter()
    model = classifier(job).fit(X_train, y_train)
    seconds = time.perf_counter() - started
    found = scores(y_test, model.predict_log_proba(X_test), model.classes_)
    events = sum(record["event"] is not None for record in model.history_)
    return {**job._asdict(), **found._asdict(), "seconds": round(seconds, 2), "events": events, **provenance()}


def provenance() -> dict[str, str]:
    """Commit, versions and machine."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout
    versions = {name: version(name) for name in ("cavity", "torch", "numpy", "scikit-learn")}
    return {"commit": commit.strip(), "python": platform.python_version(), "machine": platform.machine(), **versions}


def records() -> list[dict[str, Any]]:
    """What has been run so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_all(jobs: int, wanted: list[Job]) -> None:
    """Run what is missing, appending each record as it comes."""
    done = {Job(*(record[name] for name in Job._fields)) for record in records()}
    missing = [job for job in wanted if job not in done]
    with ProcessPoolExecutor(jobs) as pool, RESULTS.open("a") as file:
        futures = [pool.submit(run, job) for job in missing]
        for future in tqdm(as_completed(futures), total=len(futures), unit="fit"):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()


def summary() -> dict[tuple[str, str, str], tuple[float, float, float, float]]:
    """By set, method and settings: mean and standard error of NLL, mean error, mean seconds."""
    groups = defaultdict(list)
    for record in records():
        groups[record["data_set"], record["method"], record["settings"]].append(record)
    return {key: _summarise(group) for key, group in groups.items()}


def _summarise(group: list[dict[str, Any]]) -> tuple[float, float, float, float]:
    nll = np.array([record["nll"] for record in group])
    error, seconds = (float(np.mean([record[name] for record in group])) for name in ("error", "seconds"))
    return float(nll.mean()), float(nll.std(ddof=1) / len(nll) ** 0.5), error, seconds


def read(name: str) -> list[dict[str, str]]:
    """The rows of a csv file beside this one."""
    with (HERE / name).open() as file:
        return list(csv.DictReader(file))


def table() -> str:
    """The comparison with the paper as Markdown, with the verdicts counted below it."""
    found, close, verdicts = summary(), [], []
    lines = [
        "| set | method | paper | `paper()` | within 2 s.e. | errors | default | at or below | error | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in read("paper.csv"):
        data_set, method = row["data_set"], row["method"]
        target, target_se = float(row["mean"]), float(row["standard_error"])
        mean, se, paper_error, _ = found[data_set, method, "paper"]
        ours, ours_se, error, seconds = found[data_set, method, "cavity"]
        close.append(abs(mean - target) <= 2 * (se**2 + target_se**2) ** 0.5)
        verdicts.append("yes" if ours <= target else "rounded" if round(ours, 2) <= target else "no")
        lines.append(
            f"| {data_set} | {method.upper()} | {target:.2f} ± {target_se:.2f} | {mean:.3f} ± {se:.3f} "
            f"| {'yes' if close[-1] else 'no'} | {paper_error:.2f}, {float(row['error']):.2f} "
            f"| {ours:.3f} ± {ours_se:.3f} | {verdicts[-1]} | {error:.3f} | {seconds:.1f} |"
        )
    summed = (
        f"`paper()` within two combined standard errors: {sum(close)} of {len(close)}. Defaults at or below the "
        f"printed figure: {verdicts.count('yes')} of {len(verdicts)}, and {verdicts.count('rounded')} more if rounded."
    )
    return "\n".join([*lines, "", summed, "", *finding_lines(), "", *paired_lines(), ""])


def by_split(settings: str, score: str) -> dict[tuple[str, str], NDArray[np.float64]]:
    """One score of every set and method, in the order of the splits."""
    groups: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for record in records():
        if record["settings"] == settings:
            groups[record["data_set"], record["method"]][record["split"]] = record[score]
    return {key: np.array([of_split[i] for i in sorted(of_split)]) for key, of_split in groups.items()}


def finding_lines() -> list[str]:
    """The paper's finding: VI's NLL is worse than EP's at a similar error, split by split."""
    lines = ["| set | VI − EP: NLL, `paper()` | error | NLL, defaults | error |", "|---|---|---|---|---|"]
    for data_set in SETS:
        cells = []
        for settings in SETTINGS:
            for score in ("nll", "error"):
                found = by_split(settings, score)
                cells.append(_mean_and_se(found[data_set, "vi"] - found[data_set, "ep"]))
        lines.append(f"| {data_set} | {' | '.join(cells)} |")
    return lines


def paired_lines() -> list[str]:
    """`paper()` against the authors' own program on the same splits: mean difference of NLL, split by split."""
    theirs = {(r["data_set"], r["method"], int(r["split"])): float(r["nll"]) for r in read("authors_program.csv")}
    ours = {(r["data_set"], r["method"], r["split"]): r["nll"] for r in records() if r["settings"] == "paper"}
    groups = defaultdict(list)
    for key, nll in theirs.items():
        groups[key[:2]].append(ours[key] - nll)
    lines = ["| set | method | NLL of `paper()` − authors' program, same splits |", "|---|---|---|"]
    for (data_set, method), found in sorted(groups.items()):
        lines.append(f"| {data_set} | {method.upper()} | {_mean_and_se(np.array(found))} |")
    return lines


def _mean_and_se(x: NDArray[np.float64]) -> str:
    return f"{x.mean():+.3f} ± {x.std(ddof=1) / len(x) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--settings", nargs="+", default=SETTINGS, choices=SETTINGS)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--table", action="store_true", help="write table.md and run nothing")
    options = parser.parse_args()
    if not options.table:
        names = [(d, m, s) for s in options.settings for d in options.sets for m in options.methods]
        run_all(options.jobs, [Job(d, split, m, s) for d, m, s in names for split in range(options.splits)])
    (HERE / "table.md").write_text(table())
    sys.stdout.write(table())


if __name__ == "__main__":
    main()
