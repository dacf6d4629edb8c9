"""Training: the loop, its optimizers, its stopping rules and its history."""

from cavity.training.checkpoint import Checkpointer
from cavity.training.history import Event, History, Record, Stop, Watch, describe
from cavity.training.initial import initial_inducing_points, initial_prior, median_distance
from cavity.training.lbfgs import LBFGS, train_lbfgs
from cavity.training.loop import Trainer, TrainingState
from cavity.training.online import OnlineTrainer, tie_sites
from cavity.training.optimizers import Adam, AdaptiveRate, Optimizer
from cavity.training.parameters import HyperPrior, ParametricPrior
from cavity.training.plan import Callbacks, Plan, Trained, TrainingError

__all__ = [
    "LBFGS",
    "Adam",
    "AdaptiveRate",
    "Callbacks",
    "Checkpointer",
    "Event",
    "History",
    "HyperPrior",
    "OnlineTrainer",
    "Optimizer",
    "ParametricPrior",
    "Plan",
    "Record",
    "Stop",
    "Trained",
    "Trainer",
    "TrainingError",
    "TrainingState",
    "Watch",
    "describe",
    "initial_inducing_points",
    "initial_prior",
    "median_distance",
    "tie_sites",
    "train_lbfgs",
]
