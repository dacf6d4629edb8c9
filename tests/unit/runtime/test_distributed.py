"""One process needs none of it, and several agree."""

import os
import sys
from datetime import timedelta

import pytest
import torch

from cavity.runtime import distributed
from cavity.runtime.distributed import SINGLE_PROCESS, DistributedWorkers, current_workers
from tests.workers import free_port, run


def test_a_single_process_is_handed_back_what_it_gives():
    parts = torch.ones(2), torch.zeros(3, 2)
    assert SINGLE_PROCESS.sum(*parts) == parts
    assert SINGLE_PROCESS.max(parts[0]) is parts[0]
    assert SINGLE_PROCESS.max_value(0.5) == 0.5
    assert SINGLE_PROCESS.gather("x") == ["x"]
    assert SINGLE_PROCESS.broadcast("x") == "x"
    assert list(SINGLE_PROCESS.keepalive(range(3))) == [0, 1, 2]


TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
GROUP = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in TORCHRUN | GROUP:
        monkeypatch.delenv(name, raising=False)


def setenv(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "variables",
    [{}, {"WORLD_SIZE": "2"}, GROUP, GROUP | {"LOCAL_RANK": "0"}, TORCHRUN, TORCHRUN | GROUP | {"WORLD_SIZE": "1"}],
    ids=["none", "size", "another launcher", "another launcher's rank", "half of torchrun's", "a single process"],
)
def test_nothing_is_joined_but_under_torchrun(monkeypatch, variables):
    setenv(monkeypatch, variables)
    assert current_workers() is SINGLE_PROCESS
    assert not torch.distributed.is_initialized()


def test_a_group_of_someone_else_is_left_alone(monkeypatch):
    """Not under torchrun: its other processes may never call fit."""
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 2)
    assert current_workers() is SINGLE_PROCESS


def test_nothing_is_joined_where_it_is_turned_off(monkeypatch):
    setenv(monkeypatch, TORCHRUN | GROUP)
    assert current_workers(False) is SINGLE_PROCESS


def test_joining_by_request_names_the_variables_that_are_missing(monkeypatch):
    setenv(monkeypatch, {"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match=r"no MASTER_ADDR, MASTER_PORT: start .* torchrun, or pass distributed=False"):
        current_workers(True)


@pytest.mark.parametrize("variables", [TORCHRUN | GROUP, GROUP], ids=["auto", "by request"])
def test_processes_that_do_not_come_are_not_waited_for_forever(monkeypatch, variables):
    """As for a fit on the first rank of a job alone."""
    monkeypatch.setattr(distributed, "START_TIMEOUT", timedelta(seconds=1))
    setenv(monkeypatch, variables | {"MASTER_PORT": str(free_port())})
    with pytest.raises(TimeoutError, match=r"must call the same fit .* did not .*distributed=False .*alone"):
        current_workers("auto" if variables != GROUP else True)
    assert not torch.distributed.is_initialized()


def meets_no_one():
    """The first rank calls once more than the others: what it is told."""
    workers = current_workers()
    distributed.START_TIMEOUT = timedelta(seconds=1)
    told = None
    if workers.rank == 0:
        with pytest.raises(TimeoutError, match="distributed=False") as error:
            current_workers()
        told = str(error.value)
    workers.gather(None)  # the group is as it was
    return told


def test_processes_that_do_not_come_again_are_named(tmp_path):
    told, nothing, also_nothing = run(meets_no_one, 3, tmp_path)
    assert "2 of 3 processes (rank 1, 2) did not come within 1 seconds" in told
    assert nothing is also_nothing is None


def by_request():
    """A group that was made elsewhere, or the variables of a launcher other than torchrun."""
    del os.environ["TORCHELASTIC_RUN_ID"]
    alone = current_workers().size
    torch.distributed.init_process_group("gloo")
    found = alone, current_workers().size, current_workers(True).size, current_workers(True).gather("here")
    torch.distributed.destroy_process_group()  # whoever made the group ends it: its threads can abort the interpreter
    return found


def test_an_existing_group_is_used_by_request(tmp_path):
    assert run(by_request, 2, tmp_path) == [(1, 1, 2, ["here", "here"])] * 2


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
