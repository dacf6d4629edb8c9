"""Training: the loop, its optimizers, its stopping rules and its history."""

from cavity.training.course import Course, Keeper
from cavity.training.history import History, Record, Stop, Watch
from cavity.training.initial import median_distance, start_inducing, start_model
from cavity.training.lbfgs import LBFGS, train_lbfgs
from cavity.training.loop import Trainer
from cavity.training.online import Stream, tied
from cavity.training.optimizers import Adam, AdaptiveRate, Optimizer
from cavity.training.parameters import HyperPrior, Model
from cavity.training.plan import Plan, Trained, TrainingError

__all__ = [
    "LBFGS",
    "Adam",
    "AdaptiveRate",
    "Course",
    "History",
    "HyperPrior",
    "Keeper",
    "Model",
    "Optimizer",
    "Plan",
    "Record",
    "Stop",
    "Stream",
    "Trained",
    "Trainer",
    "TrainingError",
    "Watch",
    "median_distance",
    "start_inducing",
    "start_model",
    "tied",
    "train_lbfgs",
]
