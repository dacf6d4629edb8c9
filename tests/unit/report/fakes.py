"""A classifier whose every answer is known: the first feature of a row is its place in a list of answers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.gp.probabilities import Uncertainty


@dataclass
class Fake:
    """Says of row i what it was told to, and has only what a report cannot do without."""

    p: np.ndarray
    classes_: np.ndarray
    epistemic: np.ndarray | float = 0.0
    aleatoric: np.ndarray | float = 0.0
    n_features_in_: int = 3
    asked: list[int] = field(default_factory=list)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.p[np.asarray(X)[:, 0].astype(int)])

    def uncertainty(self, X: Any) -> Uncertainty:
        rows = np.asarray(X)[:, 0].astype(int)
        self.asked.append(len(rows))
        parts = [np.broadcast_to(part, len(self.p))[rows].astype(float) for part in (self.aleatoric, self.epistemic)]
        return Uncertainty(parts[0] + parts[1], *parts)


def rows_for(n: int, n_features: int = 3) -> np.ndarray:
    """Features whose first is the number of the row."""
    rest = np.random.default_rng(0).standard_normal((n, n_features - 1))
    return np.column_stack([np.arange(n), rest])


def fake(n: int = 200, n_classes: int = 3, seed: int = 0, **more: Any) -> tuple[Fake, np.ndarray, np.ndarray]:
    """A calibrated classifier, rows and labels drawn from its probabilities."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.3), n)
    p = 0.98 * p + 0.02 / n_classes
    y = (p.cumsum(1) < rng.uniform(size=(n, 1))).sum(1)
    classes = np.array(["ash", "birch", "cedar", "date"])[:n_classes]
    return Fake(p, classes, **more), rows_for(n), classes[y]
