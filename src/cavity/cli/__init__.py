"""The command line: one thin file per command."""

import click

from cavity.cli.demo import demo
from cavity.cli.evaluate import evaluate
from cavity.cli.fit import fit
from cavity.cli.output import Commands
from cavity.cli.predict import predict
from cavity.cli.report import report


@click.group(cls=Commands)
@click.version_option(package_name="cavity")
def main() -> None:
    """Gaussian process classification with probabilities you can trust.

    \b
    From a file to a report:
      cavity fit data.csv --target label -o model.cavity
      cavity predict model.cavity new.csv -o predictions.csv
      cavity report model.cavity data.csv -o report.html
    """


for command in (demo, evaluate, fit, predict, report):
    main.add_command(command)
