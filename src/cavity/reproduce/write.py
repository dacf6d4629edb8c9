"""Tables and pictures from records, written beside them."""

from __future__ import annotations

from pathlib import Path

from cavity.bench.figures import save
from cavity.records import Record, read
from cavity.reproduce.experiment import RESULTS, Config, Shown, Verdict, the

PAGE = Path("docs/reproduction.md")  # in the repository, beside the folder of experiments


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
    _rewrite(out / "README.md", "results", text)
    if out == folder:
        _rewrite(folder.parent.parent / PAGE, name, verdict_lines(shown))
    return shown.verdicts


def _rewrite(page: Path, mark: str, text: str) -> None:
    if page.exists():
        page.write_text(between_marks(page.read_text(), mark, text))


def wanted(records: list[Record], name: str, config: Config) -> list[Record]:
    """The records of the fits that these settings ask for: the file may hold others."""
    jobs = the(name).jobs(config)
    keys = {str([job[n] for n in jobs[0]]) for job in jobs}
    return [record for record in records if str([record.get(n) for n in jobs[0]]) in keys]


def as_text(shown: Shown) -> str:
    """Tables, then a line for each claim."""
    return "\n\n".join(part.strip() for part in (shown.text, verdict_lines(shown)) if part.strip()) + "\n"


def verdict_lines(shown: Shown) -> str:
    """A line for each claim."""
    words = {True: "**holds**", False: "**does not hold**"}
    return "".join(f"- {words[v.holds]}: {v.claim} ({v.figures})\n" for v in shown.verdicts)


def between_marks(page: str, mark: str, text: str) -> str:
    """The page with `text` between two marks.

    >>> between_marks("a\\n<!-- x -->\\nold\\n<!-- /x -->\\nb\\n", "x", "new\\n")
    'a\\n<!-- x -->\\nnew\\n<!-- /x -->\\nb\\n'
    """
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"the page has no place for results: {begin} and {end}")
    return f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}"
