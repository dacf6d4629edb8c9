"""Decisions: the action of the least expected cost, and what knowing more would be worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.data.labels import listed, plain

Array = NDArray[np.float64]

ABSTAIN = "abstain"  # the name of that action
LARGEST_COST = 1e100  # sums and differences stay finite


class Decision(NamedTuple):
    """The action of the least expected cost for each row, in the units of the cost matrix.

    Attributes:
        action: its name, (N,): a label, or what `actions` and `abstain` name. Of equal costs the first column wins.
        choice: its place in `actions`, (N,).
        cost: its expected cost, (N,).
        costs: the expected cost of every action, (N, A).
        value_of_label: how much less the row would cost on average if its label were known before acting, (N,): the
            most that a test or an expert may cost.
        value_of_rows: how much less it would cost on average if the latent functions were known as well as rows can
            teach the model, (N,): what more training rows near this one are worth at most, each time such a row is
            decided. Between 0 and `value_of_label`. None if it was not asked for.
        actions: the names of the actions, (A,).
    """

    action: NDArray[Any]
    choice: NDArray[np.int64]
    cost: Array
    costs: Array
    value_of_label: Array
    value_of_rows: Array | None
    actions: NDArray[Any]


@dataclass(frozen=True)
class Costs:
    """What each action costs for each true class, (C, A), and the names of the actions."""

    matrix: Array
    actions: NDArray[Any]

    @classmethod
    def read(
        cls, cost: Any, classes: NDArray[Any], abstain: ArrayLike | None = None, actions: Sequence[Any] | None = None
    ) -> Costs:
        """Read the arguments of `GPClassifier.decide`; raise an error that names the one that is invalid."""
        rows, names = _by_label(cost, classes)
        matrix = _numbers("cost", rows)
        if matrix.ndim != 2 or len(matrix) != len(classes) or not matrix.shape[1]:
            raise ValueError(
                f"cost must have a row for each of the {len(classes)} classes and a column for each action, got shape "
                f"{matrix.shape}: rows are in the order of classes_, {listed(classes)}"
            )
        n_actions = matrix.shape[1]
        if actions is not None:
            names = list(actions)
            if len(names) != n_actions:
                raise ValueError(
                    f"actions must name the {n_actions} columns of cost, got {len(names)} names: leave out the action "
                    "of `abstain`, which is added"
                )
        elif names is None:
            if n_actions != len(classes):
                raise ValueError(
                    f"actions must name the {n_actions} columns of cost, which are not the {len(classes)} labels, got "
                    "None: pass actions=[...]"
                )
            names = classes.tolist()
        if abstain is not None:
            own = _numbers("abstain", abstain)
            if own.ndim > 1 or (own.ndim == 1 and len(own) != len(classes)):
                raise ValueError(
                    f"abstain must be a cost, or one for each of the {len(classes)} classes, got shape {own.shape}"
                )
            matrix = np.column_stack([matrix, np.broadcast_to(own, len(classes))])
            names = [*names, ABSTAIN]
        names = [plain(name) for name in names]
        if repeated := [name for i, name in enumerate(names) if name in names[:i]]:
            raise ValueError(
                f"actions must have different names, got {repeated[0]!r} twice: name the columns by actions=[...]"
            )
        is_text = all(isinstance(name, str) for name in names)
        found = np.array(names) if is_text else np.empty(len(names), dtype=object)
        found[:] = names
        return cls(matrix, classes if names == classes.tolist() else found)

    @property
    def regret(self) -> Array:
        """What each action costs beyond the best one for the true class."""
        return np.asarray(self.matrix - self.matrix.min(1, keepdims=True))

    def decide(self, p: Array, value_of_rows: Array | None = None) -> Decision:
        """Choose an action for each row of class probabilities, (N, C)."""
        # less than the worst action: so that a cost of 0 or 1 compares the probabilities themselves
        choice = (p @ (self.matrix - self.matrix.max(1, keepdims=True))).argmin(1)
        costs, of_label = p @ self.matrix, (p @ self.regret).min(1)
        if value_of_rows is not None:
            value_of_rows = np.minimum(value_of_rows, of_label)
        cost = costs[np.arange(len(p)), choice]
        return Decision(self.actions[choice], choice, cost, costs, of_label, value_of_rows, self.actions)


def _by_label(cost: Any, classes: NDArray[Any]) -> tuple[Any, list[Any] | None]:
    """Return the rows of a frame, or of a dict of dicts, in the order of the classes, and the names of its columns."""
    if isinstance(cost, Mapping):
        if not cost or not all(isinstance(row, Mapping) for row in cost.values()):
            raise TypeError(f"cost must map each label to a dict from action to cost, got {cost!r}")
        labels, names = list(cost), list(next(iter(cost.values())))
        for label, row in cost.items():
            if set(row) != set(names):
                raise ValueError(f"cost must have the same actions for each label, got {listed(list(row))} for "
                                 f"{plain(label)!r} and {listed(names)} for {plain(labels[0])!r}")  # fmt: skip
        rows = [[row[name] for name in names] for row in cost.values()]
    elif hasattr(cost, "iloc") and hasattr(cost, "columns"):
        labels, names, rows = cost.index.tolist(), cost.columns.tolist(), cost.to_numpy().tolist()
    else:
        return cost, None
    places = {label: i for i, label in enumerate(labels)}
    if len(labels) != len(classes) or any(label not in places for label in classes.tolist()):
        raise ValueError(
            f"cost must have one row for each label, {listed(classes)}, got rows for {listed(labels)}: name its rows "
            "by the true labels"
        )
    return [rows[places[label]] for label in classes.tolist()], names


def _numbers(name: str, value: Any) -> Array:
    """Return costs as an array; raise an error that names the argument if it holds anything but finite numbers."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must hold numbers, the same count in every row, got {value!r}") from None
    if not (np.abs(found) <= LARGEST_COST).all():
        bad = found[~(np.abs(found) <= LARGEST_COST)].ravel()[0]
        raise ValueError(f"{name} must hold finite numbers, up to {LARGEST_COST:g} in absolute value, got {bad}")
    return found
