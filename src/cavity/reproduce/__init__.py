"""The paper's experiments, each one module: which fits, one fit, and what the records of all of them show."""

from cavity.reproduce.experiment import NAMES, Experiment, Verdict, read_config, the
from cavity.reproduce.runner import missing, run_missing
from cavity.reproduce.write import write_results

__all__ = ["NAMES", "Experiment", "Verdict", "missing", "read_config", "run_missing", "the", "write_results"]
