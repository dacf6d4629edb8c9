"""Steps on a GPU as CUDA graphs: recorded once, replayed with no launch by launch and no waiting for the device.

A step is some three hundred small kernels, which take longer to launch than to run. A recorded step cannot stop half
way: one that fails shows as NaN, changes nothing, and keeps those after it from changing anything. What was reached is
asked once for many steps; the step that failed is then made in the ordinary way, which knows what to do about it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavity.data.base import Data
from cavity.inference import Batch, RowSites
from cavity.training.fixed_point import leaves
from cavity.training.optimizers import Adam

Evaluate = Callable[[Tensor, Any, Batch, Tensor], tuple[Any, Tensor, Tensor]]
Work = Callable[[], None]
WARM_UP = 2


class Reached(NamedTuple):
    """Where some steps have led: θ and state, θ one step before, how many steps worked, the sum of their objectives."""

    theta: Tensor
    state: Any
    before: Tensor
    steps: int
    total: float


class Recorder:
    """Makes CUDA graphs, all in one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """What `work` does, recorded. It runs first on the side: libraries set themselves up when first called."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=self._pool):
            work()
        return graph.replay


class Replay:
    """Recorded steps on tensors that stay where they are.

    Args:
        evaluate: the new state, the objective and its gradient at θ; it must not wait for the device.
        data: the rows; what it draws is on the device.
        optimizer: moves θ.
        record: makes of work that can be done again and again something that does it again; it may do it meanwhile.
    """

    def __init__(self, evaluate: Evaluate, data: Data, optimizer: Adam, record: Callable[[Work], Work]) -> None:
        self._evaluate, self._data, self._optimizer, self._record = evaluate, data, optimizer, record
        self._recorded: dict[int, tuple[Any, Work]] = {}
        self._is_loaded = False

    def run(
        self, theta: Tensor, state: Any, good: Tensor, draws: Sequence[Any], rates: Sequence[float], damping: float
    ) -> Reached:
        """Steps on the batches of these draws, until one fails; `good` is the last θ that worked.

        What is returned is overwritten by the next run.
        """
        self._load(theta, state, good)
        self._damping.fill_(damping)
        steps = [self._step_on(draw) for draw in draws]
        for x in (self._failed, self._steps, self._total):
            x.zero_()
        for (own, step), draw, rate in zip(steps, draws, rates, strict=True):
            for mine, given in zip(_tensors(own), _tensors(draw), strict=True):
                if mine is not given:
                    mine.copy_(given)
            self._rate.fill_(rate)
            step()
        done, total = torch.stack([self._steps, self._total]).tolist()
        return Reached(self._theta, self._state, self._before, int(done), total)

    def _load(self, theta: Tensor, state: Any, good: Tensor) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._theta, self._before = theta.clone(), good.clone()
            self._state = _cloned(_settled(state))
            self._damping, self._steps, self._total = theta.new_zeros(3).unbind()
            self._rate = torch.zeros((), device=theta.device)
            self._failed = torch.zeros((), dtype=torch.bool, device=theta.device)
            return
        if good is not self._before:
            self._before.copy_(good)
        if theta is not self._theta:
            self._theta.copy_(theta)
        for mine, given in zip(leaves(self._state), leaves(_settled(state)), strict=True):
            if mine is not given:
                mine.copy_(given)

    def _step_on(self, draw: Any) -> tuple[Any, Work]:
        """A step on as many rows, recorded when first asked for, and the draw that it looks at."""
        size = len(draw.positions)
        if size not in self._recorded:
            own = draw if size == len(self._data) else _cloned_draw(draw)  # all rows stay where they are
            self._failed.fill_(True)  # so that nothing changes meanwhile
            self._recorded[size] = own, self._record(partial(self._step, own))
        return self._recorded[size]

    def _step(self, draw: Any) -> None:
        """One step in place, nothing where it or one before it failed."""
        theta, failed = self._theta, self._failed
        batch = self._data.batch(draw)
        new, objective, gradient = self._evaluate(theta, self._state, batch, self._damping)
        failed.logical_or_(~torch.isfinite(objective + gradient.sum()))
        torch.where(failed, self._before, theta, out=self._before)
        self._optimizer.move_(theta, gradient, self._rate, failed)
        if isinstance(new, RowSites) and new.held is not None:
            old = self._state.sites(batch)
            kept = type(old)(*(torch.where(failed, o, n) for o, n in zip(old, new.held[1], strict=True)))
            new = new._replace(held=(new.held[0], kept)).settled()
        for mine, x in zip(leaves(self._state), leaves(new), strict=True):
            if mine is not x:
                torch.where(failed, mine, x, out=mine)
        worked = ~failed
        self._steps += worked
        self._total += torch.where(worked, objective, 0.0)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it might free an older graph, which must not happen while another is recorded."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _cloned_draw(draw: Any) -> Any:
    return draw._replace(**{name: x.clone() for name, x in draw._asdict().items() if isinstance(x, Tensor)})


def _tensors(draw: Any) -> list[Tensor]:
    return [x for x in draw if isinstance(x, Tensor)]


def _settled(state: Any) -> Any:
    return state.settled() if isinstance(state, RowSites) else state


def _cloned(state: Any) -> Any:
    if state is None or isinstance(state, Tensor):
        return None if state is None else state.clone()
    return type(state)._make(_cloned(part) for part in state)
