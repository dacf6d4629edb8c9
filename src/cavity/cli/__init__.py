"""The command line: one thin file per command."""

import click

from cavity.cli.bench import bench
from cavity.cli.demo import demo
from cavity.cli.reproduce import reproduce


@click.group()
@click.version_option(package_name="cavity")
def main() -> None:
    """Gaussian process classification with probabilities you can trust."""


main.add_command(bench)
main.add_command(demo)
main.add_command(reproduce)
