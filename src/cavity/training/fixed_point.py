"""Accelerated fixed-point iteration: sweeps at fixed hyper-parameters until q converges.

A shift that is common to all classes hardly changes the likelihood, so plain sweeps converge slowly in that direction.
Anderson acceleration extrapolates it from the last few sweeps.
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
LARGE = 2**20  # numbers of a state whose past is kept in single precision; 16 times as many are 128 MB
WORSE = 2.0  # ratio of the changes of two sweeps above which an extrapolation is undone
PATIENCE, REST = 60, 20  # sweeps without progress; number of plain sweeps after them, doubled each time


class Anderson:
    """Anderson acceleration (type II) of x ← g(x): the combination of the last iterates with the least residual.

    The past of a large x takes most of the memory of a fit, so it is kept in single precision: as differences, whose
    rounding vanishes together with them.
    """

    def __init__(self, depth: int = DEPTH, workers: Workers = SINGLE_PROCESS) -> None:
        self._depth, self._workers = depth, workers
        self.reset()

    def reset(self) -> None:
        """Forget all iterates."""
        self._last: tuple[Tensor, Tensor] | None = None  # g(x) and its residual
        self._steps: list[Tensor] = []  # between the last values of g(x)
        self._falls: list[Tensor] = []  # between their residuals

    def mix(self, x: Tensor, gx: Tensor, scale: Tensor) -> Tensor:
        """Return the next iterate after x, given g(x); the first `scale` after a reset makes the entries comparable."""
        if self._last is None:
            self._scale = scale
        residual = torch.sub(gx, x).mul_(self._scale)
        last, self._last = self._last, (gx, residual)
        if last is None:
            return gx
        kind = x.dtype if x.numel() <= LARGE else torch.float32
        for past, new, old in zip((self._steps, self._falls), self._last, last, strict=True):
            del past[: max(len(past) - self._depth + 1, 0)]
            past.append((new - old).to(kind))
        del last, new, old
        count = len(self._falls)
        normal, pull = x.new_zeros(count, count), x.new_zeros(count)
        for part in _parts(x):
            falls = torch.stack([fall[part] for fall in self._falls]).to(x.dtype)
            normal, pull = normal + falls @ falls.mT, pull + falls @ residual[part]
        normal, pull = self._workers.sum(normal, pull)
        ridge = torch.finfo(x.dtype).eps * normal.diagonal().sum() + tiny(x)
        normal = normal + ridge * torch.eye(count, dtype=x.dtype, device=x.device)
        weights: Tensor = torch.linalg.solve_ex(normal, pull)[0]
        mixed = torch.empty_like(gx)
        for part in _parts(x):
            steps = torch.stack([step[part] for step in self._steps]).to(x.dtype)
            torch.sub(gx[part], weights @ steps, out=mixed[part])
        return mixed


def _parts(x: Tensor) -> list[slice]:
    """Divide the entries of x, so that all past iterates of a part are small."""
    return [slice(first, first + LARGE) for first in range(0, x.numel(), LARGE)]


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
    relax: Callable[[], None] = lambda: None,
    min_sweeps: int = 1,
) -> Any:
    """Return the first state that a sweep changes by less than `tol`, or the last one; `is_over` asks for the last.

    An extrapolation that increases the change is undone. After PATIENCE sweeps without progress, plain sweeps follow;
    if these make none either, `relax` makes the sweeps smaller, because the states go in a circle. `note` is called
    with the number of sweeps and the change; `workers` have different rows of the state.
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
            mixing.reset()
            state, last = safe, math.inf
            continue
        if note is not None:
            note(done, moved)
        safe, last = new, moved
        if moved < tol or (done >= min_sweeps and is_over()):
            break
        least, stale = (moved, 0) if moved < least else (least, stale + 1)
        if stale > PATIENCE and plain == 0:
            mixing.reset()
            plain, rest, least, stale = rest, 2 * rest, math.inf, 0
        elif stale > REST and plain > 0:
            relax()
            plain, least, stale = max(plain, rest), math.inf, 0
        state = new if plain else _mixed(mixing, state, new, workers)
        plain = max(plain - 1, 0)
    return safe


def _mixed(mixing: Anderson, old: Any, new: Any, workers: Workers) -> Any:
    """Return the next state, extrapolated in the tensors that the sweep has changed."""
    pairs = [(a, b) for a, b in zip(leaves(old), leaves(new), strict=True) if a is not b]
    if not pairs:
        return new
    x, gx = (torch.cat([part.reshape(-1) for part in side]) for side in zip(*pairs, strict=True))
    sizes = workers.max(torch.stack([_largest_entry(b) for _, b in pairs])).clamp_min(1.0)
    scale = torch.cat([torch.ones_like(b).reshape(-1) / size for (_, b), size in zip(pairs, sizes, strict=True)])
    mixed = torch.split(mixing.mix(x, gx, scale), [b.numel() for _, b in pairs])
    by_id = {id(b): part.view(b.shape) for (_, b), part in zip(pairs, mixed, strict=True)}
    return map_tensors(lambda x: by_id.get(id(x), x), new)


def relative_change(old: Any, new: Any, workers: Workers = SINGLE_PROCESS) -> float:
    """Return the largest change of any entry of a state, relative to the largest entry of its tensor or to 1.

    Sites that are held back are ignored: where batches change the sites in place, the sums of the sites tell.
    """
    old, new = (state._replace(held=None) if isinstance(state, RowSites) else state for state in (old, new))
    pairs = zip(leaves(old), leaves(new), strict=True)
    sizes = [_largest_entry(x) for a, b in pairs for x in (b - a, b)]
    change, size = workers.max(torch.stack(sizes)).view(-1, 2).unbind(1)
    return float((change / size.clamp_min(1.0)).max())


def _largest_entry(x: Tensor) -> Tensor:
    """Return the largest absolute value; 0 for an empty tensor."""
    return x.abs().max() if x.numel() else x.new_zeros(())


def leaves(state: Any) -> list[Tensor]:
    """Return the tensors of nested named tuples, in order."""
    if isinstance(state, Tensor):
        return [state]
    return [leaf for part in state for leaf in leaves(part)] if isinstance(state, tuple) else []


def map_tensors(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply a function to the tensors of nested named tuples; other values stay."""
    if isinstance(state, Tensor):
        return function(state)
    return type(state)(*(map_tensors(function, part) for part in state)) if isinstance(state, tuple) else state
