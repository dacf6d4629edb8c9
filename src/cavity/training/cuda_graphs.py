"""Training steps as CUDA graphs: about three hundred small kernels are recorded once, then replayed in one launch.

A recorded step cannot be interrupted: a step that fails changes nothing, nor do the steps after it. The GPU is queried
once for many steps. Then the failed step is made in the ordinary way, which handles the failure.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavity.data.training_data import Data
from cavity.inference import Batch, RowSites
from cavity.training.fixed_point import leaves, map_tensors
from cavity.training.optimizers import Adam

Evaluate = Callable[[Tensor, Any, Batch, Tensor], tuple[Any, Tensor, Tensor]]
Work = Callable[[], None]
WARM_UP = 2


class Replayed(NamedTuple):
    """The result of replayed steps: θ, the state, θ one step before, the steps that worked, the sum of objectives."""

    theta: Tensor
    state: Any
    before: Tensor
    steps: int
    total: float


class Recorder:
    """Records CUDA graphs that share one memory pool."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Record `work` and return its replay. `work` runs first on a side stream: libraries initialize themselves."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        was_enabled = gc.isenabled()
        gc.disable()  # it could free an older graph, which must not happen while another is recorded
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                work()
        finally:
            if was_enabled:
                gc.enable()
        return graph.replay


class Replay:
    """Replays recorded steps on tensors with fixed addresses.

    Args:
        evaluate: returns the new state, the objective and its gradient at θ; it must not wait for the device.
        data: the rows; its draws are on the device.
        optimizer: moves θ.
        record: returns a function that repeats the recorded work; it can run the work while recording.
    """

    def __init__(self, evaluate: Evaluate, data: Data, optimizer: Adam, record: Callable[[Work], Work]) -> None:
        self._evaluate, self._data, self._optimizer, self._record = evaluate, data, optimizer, record
        self._recorded: dict[int, tuple[Any, Work]] | None = None

    def run(
        self, theta: Tensor, state: Any, good: Tensor, draws: Sequence[Any], rates: Sequence[float], damping: float
    ) -> Replayed:
        """Make steps on the batches of these draws until one fails; `good` is the last θ that worked.

        The next call overwrites the tensors of the result.
        """
        if self._recorded is None:
            self._recorded = {}
            self._theta, self._before = theta.clone(), good.clone()
            self._state = map_tensors(Tensor.clone, settled(state))
            self._damping, self._steps, self._total = theta.new_zeros(3).unbind()
            self._rate = torch.zeros((), device=theta.device)
            self._failed = torch.zeros((), dtype=torch.bool, device=theta.device)
        else:
            _copy((good, theta, settled(state)), (self._before, self._theta, self._state))
        self._damping.fill_(damping)
        for draw in draws:
            size = len(draw.positions)
            if size not in self._recorded:
                is_full = size == len(self._data)  # all rows have fixed addresses
                own = draw if is_full else map_tensors(Tensor.clone, draw)
                self._failed.fill_(True)  # nothing changes while recording
                self._recorded[size] = own, self._record(partial(self._step, own))
        for x in (self._failed, self._steps, self._total):
            x.zero_()
        for draw, rate in zip(draws, rates, strict=True):
            own, step = self._recorded[len(draw.positions)]
            _copy(draw, own)
            self._rate.fill_(rate)
            step()
        done, total = torch.stack([self._steps, self._total]).tolist()
        return Replayed(self._theta, self._state, self._before, int(done), total)

    def _step(self, draw: Any) -> None:
        """Make one step in place; do nothing if it or a step before it failed."""
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


def _copy(source: Any, target: Any) -> None:
    """Copy the tensors of the source to those of the target; a tensor that is in both stays."""
    for x, own in zip(leaves(source), leaves(target), strict=True):
        if own is not x:
            own.copy_(x)


def settled(state: Any) -> Any:
    """Return the state with all of its sites in their places."""
    return state.settled() if isinstance(state, RowSites) else state
