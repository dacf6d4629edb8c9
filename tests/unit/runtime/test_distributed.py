"""One process needs none of it, and several agree."""

import sys

import pytest
import torch

from cavity.runtime import distributed
from cavity.runtime.distributed import SINGLE_PROCESS, DistributedWorkers, current_workers
from tests.workers import run


def test_a_single_process_is_handed_back_what_it_gives():
    parts = torch.ones(2), torch.zeros(3, 2)
    assert SINGLE_PROCESS.sum(*parts) == parts
    assert SINGLE_PROCESS.max(parts[0]) is parts[0]
    assert SINGLE_PROCESS.max_value(0.5) == 0.5
    assert SINGLE_PROCESS.gather("x") == ["x"]
    assert SINGLE_PROCESS.broadcast("x") == "x"
    assert list(SINGLE_PROCESS.keepalive(range(3))) == [0, 1, 2]


@pytest.mark.parametrize("size", [None, "1"])
def test_nothing_is_joined_where_nothing_was_launched(monkeypatch, size):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    assert current_workers() is SINGLE_PROCESS
    assert not torch.distributed.is_initialized()


def exchanged():
    """What a rank gets from each of the ways to talk."""
    workers = current_workers()
    assert isinstance(workers, DistributedWorkers)
    assert current_workers().rank == workers.rank  # joined once
    mine = float(workers.rank + 1)
    parts = torch.full((2, 2), mine, dtype=torch.float64), torch.tensor(10.0 * mine, dtype=torch.float64)
    return {
        "sum": [part.tolist() for part in workers.sum(*parts)],
        "given": parts[0].tolist(),
        "most": workers.max(torch.tensor([mine, -mine])).tolist(),
        "largest": workers.max_value(mine),
        "gather": workers.gather(workers.rank),
        "same": workers.broadcast(f"from {workers.rank}"),
        "work": list(workers.keepalive(range(3 * workers.rank))),
    }


def test_several_processes_agree(tmp_path):
    for rank, found in enumerate(run(exchanged, 3, tmp_path)):
        assert found["sum"] == [[[6.0, 6.0], [6.0, 6.0]], 60.0]
        assert found["given"] == [[rank + 1.0] * 2] * 2  # left alone
        assert found["most"] == [3.0, -1.0]
        assert found["largest"] == 3.0
        assert found["gather"] == [0, 1, 2]
        assert found["same"] == "from 0"
        assert found["work"] == list(range(3 * rank))


def test_a_process_takes_leave_of_the_group_it_joined(monkeypatch):
    calls = []
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: calls.append(1))
    monkeypatch.delattr(sys, "last_value", raising=False)
    distributed._leave()
    assert calls == [1]
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    distributed._leave()
    assert calls == [1]
