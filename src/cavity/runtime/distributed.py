"""The processes that train one model together, or a single one: sums, exchange, and keeping in touch.

Every rank holds the same model and its own rows. What is a sum over rows is added up here; all else is computed
everywhere alike. A single process pays nothing for any of it.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")

PATIENCE = timedelta(seconds=45)  # for a rank that says nothing; one that has died is noticed at once
IN_TOUCH = 5.0  # seconds between signs of life where workers work apart


class Workers:
    """A single process."""

    rank, size = 0, 1
    neighbors = 1  # on this machine, itself among them

    def sum(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """The parts, each added up over all workers, by one message."""
        return parts

    def most(self, values: Tensor) -> Tensor:
        """The largest of all workers' values, entry by entry."""
        return values

    def largest(self, value: float) -> float:
        """The largest of all workers' numbers."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """What every rank has, in the order of workers; for small things that can be pickled."""
        return [value]

    def same(self, value: T) -> T:
        """What the first rank has."""
        return value

    def in_touch(self, work: Iterable[T]) -> Iterator[T]:
        """The items of `work`, of which workers may have very different numbers; ends when all workers are done."""
        return iter(work)


class DistributedWorkers(Workers):
    """Several processes, over torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.neighbors = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")

    def sum(self, *parts: Tensor) -> tuple[Tensor, ...]:
        buffer = torch.cat([part.reshape(-1) for part in parts])
        dist.all_reduce(buffer)
        return tuple(
            x.view(part.shape) for x, part in zip(buffer.split([p.numel() for p in parts]), parts, strict=True)
        )

    def most(self, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def largest(self, value: float) -> float:
        return float(self.most(torch.tensor(value, dtype=torch.float64, device=self._device)))

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def same(self, value: T) -> T:
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def in_touch(self, work: Iterable[T]) -> Iterator[T]:
        last = time.monotonic()
        for item in work:
            yield item
            if time.monotonic() - last > IN_TOUCH:
                self.gather(True)
                last = time.monotonic()
        while any(self.gather(False)):  # some rank is still at work
            pass


SINGLE_PROCESS = Workers()


def current_workers() -> Workers:
    """The workers that torchrun, or whatever sets its variables, has started; one process where nothing has.

    Uses a process group that exists already; otherwise joins one, over NCCL where each rank has a GPU, else over gloo.
    """
    if not dist.is_available() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        _join()
    return DistributedWorkers()


def _join() -> None:
    """Become one of the workers. A restart finds the addresses of the dead in the store, unless it has its own part."""
    has_gpus = torch.cuda.is_available() and dist.is_nccl_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    store = PrefixStore(f"cavity-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"  # NCCL for what lies on a GPU, gloo for the rest
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    atexit.register(_leave)


def _leave() -> None:
    """Take leave before the interpreter is taken apart: a thread of the group that outlives it can abort the process.

    After an error others may be waiting for us, and taking leave might be waiting for them.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()
