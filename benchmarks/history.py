"""Records as text: one line for each measurement, and the latest value compared with the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.records import Record

HEADER = ["case", "what", "of", "dtype", "processor", "latest", "commit", "best", "commit", "runs"]


class Value(NamedTuple):
    """The number by which records are compared. `sign` is -1 if more is better."""

    value: float
    text: str
    sign: int = 1


def main_value(record: Record) -> Value:
    """Return the main result of a record: time, exponent, NLL, memory or rows per second."""
    match record["case"]:
        case "step":
            return Value(record["least_ms"], f"{record['least_ms']:.1f} ms")
        case "fit":
            return Value(record["seconds"], f"{record['seconds']:.2f} s")
        case "predict":
            return Value(record["rows_per_second"], f"{record['rows_per_second']} rows/s", -1)
        case "scaling":
            return Value(record["exponent"], f"exponent {record['exponent']:.2f}")
        case "memory":
            return Value(record["peak_memory_mib"], f"{record['peak_memory_mib']} MiB")
        case "source" | "ranks":
            return Value(record["ms"], f"{record['ms']:.2f} ms")
        case "classes":
            return Value(record["seconds"], f"{record['seconds']:.0f} s")
        case "busy":
            return Value(record["ratio"], f"{record['ratio']:.2f} × idle")
        case "start" | "query":
            return Value(record["seconds"], f"{record['seconds']:.2f} s")
        case "short_limits":
            return Value(record["nll"], f"NLL {record['nll']:.3f}")
        case _:
            return Value(record["nll"], f"NLL {record['nll']:.4f} in {record['seconds']:.0f} s")


def subject(record: Record) -> str:
    """Return what was measured besides the method: a data set, or sizes."""
    match record["case"]:
        case "step" | "ranks":
            return "C={C} M={M} B={B} D={D}".format(**record)
        case "fit":
            return f"{record.get('data', 'waveform')}, {record['rows']} rows"
        case "predict":
            return "C={C} M={M} D={D}".format(**record)
        case "scaling":
            return "by {by}, C={C} M={M} B={B} D={D}".format(**record)
        case "short_limits":
            return "{rows} rows, B={B}, {limit:g} s".format(**record)
        case "start":
            return "{data}, {rows} rows, M={M} D={D}".format(**record)
        case "query":
            return "{rows} rows, C={C} M={M} D={D}".format(**record)
        case "memory" | "source":
            return "{rows} rows, C={C} M={M} B={B} D={D}".format(**record)
        case "classes":
            return "N={N} C={C} M={M} B={B} D={D}".format(**record)
        case "busy":
            sizes = "C={C} M={M} B={B}, ".format(**record) if "C" in record else ""
            return f"{sizes}{record['busy']} busy, {record['processors']} processors"
        case _:
            return "{data}, M={M} B={B}".format(**record)


def line(record: Record) -> str:
    """Format a record as one line."""
    head = f"{record['case']:8} {record['what']:12} {record.get('dtype', ''):8}"
    if "skipped" in record:
        return f"{head} skipped: {record['skipped']}"
    return f"{head} {subject(record):30} {main_value(record).text:>18}{more(record)}"


def more(record: Record) -> str:
    """Return what a record says besides its main value."""
    match record["case"]:
        case "step":
            share = 100 * record["share_of_roofline"]
            calls = f", {record['operations']} operations" if "operations" in record else ""
            return f"  median {record['median_ms']:.1f}, {share:.0f} % of the roofline{calls}"
        case "fit":
            return f"  {record['iterations']} iterations, NLL {record['nll']:.3f}, {record['peak_memory_mib']} MiB"
        case "predict" | "query":
            return f"  {record['peak_memory_mib']} MiB"
        case "memory" | "source" | "busy":
            return f"  {record['seconds']:.1f} s"
        case "short_limits":
            worse = ", WORSE" if record["nll"] > record["frequencies"] else ""
            return f"  class frequencies {record['frequencies']:.3f}{worse}; {record['seconds']:.2f} s"
        case "start":
            return f"  mean squared distance to the nearest point {record['inertia']:.4g}"
        case "ranks":
            return f"  {record['gflop']} GFLOP and {record['message_mb']} MB of messages per rank"
        case "classes":
            return f"  {record['peak_memory_mib']} MiB, {record['rows_per_second']} rows/s, NLL {record['nll']:.3f}"
        case "scaling":
            pairs = zip(record["sizes"], record["seconds"], strict=True)
            return "  " + ", ".join(f"{size}: {seconds:.3g} s" for size, seconds in pairs)
        case _:
            return f"  error {100 * record['error']:.2f} %"


def summary(records: Iterable[Record]) -> list[list[str]]:
    """Return a table row for each thing measured on each machine: latest and best value, with their commits."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in _last_points(records):
        groups.setdefault(_key(record), []).append(record)
    return [[*key, *_latest_and_best(groups[key])] for key in sorted(groups)]


def relative_speed(record: Record, records: Iterable[Record], rival: str = "gpytorch") -> float | None:
    """Return how many times as fast this is as a rival in the same run; None if it did not run, or for the rival."""
    if record["case"] not in ("step", "predict") or record["what"] == rival:
        return None
    setting = _setting(record)
    same = [r for r in records if r["what"] == rival and r["when"] == record["when"] and _setting(r) == setting]
    own, other = main_value(record), main_value(same[0]) if same else None
    return None if other is None else (other.value / own.value) ** own.sign


def _setting(record: Record) -> tuple[str, ...]:
    case, _, *rest = _key(record)
    return case, *rest


def latest_runs(records: Sequence[Record]) -> list[Record]:
    """Return the records of the latest run of each thing measured, in the order in which they were first measured."""
    latest: dict[tuple[str, ...], list[Record]] = {}
    for record in sorted(records, key=lambda r: r["when"]):
        own = latest.setdefault(_key(record), [])
        if own and own[0]["when"] != record["when"]:
            own.clear()
        own.append(record)
    return [record for own in latest.values() for record in own]


def _last_points(records: Iterable[Record]) -> list[Record]:
    """Reduce each curve of NLL to its last point."""
    kept: dict[object, Record] = {}
    for number, record in enumerate(records):
        is_curve = record["case"] == "quality"
        kept[(record["when"], *_key(record)) if is_curve else number] = record
    return list(kept.values())


def _key(record: Record) -> tuple[str, ...]:
    processor = f"{record['processor']}, {record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    return record["case"], record["what"], subject(record), record.get("dtype", ""), processor


def _latest_and_best(group: Sequence[Record]) -> list[str]:
    latest = max(reversed(group), key=lambda record: record["when"])  # the last of the same second
    best = min(group, key=lambda record: main_value(record).sign * main_value(record).value)
    values = [text for record in (latest, best) for text in (main_value(record).text, str(record["commit"]))]
    return [*values, str(len(group))]
