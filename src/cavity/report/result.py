"""A report that can be looked at in a notebook, printed, or saved as one page."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from cavity.files.atomic import atomic_write
from cavity.report.findings import Findings, Interval
from cavity.report.html import Markup, el
from cavity.report.numerals import between, number, percent
from cavity.report.page import page
from cavity.report.sections.verdict import verdict
from cavity.report.text import table

NOTEBOOK_HEIGHT = "720"


class Report:
    """What was found about a model on some rows.

    Attributes:
        findings: the numbers, as plain values.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    @cached_property
    def html(self) -> str:
        """The report as one page that needs nothing else."""
        return page(self.findings)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; a file of this name is replaced at once, never left half written.

        Args:
            path: of the file, whose folder must exist.
        """
        target = Path(path)
        if not target.parent.is_dir():
            raise ValueError(
                f"path={str(path)!r} lies in a folder that does not exist; make {str(target.parent)!r} first"
            )
        if target.is_dir():
            raise ValueError(f"path={str(path)!r} is a folder; the name of a file is needed, such as 'report.html'")
        with atomic_write(target) as temporary:
            temporary.write_bytes(self.html.encode())
        return target

    def __repr__(self) -> str:
        head = ["", "error", "NLL", "Brier", "calibration error"]
        rows = [[line.name, _spread(line.error, True), *map(_spread, (line.nll, line.brier, line.ece))]
                for line in self.findings.scores]  # fmt: skip
        told = [f"{advice.level}: {advice.what}" for advice in self.findings.advice if advice.level == "warning"]
        return "\n".join([self.findings.title, f"{verdict(self.findings)}.", "", table(head, rows), *told])

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither its style nor its script meets the notebook's."""
        return el("iframe", srcdoc=Markup(self.html), sandbox="allow-scripts", title=self.findings.title,
                  width="100%", height=NOTEBOOK_HEIGHT, style="border:0")  # fmt: skip


def _spread(interval: Interval, as_percent: bool = False) -> str:
    value = percent(interval.value) if as_percent else number(interval.value)
    return f"{value} ({between(interval, as_percent)})"
