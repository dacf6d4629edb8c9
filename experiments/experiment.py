"""What an experiment is, how its settings are read, and how its records become tables, figures and verdicts."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from benchmarks.figures import save
from benchmarks.records import Record, read
from experiments.common import markdown

Job = dict[str, Any]
Config = dict[str, Any]

NAMES = (
    *("uci", "schemes", "sep_toy", "inducing", "satellite_time", "mnist", "airline", "vi_airline"),
    *("defaults", "coverage", "uncertainty", "tables", "medium", "pixels", "search", "stability", "power"),
    *("leave_one_out", "precision", "prediction_sets", "novelty", "active"),
)
FOLDER = Path(__file__).parent
CONFIG, RESULTS = "config.toml", "results.jsonl"
SMOKE = "smoke"  # the section of config.toml with a size that takes seconds
CLAIMS, SOURCES = "### Claims\n\n", ("paper", "ours")
YES, NO = "yes", "**no**"


class Verdict(NamedTuple):
    """A claim, whether the records support it, the numbers that decide, and whether the claim is our own."""

    claim: str
    holds: bool
    evidence: str
    is_ours: bool = False


class Summary(NamedTuple):
    """What the records show: tables as Markdown, verdicts, and matplotlib figures by file name."""

    text: str
    verdicts: list[Verdict]
    figures: dict[str, Any]


@runtime_checkable
class Experiment(Protocol):
    """The functions that `experiments/NAME/run.py` defines."""

    def jobs(self, config: Config) -> list[Job]:
        """List the fits. A job holds all that its result depends on, as JSON values, including `seed`."""

    def run(self, job: Job) -> Record:
        """Make one fit in a process of its own. Return the results without the entries of the job."""

    def cost(self, job: Job) -> float:
        """Estimate how long a fit takes, relative to the others."""

    def summarize(self, records: list[Record], config: Config, folder: Path) -> Summary:
        """Compare the records with the paper. `folder` holds the experiment's own files, such as the paper's tables."""


def load(name: str) -> Experiment:
    """Import the experiment with this name."""
    return cast(Experiment, importlib.import_module(f"experiments.{name}.run"))


def title(name: str) -> str:
    """Return the title of the experiment's README."""
    return (FOLDER / name / "README.md").read_text().partition("\n")[0].removeprefix("# ")


def read_config(folder: Path, smoke: bool) -> Config:
    """Read the settings of an experiment; with `smoke`, those under [smoke] replace the full-size ones.

    Raises:
        FileNotFoundError: if the folder has no config.toml.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist. `--folder` must name the folder that holds the experiments.")
    config = tomllib.loads(path.read_text())
    small = config.pop(SMOKE)
    return config | small if smoke else config


def key(record: Record, job: Job) -> str:
    """Return what identifies a fit: the record's values of the entries that `job` has."""
    return json.dumps([record.get(name) for name in job])


def matching_records(name: str, config: Config, out: Path) -> list[Record]:
    """Read the records of the fits that these settings ask for. The file may hold others."""
    jobs = load(name).jobs(config)
    wanted = {key(job, jobs[0]) for job in jobs}
    return [record for record in read(out / RESULTS) if key(record, jobs[0]) in wanted]


def write_results(name: str, config: Config, folder: Path, out: Path, judge: bool = True) -> list[Verdict]:
    """Write results.md and the figures, and copy the tables into the README beside them, between two marks.

    After a full-size run the README of the repository and docs/reproduction.md get the claims of all experiments. With
    `judge=False` no claim is judged: a smoke run only shows that the code works.

    Raises:
        ValueError: if there are no records yet, or if a page lacks the marks.
    """
    records = matching_records(name, config, out)
    if not records:
        raise ValueError(f"{out / RESULTS} has no records of these settings. Run the experiment first.")
    summary = load(name).summarize(records, config, folder)
    verdicts = summary.verdicts if judge else []
    claims = CLAIMS + claims_table(verdicts) if verdicts else ""
    text = "\n\n".join(part.strip() for part in (summary.text, claims) if part.strip()) + "\n"
    (out / "results.md").write_text(text)
    for file_name, figure in summary.figures.items():
        save(figure, out / file_name)
    pages = [(out / "README.md", "results", text)]
    if out == folder:
        root, (counts, by_experiment, every_claim) = folder.parent.parent, overview(folder.parent)
        pages.append((root / "README.md", "claims", f"{counts}\n\n{by_experiment}\n"))
        pages.append((root / "docs/reproduction.md", "claims", f"{counts}\n\n{every_claim}\n"))
    for page, mark, content in pages:
        if page.exists():
            page.write_text(between_marks(page.read_text(), mark, content))
    return verdicts


def claims_table(verdicts: list[Verdict]) -> str:
    """Format claims and verdicts as a Markdown table.

    >>> print(claims_table([Verdict("EP is faster", False, "2 s, SEP 1 s")]))
    | claim | of | holds | our figures |
    |---|---|---|---|
    | EP is faster | paper | **no** | 2 s, SEP 1 s |
    """
    rows = [[v.claim, SOURCES[v.is_ours], YES if v.holds else NO, v.evidence] for v in verdicts]
    return markdown(["claim", "of", "holds", "our figures"], rows)


def overview(folder: Path) -> tuple[str, str, str]:
    """Collect the claims in the results.md of every experiment.

    Returns:
        A sentence with their numbers, a table with a row for each experiment, and a table with a row for each claim.
    """
    by_experiment, rows = [], []
    for name in NAMES:
        path = folder / name / "results.md"
        lines = path.read_text().partition(CLAIMS)[2].splitlines()[2:] if path.exists() else []
        claims = [line.strip("| ").split(" | ") for line in lines]
        failed = [f"{claim} ({source})" for claim, source, holds, _ in claims if holds == NO]
        if claims:
            number = f"{len(claims) - len(failed)} of {len(claims)}"
            by_experiment.append([f"[{name}](experiments/{name}/README.md)", number, "; ".join(failed)])
        rows += [[f"[{name}](../experiments/{name}/README.md)", *claim] for claim in claims]
    paper, ours = ([row[3] for row in rows if row[2] == source] for source in SOURCES)
    every = paper + ours
    return (
        f"Of {len(every)} claims, {every.count(YES)} hold and {every.count(NO)} do not: {paper.count(YES)} of the "
        f"{len(paper)} of the paper hold, and {ours.count(YES)} of the {len(ours)} of our own.",
        markdown(["experiment", "claims that hold", "claims that do not hold"], by_experiment),
        markdown(["experiment", "claim", "of", "holds", "our figures"], rows),
    )


def between_marks(page: str, mark: str, text: str) -> str:
    """Replace what a page has between two marks.

    >>> between_marks("a\\n<!-- x -->\\nold\\n<!-- /x -->\\nb\\n", "x", "new\\n")
    'a\\n<!-- x -->\\nnew\\n<!-- /x -->\\nb\\n'
    """
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"the page must contain the marks {begin} and {end}, between which the results go")
    return f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}"
