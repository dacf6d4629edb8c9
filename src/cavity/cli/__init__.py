"""The command `cavity`: one module per subcommand, imported when it runs, so that help appears at once."""

import click

from cavity.cli.output import Commands

SUMMARIES = {
    "demo": "Classify handwritten digits and compare with two baselines.",
    "drift": "Compare the rows of a file with the training rows of a model.",
    "evaluate": "Score a model on labeled rows.",
    "fit": "Train a classifier on the rows of a file.",
    "predict": "Predict labels and probabilities for the rows of a file.",
    "report": "Write an HTML report about a model.",
}


@click.group(cls=Commands, summaries=SUMMARIES)
@click.version_option(package_name="cavity")
def main() -> None:
    """Gaussian process classification with probabilities you can trust.

    \b
    From a file to a report:
      cavity fit data.csv --target label -o model.cavity
      cavity predict model.cavity new.csv -o predictions.csv
      cavity report model.cavity data.csv -o report.html
    """
