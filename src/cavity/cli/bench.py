"""`cavity bench`: how fast it is on this machine, beside rivals and the machine's limit."""

from __future__ import annotations

from pathlib import Path

import click
import torch

from cavity.bench import CASES, HEADER, TASKS, USUAL, Options, Size, append, line, machine, reached, read, summary
from cavity.bench.history_plot import draw
from cavity.report.text import table

HISTORY = Path("benchmarks/history.jsonl")
NEW = Options()
FILE = click.Path(dir_okay=False, path_type=Path)
POSITIVE = click.FloatRange(0, min_open=True)


@click.command()
@click.argument("cases", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--out", type=FILE, default=HISTORY, show_default=True, help="File to append to.")
@click.option("--device", default=NEW.device, show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(1), help="Threads of torch and of the rivals; all by default.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), help="One precision only.")
@click.option("--size", nargs=4, type=click.IntRange(1), default=NEW.size, show_default=True, help="C M B D.")
@click.option("--inducing", type=click.IntRange(1), help="M, instead of that of --size.")
@click.option("--batch", type=click.IntRange(1), help="B, instead of that of --size.")
@click.option("--data", type=click.Choice(TASKS), default=NEW.data, show_default=True, help="What quality learns.")
@click.option(
    "--seconds", type=POSITIVE, multiple=True, default=NEW.seconds, show_default=True,
    help="When quality is scored; once for each time.",
)  # fmt: skip
@click.option("--rate", type=POSITIVE, default=NEW.rate, show_default=True, help="Of Adam, for the rivals.")
@click.option("--own-rate", type=POSITIVE, help="Of Adam, for cavity, instead of its default.")
@click.option("--lengthscale", type=POSITIVE, help="Where all start in quality, instead of by the data.")
@click.option("--what", multiple=True, help="A competitor of quality, such as 'cavity sep' or gpflow; all by default.")
@click.option("--history", is_flag=True, help="Show the latest and the best of what the file holds; measure nothing.")
@click.option("--plot", type=FILE, help="Draw what the file holds into this PNG, SVG or PDF; measure nothing.")
def bench(
    cases: tuple[str, ...],
    out: Path,
    device: str,
    threads: int | None,
    dtype: str | None,
    size: tuple[int, int, int, int],
    inducing: int | None,
    batch: int | None,
    data: str,
    seconds: tuple[float, ...],
    rate: float,
    own_rate: float | None,
    lengthscale: float | None,
    what: tuple[str, ...],
    history: bool,
    plot: Path | None,
) -> None:
    """Measure steps, fits, predictions, growth with size and time to quality; append the results to a file.

    Examples: cavity bench step --threads 2, or cavity bench quality --data mnist --seconds 30 --seconds 300
    """
    if history or plot:
        _show(out, history, plot)
        return
    if threads is not None:
        torch.set_num_threads(threads)
    shape = Size(*size)
    shape = shape._replace(M=inducing or shape.M, B=batch or shape.B)
    options = Options(shape, device, dtype, data, seconds, rate, own_rate, lengthscale, what)
    for case in cases or USUAL:
        _measure(case, options, out)


def _measure(case: str, options: Options, out: Path) -> None:
    where, records = machine(options.device), []
    for record in CASES[case](options):
        click.echo(line(record))
        if "skipped" not in record:
            append(out, record | where)
            records.append(record)
    if case == "quality" and records:
        click.echo("\n" + table(*reached(records)))


def _show(out: Path, history: bool, plot: Path | None) -> None:
    records = read(out)
    if history:
        click.echo(table(HEADER, summary(records)) if records else "nothing yet")
    if plot:
        try:
            draw(records, plot)
        except (ImportError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"drawn into {plot}")
