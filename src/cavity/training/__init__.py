"""Training: the loop, its optimizers, its stopping rules and its history."""

from cavity.training.history import Event, Record, Stop, Watch, describe

__all__ = ["Event", "Record", "Stop", "Watch", "describe"]
