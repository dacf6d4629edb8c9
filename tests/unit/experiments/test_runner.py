"""Fits in several processes: what is missing, what is kept, and what happens when a run is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.records import append, read
from experiments.experiment import matching_records, read_config
from experiments.runner import THREADS, _thread_variables, missing

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config():
    return read_config(ROOT / "experiments" / "uci", smoke=True)


def test_what_has_a_record_is_not_run_again(config, tmp_path):
    every = missing("uci", config, {}, tmp_path)
    assert len(every) == 8
    append(tmp_path / "results.jsonl", every[2] | {"nll": 0.1})
    left = missing("uci", config, {}, tmp_path)
    assert every[2] not in left
    assert len(left) == 7


def test_records_of_other_settings_do_not_count(config, tmp_path):
    every = missing("uci", config, {}, tmp_path)
    append(tmp_path / "results.jsonl", every[0] | {"inducing": 0.7})
    assert missing("uci", config, {}, tmp_path) == every
    assert matching_records("uci", config, tmp_path) == []


def test_the_longest_come_first(config, tmp_path):
    config = config | {"sets": ["glass", "satellite"], "methods": ["gfitc", "sep"]}
    first, *_, last = missing("uci", config, {}, tmp_path)
    assert (first["data_set"], first["method"]) == ("satellite", "gfitc")
    assert (last["data_set"], last["method"]) == ("glass", "sep")


def test_only_some(config, tmp_path):
    assert {job["method"] for job in missing("uci", config, {"method": {"ep"}}, tmp_path)} == {"ep"}
    with pytest.raises(ValueError, match=r"color.*fits have data_set, inducing, method"):
        missing("uci", config, {"color": {"red"}}, tmp_path)


def test_new_processes_find_their_share_of_the_cores(monkeypatch):
    monkeypatch.setenv(THREADS[0], "7")
    monkeypatch.delenv(THREADS[1], raising=False)
    with _thread_variables(3):
        assert {os.environ[name] for name in THREADS} == {"3"}
    assert os.environ[THREADS[0]] == "7"
    assert THREADS[1] not in os.environ


def test_a_line_that_was_not_written_to_its_end_is_no_record(tmp_path):
    path = tmp_path / "results.jsonl"
    append(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"a": 2, "curve": {"x": 1')
    append(path, {"a": 3})
    assert [record["a"] for record in read(path)] == [1, 3]
    assert json.loads(path.read_text().splitlines()[-1]) == {"a": 3}


def _start(out):
    command = [sys.executable, "-m", "experiments", "uci", "--smoke", "--jobs", "1", "--out", str(out)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait_for_a_record(path, process):
    until = time.monotonic() + 60
    while not read(path):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.02)


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for child processes as Linux lists them")
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_stopped_run_leaves_whole_records_and_no_process_and_goes_on(how, tmp_path):
    path = tmp_path / "results.jsonl"
    process = _start(tmp_path)
    _wait_for_a_record(path, process)
    children = _children(process.pid)
    process.send_signal(how)
    shown, _ = process.communicate(timeout=30)
    kept = read(path)
    if how == signal.SIGINT:
        assert process.returncode == 1
        assert "Run the same command again to resume" in shown
    until = time.monotonic() + 10
    while any(Path(f"/proc/{child}/exe").exists() for child in children):
        assert time.monotonic() < until, "a process is left behind"
        time.sleep(0.1)
    again = _start(tmp_path)
    again.communicate(timeout=120)
    assert again.returncode == 0
    records = read(path)
    assert records[: len(kept)] == kept
    assert len(records) == 8
    assert len({json.dumps([r["method"], r["split"]]) for r in records}) == 8
