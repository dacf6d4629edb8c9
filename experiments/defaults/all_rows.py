"""Do few inducing points make the model underconfident? Compare the sharpness with M = 10 % of the rows and M = N.

`python -m experiments.defaults.all_rows` makes the fits that have no record yet in all_rows.jsonl and writes the table
into the README beside it. It needs the data folder.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.records import Record, append, machine, read
from experiments.common import markdown, mean_of
from experiments.defaults.run import CALIBRATED, CHOICE, jobs, run
from experiments.experiment import FOLDER, RESULTS, Config, between_marks, read_config

FOLDS = {"wine": 8, "new_thyroid": 8, "vowel": 2}  # the sets that need the largest sharpness
RECORDS = "all_rows.jsonl"
HEADER = ["set", "folds", "sharpness, M = 10 %", "sharpness, M = N", "NLL, M = 10 %", "NLL, M = N"]


def all_row_jobs(config: Config) -> list[Record]:
    """List the fits of the choice on these folds, with every row as an inducing point."""
    chosen = [job for job in jobs(config | {"inducing": 1.0}) if job["candidate"] == CHOICE]
    return [job for job in chosen if job["fold"] < FOLDS.get(job["data_set"], 0)]


def table(folder: Path) -> str:
    """Compare the records with those of the choice on the same folds. The NLL is that of the calibrated model."""
    own = read(folder / RECORDS)
    chosen = {(r["data_set"], r["fold"]): r for r in read(folder / RESULTS) if r["candidate"] == CHOICE}
    rows = []
    for name in FOLDS:
        pairs = [(chosen[name, record["fold"]], record) for record in own if record["data_set"] == name]
        columns = [[pair[i][score] for pair in pairs] for score in ("sharpness", CALIBRATED) for i in (0, 1)]
        rows.append([name, str(len(pairs)), *(str(mean_of(column)) for column in columns)])
    return markdown(HEADER, rows) + "\n"


if __name__ == "__main__":
    home = FOLDER / "defaults"
    done = {(record["data_set"], record["fold"]) for record in read(home / RECORDS)}
    for job in all_row_jobs(read_config(home, smoke=False)):
        if (job["data_set"], job["fold"]) not in done:
            append(home / RECORDS, job | run(job) | machine("cpu"))
    page = home / "README.md"
    page.write_text(between_marks(page.read_text(), "all-rows", table(home)))
