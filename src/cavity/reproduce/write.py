"""Tables and pictures from records, written beside them."""

from __future__ import annotations

from pathlib import Path

from cavity.records import Record, read
from cavity.report.figures import save
from cavity.reproduce.experiment import RESULTS, Config, Shown, Verdict, the

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def write_results(name: str, config: Config, folder: Path, out: Path, judge: bool = True) -> list[Verdict]:
    """Write results.md and the pictures, and put the tables into the README there, between its two marks.

    A smoke size is not judged: it is there to see that everything runs.
    """
    records = wanted(read(out / RESULTS), name, config)
    if not records:
        raise ValueError(f"{out / RESULTS} has no records of these settings yet: run the experiment first")
    shown = the(name).show(records, config, folder)
    shown = shown if judge else shown._replace(verdicts=[])
    text = as_text(shown)
    (out / "results.md").write_text(text)
    for title, picture in shown.pictures.items():
        save(picture, out / title)
    readme = out / "README.md"
    if readme.exists():
        readme.write_text(between_marks(readme.read_text(), text))
    return shown.verdicts


def wanted(records: list[Record], name: str, config: Config) -> list[Record]:
    """The records of the fits that these settings ask for: the file may hold others."""
    jobs = the(name).jobs(config)
    keys = {str([job[n] for n in jobs[0]]) for job in jobs}
    return [record for record in records if str([record.get(n) for n in jobs[0]]) in keys]


def as_text(shown: Shown) -> str:
    """Tables, then a line for each claim."""
    lines = [f"- {'**holds**' if v.holds else '**does not hold**'}: {v.claim} ({v.figures})" for v in shown.verdicts]
    return "\n\n".join(part.strip() for part in (shown.text, "\n".join(lines)) if part.strip()) + "\n"


def between_marks(page: str, text: str) -> str:
    """The page with `text` between its marks.

    >>> between_marks("a\\n<!-- results -->\\nold\\n<!-- /results -->\\nb\\n", "new\\n")
    'a\\n<!-- results -->\\nnew\\n<!-- /results -->\\nb\\n'
    """
    before, mark, rest = page.partition(BEGIN)
    if not mark or END not in rest:
        raise ValueError(f"README.md has no place for the results: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}"
