"""What an experiment is: a module of this package with four functions, and a folder with its settings and results."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from cavity.records import Record

Job = dict[str, Any]
Config = dict[str, Any]

NAMES = ("uci", "schemes", "sep-toy", "inducing", "satellite-time", "mnist", "airline", "vi-airline", "defaults")
CONFIG, RESULTS = "config.toml", "results.jsonl"
SMOKE = "smoke"


class Verdict(NamedTuple):
    """A claim, whether the records bear it out, and the figures it was judged by."""

    claim: str
    holds: bool
    figures: str


class Shown(NamedTuple):
    """What the records show: tables as Markdown, and pictures (matplotlib's figures) by the name of their file."""

    text: str
    verdicts: list[Verdict]
    pictures: dict[str, Any]


@runtime_checkable
class Experiment(Protocol):
    """What a module has to have."""

    def jobs(self, config: Config) -> list[Job]:
        """The fits to make. A job holds all that its outcome depends on, as JSON values; `seed` among them."""

    def run(self, job: Job) -> Record:
        """Make one fit: what was found, without the job's own entries. It runs in a process of its own."""

    def cost(self, job: Job) -> float:
        """About how long a fit takes, compared with the others."""

    def show(self, records: list[Record], config: Config, folder: Path) -> Shown:
        """What the records say, beside the paper; `folder` has the experiment's own files, such as its csv."""


def the(name: str) -> Experiment:
    """The experiment of a name."""
    return cast(Experiment, importlib.import_module(f"cavity.reproduce.{name.replace('-', '_')}"))


def read_config(folder: Path, smoke: bool) -> Config:
    """The settings in the experiment's folder, at smoke size with those under [smoke] on top."""
    path = folder / CONFIG
    try:
        config = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is not there: experiments live in the repository; run in a clone of it, or name its folder of "
            "experiments with --folder"
        ) from None
    small = config.pop(SMOKE)
    return config | small if smoke else config
