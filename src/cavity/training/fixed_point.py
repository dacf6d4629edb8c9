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
from cavity.runtime.memory import LARGE_STATE

DEPTH = 8
WORSE = 2.0  # ratio of the changes of two sweeps above which an extrapolation is undone
PATIENCE, REST = 60, 20  # sweeps without progress; number of plain sweeps after them, doubled each time


class Anderson:
    """Anderson acceleration (type II) of x ← g(x): the combination of the last iterates with the least residual.

    The past of a large x would take most of the memory of a fit. So it is kept as steps in single precision, whose
    rounding vanishes together with them, and the weights are found from a sample of the residuals.
    """

    def __init__(self, depth: int = DEPTH, workers: Workers = SINGLE_PROCESS) -> None:
        self._depth, self._workers = depth, workers
        self.reset()

    def reset(self) -> None:
        """Forget all iterates."""
        self._last: tuple[Tensor, Tensor] | None = None  # g(x) and its residual
        self._steps: list[Tensor] = []  # between the last values of g(x)
        self._falls: list[Tensor] = []  # between their residuals

    def mix(self, residual: Tensor, gx: Tensor, scale: Tensor) -> Tensor:
        """Return the next iterate, given g(x) and g(x) − x, or a sample of its entries.

        The first `scale` after a reset makes these entries comparable.
        """
        if self._last is None:
            self._scale = scale
        residual = residual * self._scale
        last, self._last = self._last, (gx, residual)
        if last is None:
            return gx.clone()
        kind = gx.dtype if len(gx) <= LARGE_STATE else torch.float32
        del self._steps[: 1 - self._depth], self._falls[: 1 - self._depth]
        self._steps.append(torch.sub(gx, last[0], out=torch.empty_like(gx, dtype=kind)))
        self._falls.append(residual - last[1])
        falls = torch.stack(self._falls)
        normal, pull = self._workers.sum(falls @ falls.mT, falls @ residual)
        ridge = torch.finfo(gx.dtype).eps * normal.diagonal().sum() + tiny(gx)
        normal = normal + ridge * torch.eye(len(normal), dtype=gx.dtype, device=gx.device)
        weights: Tensor = torch.linalg.solve_ex(normal, pull)[0]
        mixed = last[0]  # its memory, for the last value is a step now
        for first in range(0, len(gx), LARGE_STATE):
            part = slice(first, first + LARGE_STATE)
            steps = torch.stack([step[part] for step in self._steps]).to(gx.dtype)
            torch.sub(gx[part], weights @ steps, out=mixed[part])
        return mixed


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
    gx = torch.cat([b.reshape(-1) for _, b in pairs])
    sizes = workers.max(torch.stack([_largest_entry(b) for _, b in pairs])).clamp_min(1.0)
    whole, residuals, scales = len(gx), [], []
    for (a, b), size in zip(pairs, sizes, strict=True):
        some = _sample(b.numel(), whole, gx.device)
        residuals.append(b.reshape(-1)[some] - a.reshape(-1)[some])
        scales.append(torch.ones_like(residuals[-1]) / size)
    residual, scale = torch.cat(residuals), torch.cat(scales)
    mixed = torch.split(mixing.mix(residual, gx, scale), [b.numel() for _, b in pairs])
    by_id = {id(b): part.view(b.shape) for (_, b), part in zip(pairs, mixed, strict=True)}
    return map_tensors(lambda x: by_id.get(id(x), x), new)


def _sample(count: int, whole: int, device: torch.device) -> slice | Tensor:
    """Return which entries of a tensor are in the sample, the same at every call; all of them in small states."""
    if whole <= LARGE_STATE:
        return slice(None)
    generator = torch.Generator().manual_seed(0)  # not every n-th: the order of rows may have a period
    return torch.randint(count, (max(count * LARGE_STATE // whole, 1),), generator=generator).to(device)


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
    return torch.stack(x.aminmax()).abs().max() if x.numel() else x.new_zeros(())  # needs no memory for all of |x|


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
