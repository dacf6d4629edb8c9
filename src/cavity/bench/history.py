"""What the records say, in words: one line as a figure comes, and the latest beside the best of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cavity.records import Record

HEADER = ["case", "what", "of", "dtype", "processor", "latest", "commit", "best", "commit", "runs"]


class Figure(NamedTuple):
    """The number that a record is compared by; `sign` is -1 where more is better."""

    value: float
    text: str
    sign: int = 1


def figure(record: Record) -> Figure:
    """What a record is compared by: time, exponent, NLL, memory or rows a second."""
    match record["case"]:
        case "step":
            return Figure(record["least_ms"], f"{record['least_ms']:.1f} ms")
        case "fit":
            return Figure(record["seconds"], f"{record['seconds']:.2f} s")
        case "predict":
            return Figure(record["rows_per_second"], f"{record['rows_per_second']} rows/s", -1)
        case "scaling":
            return Figure(record["exponent"], f"exponent {record['exponent']:.2f}")
        case "memory":
            return Figure(record["peak_memory_mib"], f"{record['peak_memory_mib']} MiB")
        case "source" | "ranks":
            return Figure(record["ms"], f"{record['ms']:.2f} ms")
        case "classes":
            return Figure(record["seconds"], f"{record['seconds']:.0f} s")
        case _:
            return Figure(record["nll"], f"NLL {record['nll']:.4f} in {record['seconds']:.0f} s")


def subject(record: Record) -> str:
    """What was measured, beside the method: a data set, or sizes."""
    match record["case"]:
        case "step" | "ranks":
            return "C={C} M={M} B={B} D={D}".format(**record)
        case "fit":
            return f"{record.get('data', 'waveform')}, {record['rows']} rows"
        case "predict":
            return "C={C} M={M} D={D}".format(**record)
        case "scaling":
            return "by {by}, C={C} M={M} B={B} D={D}".format(**record)
        case "memory" | "source":
            return "{rows} rows, C={C} M={M} B={B} D={D}".format(**record)
        case "classes":
            return "N={N} C={C} M={M} B={B} D={D}".format(**record)
        case _:
            return "{data}, M={M} B={B}".format(**record)


def line(record: Record) -> str:
    """A record as it comes, with what is worth seeing at once."""
    head = f"{record['case']:8} {record['what']:12} {record.get('dtype', ''):8}"
    if "skipped" in record:
        return f"{head} left out: {record['skipped']}"
    return f"{head} {subject(record):30} {figure(record).text:>18}{_more(record)}"


def _more(record: Record) -> str:
    match record["case"]:
        case "step":
            share = 100 * record["share_of_roofline"]
            calls = f", {record['operations']} operations" if "operations" in record else ""
            return f"  median {record['median_ms']:.1f}, {share:.0f} % of the roofline{calls}"
        case "fit":
            return f"  {record['iterations']} iterations, NLL {record['nll']:.3f}, {record['peak_memory_mib']} MiB"
        case "predict":
            return f"  {record['peak_memory_mib']} MiB"
        case "memory" | "source":
            return f"  {record['seconds']:.1f} s"
        case "ranks":
            return f"  {record['gflop']} GFLOP and {record['message_mb']} MB of messages a rank"
        case "classes":
            return f"  {record['peak_memory_mib']} MiB, {record['rows_per_second']} rows/s, NLL {record['nll']:.3f}"
        case "scaling":
            pairs = zip(record["sizes"], record["seconds"], strict=True)
            return "  " + ", ".join(f"{size}: {seconds:.3g} s" for size, seconds in pairs)
        case _:
            return f"  error {100 * record['error']:.2f} %"


def summary(records: Iterable[Record]) -> list[list[str]]:
    """A row for each thing measured on each machine: the latest figure and the best, with their commits."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in _ends(records):
        groups.setdefault(_key(record), []).append(record)
    return [[*key, *_latest_and_best(groups[key])] for key in sorted(groups)]


def _ends(records: Iterable[Record]) -> list[Record]:
    """The records, a curve of NLL standing there by its last point."""
    kept: dict[object, Record] = {}
    for number, record in enumerate(records):
        is_curve = record["case"] == "quality"
        kept[(record["when"], *_key(record)) if is_curve else number] = record
    return list(kept.values())


def _key(record: Record) -> tuple[str, ...]:
    processor = f"{record['processor']}, {record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    return record["case"], record["what"], subject(record), record.get("dtype", ""), processor


def _latest_and_best(group: Sequence[Record]) -> list[str]:
    latest = max(reversed(group), key=lambda record: record["when"])  # of one second the last
    best = min(group, key=lambda record: figure(record).sign * figure(record).value)
    figures = [text for record in (latest, best) for text in (figure(record).text, str(record["commit"]))]
    return [*figures, str(len(group))]
