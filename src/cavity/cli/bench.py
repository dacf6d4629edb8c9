"""`cavity bench`: how fast it is on this machine, beside rivals and the machine's limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch

from cavity.bench import CASES, Size, append, machine, read
from cavity.report.text import table

HISTORY = Path("benchmarks/history.jsonl")


@click.command()
@click.argument("cases", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--out", type=click.Path(path_type=Path), default=HISTORY, show_default=True, help="File to append to.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(1), help="Threads of torch; all by default.")
@click.option("--size", nargs=4, type=click.IntRange(1), help="C M B D, instead of 10 200 200 784.")
@click.option("--history", is_flag=True, help="Show what the file holds and measure nothing.")
def bench(
    cases: tuple[str, ...], out: Path, device: str, threads: int | None, size: tuple[int, ...] | None, history: bool
) -> None:
    """Measure steps, fits and predictions, and append the results to a file.

    Example: cavity bench step --threads 2
    """
    if history:
        click.echo(_history(read(out)))
        return
    if threads is not None:
        torch.set_num_threads(threads)
    shape = Size(*size) if size else Size()
    where = machine(device)
    for case in cases or CASES:
        for record in CASES[case](shape, device):
            append(out, record | where)
            click.echo(_line(record))


def _line(record: dict[str, Any]) -> str:
    case, what, dtype = record["case"], record["what"], record.get("dtype", "")
    if case == "step":
        share = f"{100 * record['share_of_roofline']:.0f} % of the roofline"
        return f"step     {what:12} {dtype}  {record['least_ms']:9.2f} ms  median {record['median_ms']:9.2f}  {share}"
    if case == "fit":
        return f"fit      {what:12} {record['seconds']:9.2f} s   {record['iterations']} iterations"
    return f"predict  C={record['C']} M={record['M']} D={record['D']}  {record['rows_per_second']} rows a second"


def _history(records: list[dict[str, Any]]) -> str:
    rows = [
        [r["when"], str(r["commit"]), r["case"], r["what"], r.get("dtype", ""), r["processor"], _figure(r)]
        for r in records
    ]
    return table(["when", "commit", "case", "what", "dtype", "processor", "result"], rows) if rows else "nothing yet"


def _figure(record: dict[str, Any]) -> str:
    if "least_ms" in record:
        return f"{record['least_ms']:.1f} ms"
    return f"{record['seconds']:.2f} s" if "seconds" in record else f"{record['rows_per_second']} rows/s"
