"""Training: the loop, its optimisers, its stopping rules and its history."""

from cavity.training.course import Course, Keeper
from cavity.training.history import History, Record, Stop, Watch
from cavity.training.hyper import HyperPrior, Model
from cavity.training.lbfgs import LBFGS, train_lbfgs
from cavity.training.loop import Trainer
from cavity.training.optimisers import Adam, AdaptiveRate, Optimiser
from cavity.training.plan import Plan, Trained, TrainingError
from cavity.training.start import median_distance, start_inducing, start_model
from cavity.training.stream import Stream, tied

__all__ = [
    "LBFGS",
    "Adam",
    "AdaptiveRate",
    "Course",
    "History",
    "HyperPrior",
    "Keeper",
    "Model",
    "Optimiser",
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
