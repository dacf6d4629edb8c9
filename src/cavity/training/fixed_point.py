"""Sweeps at fixed hyper-parameters until q converges, in far fewer sweeps than plain repetition takes.

Moving all classes alike hardly changes the likelihood, so repeated sweeps move slowly along that direction. Anderson
mixing finds the direction from the last few sweeps and jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cavity.inference import RowSites
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import FactorizationError
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

DEPTH = 8
WORSE = 2.0  # times the change of the sweep before: the jump did harm
PATIENCE, REST = 60, 20  # sweeps without progress; plain sweeps after them, first of all


class Anderson:
    """Anderson mixing (type II) of x ← g(x): the combination of the last iterates with the least residual."""

    def __init__(self, depth: int = DEPTH, workers: Workers = SINGLE_PROCESS) -> None:
        self._depth, self._workers = depth, workers
        self.forget()

    def forget(self) -> None:
        """Forget all iterates."""
        self._values: list[Tensor] = []
        self._residuals: list[Tensor] = []

    def mix(self, x: Tensor, gx: Tensor, scale: Tensor) -> Tensor:
        """Return the next iterate from x and g(x); `scale`, read with the first iterate, makes entries comparable."""
        if not self._values:
            self._scale = scale
        self._values = [*self._values[-self._depth :], gx]
        self._residuals = [*self._residuals[-self._depth :], (gx - x) * self._scale]
        if len(self._values) == 1:
            return gx
        steps, falls = (torch.stack(past).diff(dim=0) for past in (self._values, self._residuals))
        normal, pull = self._workers.sum(falls @ falls.mT, falls @ self._residuals[-1])
        ridge = torch.finfo(x.dtype).eps * normal.diagonal().sum() + tiny(x)
        normal = normal + ridge * torch.eye(len(normal), dtype=x.dtype, device=x.device)
        coefficients = torch.linalg.solve_ex(normal, pull)[0]
        return gx - coefficients @ steps


def fixed_point(
    sweep: Callable[[Any], Any],
    change: Callable[[Any, Any], float],
    state: Any,
    max_sweeps: int,
    tol: float,
    mixes: bool,
    is_over: Callable[[], bool],
    note: Callable[[int, float], None] | None = None,
    workers: Workers = SINGLE_PROCESS,
) -> Any:
    """Sweep until the state changes by less than `tol`, or `max_sweeps` times; return the last state.

    A harmful jump is undone. After many sweeps without progress, plain sweeps take over, each time for longer.
    """
    mixing, safe, last = Anderson(workers=workers), state, math.inf
    least, stale, plain, rest = math.inf, 0, 0 if mixes else max_sweeps, REST
    for done in range(1, max_sweeps + 1):
        try:
            new = sweep(state)
            moved = change(state, new)
        except FactorizationError:
            if state is safe:
                raise
            moved = math.inf
        if state is not safe and not moved <= WORSE * last:
            mixing.forget()
            state, last = safe, math.inf
            continue
        if note is not None:
            note(done, moved)
        safe, last = new, moved
        if moved < tol or is_over():
            break
        least, stale = (moved, 0) if moved < least else (least, stale + 1)
        if stale > PATIENCE and plain == 0:
            mixing.forget()
            plain, rest, least, stale = rest, 2 * rest, math.inf, 0
        state = new if plain else _mixed(mixing, state, new, workers)
        plain = max(plain - 1, 0)
    return safe


def _mixed(mixing: Anderson, old: Any, new: Any, workers: Workers) -> Any:
    """Return the state for the next sweep: the tensors that the last one changed, mixed."""
    pairs = [(a, b) for a, b in zip(leaves(old), leaves(new), strict=True) if a is not b]
    if not pairs:
        return new
    x, gx = (torch.cat([part.reshape(-1) for part in side]) for side in zip(*pairs, strict=True))
    sizes = workers.most(torch.stack([_largest_entry(b) for _, b in pairs])).clamp_min(1.0)
    scale = torch.cat([torch.ones_like(b).reshape(-1) / size for (_, b), size in zip(pairs, sizes, strict=True)])
    mixed = mixing.mix(x, gx, scale).split([b.numel() for _, b in pairs])
    by_id = {id(b): part.view(b.shape) for (_, b), part in zip(pairs, mixed, strict=True)}
    return _replaced(new, by_id)


def relative_change(old: Any, new: Any, workers: Workers = SINGLE_PROCESS) -> float:
    """Return the largest change of any entry of a state, relative to the largest entry of its tensor or to 1.

    Sites that are held back are ignored: where batches change the sites in place, the sums of the sites tell.
    """
    old, new = (state._replace(held=None) if isinstance(state, RowSites) else state for state in (old, new))
    pairs = zip(leaves(old), leaves(new), strict=True)
    sizes = [_largest_entry(x) for a, b in pairs for x in (b - a, b)]
    change, size = workers.most(torch.stack(sizes)).view(-1, 2).unbind(1)
    return float((change / size.clamp_min(1.0)).max())


def _largest_entry(x: Tensor) -> Tensor:
    """Return the largest absolute value; 0 for an empty tensor."""
    return x.abs().max() if x.numel() else x.new_zeros(())


def leaves(state: Any) -> list[Tensor]:
    """Return the tensors of a state, in order."""
    if state is None:
        return []
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves(part)]


def _replaced(state: Any, by_id: dict[int, Tensor]) -> Any:
    if state is None or isinstance(state, Tensor):
        return by_id.get(id(state), state)
    return type(state)._make(_replaced(part, by_id) for part in state)
