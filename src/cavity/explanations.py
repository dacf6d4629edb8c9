"""Explanations: which columns of a row speak for its label against another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data.labels import encode, label_text
from cavity.data.profile import Profile
from cavity.data.schema import Schema
from cavity.fitting.encoding import Encoding, TableEncoding
from cavity.gp import probabilities
from cavity.gp.gaussian import Posterior
from cavity.gp.margins import Margins

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

VALUES, LEAST_VALUES, MOST_CELLS = 32, 8, 4096  # that stand for a column; at least; in all columns
SLICES = 64  # of the distribution of a column, which rows combine at random
BLOCK_ELEMENTS = 2**22  # of rows with a column replaced, at a time
SHOWN_ROWS, SHOWN_COLUMNS = 10, 4  # as text


@dataclass(frozen=True)
class Explanation:
    """What speaks for a label against another one in each row.

    The margin is the difference of the latent means of the two labels, times `sharpness_`. It has the unit of the
    latent functions: the probability that the function of `label` is larger than that of `against` is Φ(margin / sd),
    which for two classes is the probability of the label (before any mixing with class frequencies).

    The background is rows to compare with: those given to `explain`, or else rows that combine values of the training
    columns at random, each column with its own distribution.

    Attributes:
        columns: names of the D columns.
        values: of the rows in these columns, (N, D), in the units of X.
        label: the label that is explained, (N,).
        against: the other label, (N,).
        margin: (N,); negative where the mean of `against` is larger.
        sd: standard deviation of the difference of the two functions, (N,).
        base: the mean margin of the background rows, (N,).
        contributions: (N, D), the margin less its mean when the value of one column is replaced by those of the
            background, and the others stay. Above 0 the value speaks for the label, below 0 for the other.
        interactions: (N,), the rest: margin − base − the sum of the contributions. It is 0 where columns act one by
            one, and contributions are then Shapley values. Where it is large, columns act together, and no list of
            single contributions says all.
        gradient: (N, D), how much the margin rises per standard deviation of a column in the background, both as the
            model scales them. 0 for categories, gaps and columns that do not vary; without the cycles of a date.
    """

    columns: list[str]
    values: NDArray[Any]
    label: NDArray[Any]
    against: NDArray[Any]
    margin: Array
    sd: Array
    base: Array
    contributions: Array
    interactions: Array
    gradient: Array

    def __len__(self) -> int:
        return len(self.margin)

    def __str__(self) -> str:
        """List the largest contributions of the first rows."""
        lines = []
        for i in range(min(len(self), SHOWN_ROWS)):
            own = self.contributions[i]
            order = [j for j in np.argsort(-np.abs(own), kind="stable")[:SHOWN_COLUMNS] if own[j] != 0.0]
            parts = [f"{self.columns[j]}={self.values[i, j]} {own[j]:+.2f}" for j in order]
            others = np.delete(own, order).sum() + 0.0  # no −0
            labels = f"{label_text(self.label[i])} against {label_text(self.against[i])}"
            lines += [
                f"{i}: {labels}, margin {self.margin[i]:+.2f} ({self.base[i]:+.2f} on average)",
                *([f"   {', '.join(parts)}"] if parts else []),
                f"   other columns {others:+.2f}, interactions {self.interactions[i]:+.2f}",
            ]
        return "\n".join([*lines, *([f"… {len(self) - SHOWN_ROWS} more rows"] if len(self) > SHOWN_ROWS else [])])


def choose_labels(log_p: Array, classes: NDArray[Any], label: Any, against: Any) -> tuple[Indices, Indices]:
    """Return the indices of both labels of each row; one that is None is the most probable other one."""
    given = [
        None if labels is None else _indices(name, labels, classes, len(log_p))
        for name, labels in (("label", label), ("against", against))
    ]
    rows = np.arange(len(log_p))

    def most_probable_but(other: Indices) -> Indices:
        rest = log_p.copy()
        rest[rows, other] = -np.inf
        best = rest.argmax(1)
        return np.where(best == other, (other + 1) % len(classes), best)  # if no other one is possible

    own, other = given
    if own is None:
        own = log_p.argmax(1) if other is None else most_probable_but(other)
    other = most_probable_but(own) if other is None else other
    if (same := own == other).any():
        i = int(same.argmax())
        raise ValueError(
            f"against must differ from label in every row, got {label_text(classes[own[i]])!r} for both in row {i}"
        )
    return own, other


def _indices(name: str, labels: Any, classes: NDArray[Any], n_rows: int) -> Indices:
    labels = np.asarray(labels)
    if labels.ndim > 1 or (labels.ndim == 1 and len(labels) != n_rows):
        raise ValueError(f"{name} must be a label, or one for each of the {n_rows} rows, got shape {labels.shape}")
    found = encode(labels.reshape(-1), classes, lambda i: f"{name}, row {i}")
    return np.broadcast_to(found, n_rows)


class Background(NamedTuple):
    """Rows that stand for the training rows: their cells, (K, D), and weights that sum to 1."""

    cells: Array
    weight: Array

    @classmethod
    def of_rows(cls, cells: Array) -> Background:
        """Give each row the same weight."""
        return cls(cells, np.full(len(cells), 1.0 / len(cells)))

    @classmethod
    def of_columns(cls, columns: Sequence[tuple[Array, Array]]) -> Background:
        """Combine the values of each column at random, given their weights, which sum to 1.

        Every column has exactly its own distribution. Its mass is cut into slices, each column has these in an order of
        its own, and wherever one of the columns changes its value, a new row begins.
        """
        orders = np.random.default_rng(0).permuted(np.tile(np.arange(SLICES), (len(columns), 1)), axis=1)
        ends = [SLICES * np.cumsum(weight)[:-1] for _, weight in columns]
        cuts = [np.arange(SLICES + 1.0)]
        for order, end in zip(orders, ends, strict=True):
            own = np.floor(end).astype(np.int64).clip(max=SLICES - 1)
            cuts.append(np.argsort(order)[own] + end - own)
        edges = np.unique(np.concatenate(cuts).clip(0.0, SLICES))
        middle = 0.5 * (edges[:-1] + edges[1:])
        at = np.floor(middle).astype(np.int64)
        cells = [values[np.searchsorted(end, order[at] + middle - at)]
                 for (values, _), order, end in zip(columns, orders, ends, strict=True)]  # fmt: skip
        return cls(np.stack(cells, 1), np.diff(edges) / SLICES)


def training_background(profile: Profile) -> Background:
    """Return what the model knows of its training rows, column by column."""
    n_columns = len(profile.columns)
    count = max(LEAST_VALUES, min(VALUES, MOST_CELLS // n_columns))
    return Background.of_columns([profile.background(j, count) for j in range(n_columns)])


def explain(
    posterior: Posterior,
    encoding: Encoding,
    schema: Schema | None,
    columns: Sequence[str],
    classes: NDArray[Any],
    cells: Array,
    labels: tuple[Indices, Indices],
    background: Background,
) -> Explanation:
    """Explain rows.

    Means over the background are sums over its values, not samples of them. Time and memory: the margins of N·K rows
    for each column, where K is the number of different values of the column in the background.

    Args:
        posterior: q(u).
        encoding: from cells to features.
        schema: of a table; None where all columns are numbers.
        columns: names of the columns.
        classes: the labels.
        cells: of the rows, (N, D).
        labels: indices of the label explained and of the other one, each (N,).
        background: the rows to compare with.
    """
    margins, rows = Margins(posterior), np.arange(len(cells))
    own, other = labels
    sign = np.zeros((len(cells), len(classes)))
    sign[rows, own], sign[rows, other] = 1.0, -1.0
    device = posterior.prior.Z.device
    parts = encoding.transform(cells), encoding.transform(background.cells), sign
    X, reference, signs = (torch.from_numpy(part).to(device) for part in parts)
    weight = torch.from_numpy(background.weight).to(device)
    column_of, is_value = _features(posterior, encoding)
    margin, by_feature = margins.at(X, signs), margins.gradient(X, signs)

    def mean_with(which: NDArray[np.bool_], X: torch.Tensor = X, signs: torch.Tensor = signs) -> torch.Tensor:
        return _mean_with(margins, X, signs, reference, weight, which)

    left = torch.stack([mean_with(column_of == j) for j in range(len(columns))], -1)
    pairs, at = torch.unique(signs, dim=0, return_inverse=True)
    base = mean_with(np.ones(len(column_of), dtype=bool), X[: len(pairs)], pairs)[at]  # the same whatever the row is
    contributions = (margin[:, None] - left).cpu().numpy()
    sd = (weight @ (reference - weight @ reference).square()).sqrt()
    gradient = np.zeros_like(cells)
    gradient[:, column_of[is_value]] = (by_feature * sd).cpu().numpy()[:, is_value]
    gradient[np.isnan(cells)] = 0.0
    var = probabilities.marginals(posterior, X)[1]
    of_rows, means = margin.cpu().numpy(), base.cpu().numpy()
    return Explanation(
        columns=list(columns),
        values=cells.astype(object) if schema is None else schema.decode(cells),
        label=classes[own],
        against=classes[other],
        margin=of_rows,
        sd=np.sqrt(var[rows, own] + var[rows, other]),
        base=means,
        contributions=contributions,
        interactions=of_rows - means - contributions.sum(1),
        gradient=gradient,
    )


def _mean_with(
    margins: Margins,
    X: torch.Tensor,
    sign: torch.Tensor,
    reference: torch.Tensor,
    weight: torch.Tensor,
    which: NDArray[np.bool_],
) -> torch.Tensor:
    """Return the mean margin of each row when some of its features are replaced by those of the background rows."""
    if not which.any():  # a column that is left out
        return margins.at(X, sign)
    features = torch.from_numpy(which).to(X.device)
    values, index = torch.unique(reference[:, features], dim=0, return_inverse=True)
    weight, found = weight.new_zeros(len(values)).index_add_(0, index, weight), torch.empty_like(X[:, 0])
    for rows in torch.arange(len(X), device=X.device).split(max(1, BLOCK_ELEMENTS // (len(values) * X.shape[1]))):
        replaced = X[rows, None].repeat(1, len(values), 1)
        replaced[..., features] = values
        signs = sign[rows].repeat_interleave(len(values), 0)
        found[rows] = margins.at(replaced.flatten(0, 1), signs).view(len(rows), -1) @ weight
    return found


def _features(posterior: Posterior, encoding: Encoding) -> tuple[Indices, NDArray[np.bool_]]:
    """Return the column of each feature, and whether it is the scaled number itself."""
    if not isinstance(encoding, TableEncoding):
        n = posterior.prior.Z.shape[-1]
        return np.arange(n), np.ones(n, dtype=bool)
    groups = [encoding.groups[g] for g in encoding.feature_groups]
    return np.array([g.column for g in groups], dtype=np.int64), np.array([g.what == "value" for g in groups])
