"""The tables of benchmarks/README.md, written from the records, so that the page and the records cannot differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import quality
from benchmarks.history import latest_runs, main_value, more, relative_speed, subject
from benchmarks.records import Record
from experiments.common import grouped, markdown
from experiments.experiment import between_marks

MARK = "results"
SECTIONS = {"step": "Steps", "fit": "Whole fits", "predict": "Predictions", "scaling": "Growth"}
HEADER = ["of", "what", "precision", "latest", "× GPyTorch", "details", "date", "commit"]


def write(records: Sequence[Record], page: Path) -> None:
    """Replace what the page has between its marks.

    Raises:
        ValueError: if the page lacks the marks.
    """
    page.write_text(between_marks(page.read_text(), MARK, tables(records)))


def tables(records: Sequence[Record]) -> str:
    """Return a table for each benchmark and machine, with the latest run of each thing measured, as Markdown."""
    parts = []
    for case, title in SECTIONS.items():
        for place, own in grouped([r for r in records if r["case"] == case], "processor", "threads").items():
            parts += [_title(title, *place), _table([_row(r, own) for r in latest_runs(own)])]
    points = [r for r in records if r["case"] == "quality"]
    for (data, processor, threads, M, B), own in grouped(points, "data", "processor", "threads", "M", "B").items():
        header, rows = quality.reached(latest_runs(own))
        parts += [_title(f"Time to quality, {data}, M={M} B={B}", processor, threads), markdown(header, rows)]
    return "\n\n".join(parts) + "\n"


def _table(rows: list[list[str]]) -> str:
    """Format a table without the columns that are empty."""
    columns = [column for column in zip(HEADER, *rows, strict=True) if any(column[1:])]
    header, *cells = zip(*columns, strict=True)
    return markdown(header, cells)


def _title(title: str, processor: str, threads: int) -> str:
    return f"**{title}**, {processor}, threads: {threads}"


def _row(record: Record, records: Sequence[Record]) -> list[str]:
    speed = relative_speed(record, records)
    fast = "" if speed is None else f"{speed:.2f}"
    details = more(record).strip(" ,")
    return [subject(record), record["what"], record.get("dtype", ""), main_value(record).text, fast, details,
            record["when"][:10], str(record["commit"])]  # fmt: skip
