"""Communication between distributed workers.

Every worker holds the same model and its own rows. Sums over rows are added up here; everything else is computed
identically on each worker. A single process pays nothing for any of it.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store
from torch.distributed.rendezvous import rendezvous

from cavity.runtime.launcher import GROUP, is_under_torchrun, missing_variables

T = TypeVar("T")

TIMEOUT = timedelta(seconds=45)  # for a silent worker; one that has died is noticed at once
START_TIMEOUT = timedelta(seconds=120)  # for workers to start the same fit or prediction
KEEPALIVE_SECONDS = 5.0  # between messages where workers have different amounts of work


class Workers:
    """The interface, and a single process."""

    rank, size = 0, 1
    local_size = 1  # workers on this machine, itself included

    def sum(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Add each part up over all workers, in one message."""
        return parts

    def max(self, values: Tensor) -> Tensor:
        """Return the elementwise maximum over all workers."""
        return values

    def max_value(self, value: float) -> float:
        """Return the maximum of a number over all workers."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers in the order of ranks; for small picklable objects."""
        return [value]

    def broadcast(self, value: T) -> T:
        """Return the value of the first worker."""
        return value

    def keepalive(self, work: Iterable[T]) -> Iterator[T]:
        """Yield the items of `work`, of which workers may have different numbers; end when all workers are done."""
        return iter(work)


class DistributedWorkers(Workers):
    """Several processes, over torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")

    def sum(self, *parts: Tensor) -> tuple[Tensor, ...]:
        buffer = torch.cat([part.reshape(-1) for part in parts])
        dist.all_reduce(buffer)
        sizes = [part.numel() for part in parts]
        return tuple(x.view(part.shape) for x, part in zip(torch.split(buffer, sizes), parts, strict=True))

    def max(self, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def max_value(self, value: float) -> float:
        return float(self.max(torch.tensor(value, dtype=torch.float64, device=self._device)))

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def broadcast(self, value: T) -> T:
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def keepalive(self, work: Iterable[T]) -> Iterator[T]:
        last = time.monotonic()
        for item in work:
            yield item
            if time.monotonic() - last > KEEPALIVE_SECONDS:
                self.gather(True)
                last = time.monotonic()
        while any(self.gather(False)):  # some worker still has items
            pass


SINGLE_PROCESS = Workers()


_meetings = count(1)  # of this process with the others


def current_workers(distributed: bool | str = "auto") -> Workers:
    """Return the workers that share the rows, once all of them are here; a single process if there are no others.

    Uses an existing process group; otherwise joins one, over NCCL if each worker has a GPU, else over gloo.

    Args:
        distributed: True for the group of this process, or the one that its variables describe; "auto" for the same
            under torchrun, and a single process elsewhere; False for a single process.

    Raises:
        ValueError: with True, if there is neither a group nor its variables.
        TimeoutError: if a worker does not come.
    """
    if distributed is False or (distributed == "auto" and not (dist.is_available() and is_under_torchrun())):
        return SINGLE_PROCESS
    has_group = dist.is_available() and dist.is_initialized()
    missing = missing_variables(*GROUP)
    if missing and not has_group:
        raise ValueError(
            "distributed=True needs a process group or the environment variables of one, but found no group and no "
            f"{', '.join(missing)}: start the processes with torchrun, or pass distributed=False"
        )
    size = dist.get_world_size() if has_group else int(os.environ["WORLD_SIZE"])
    if size < 2:
        return SINGLE_PROCESS
    if has_group:
        _meet(_get_default_store(), dist.get_rank(), size)
    else:
        _join()
    return DistributedWorkers()


def _join() -> None:
    """Join the process group; a restart gets a store prefix of its own, free of addresses of dead processes."""
    has_gpus = torch.cuda.is_available() and dist.is_nccl_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        store, rank, size = next(rendezvous("env://", timeout=START_TIMEOUT))
    except RuntimeError as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise _not_all_here(f"the processes of the group at {address} did not meet: {error}") from error
    store = PrefixStore(f"cavity-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    _meet(store, rank, size)
    backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"  # NCCL for tensors on a GPU, gloo for the rest
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    atexit.register(_leave)


def _meet(store: Store, rank: int, size: int) -> None:
    """Wait for all workers; raise TimeoutError if some do not come, instead of waiting for them in a sum."""
    meeting = next(_meetings)
    keys = [f"cavity-meeting-{meeting}/{i}" for i in range(size)]
    store.set(keys[rank], "here")
    try:
        store.wait(keys, START_TIMEOUT)
    except RuntimeError as error:
        try:
            missing = [str(i) for i, key in enumerate(keys) if not store.check([key])]
            found = f"{len(missing)} of {size} processes (rank {', '.join(missing)}) did not come"
        except RuntimeError:  # the process that has the store is gone
            found = f"not all of {size} processes came"
        raise _not_all_here(f"{found} within {START_TIMEOUT.total_seconds():g} seconds") from error


def _not_all_here(found: str) -> TimeoutError:
    return TimeoutError(
        f"all processes of a distributed job must call the same fit or predict_to, but {found}. Pass distributed=False "
        "(--no-distributed on the command line) to run in this process alone"
    )


def _leave() -> None:
    """Destroy the process group before the interpreter ends: a thread that outlives it can abort the process.

    After an error other workers may be waiting for this one, and destroying the group might wait for them.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()
