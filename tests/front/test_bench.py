"""`cavity bench` at its smallest size: it measures, appends and shows. How fast it is, is not tested."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from cavity.bench import CASES, Size, append, machine, read, rivals
from cavity.bench.cases import cavity_step
from cavity.bench.problems import sparse_images
from cavity.cli import main

SIZE = Size(3, 4, 6, 5)


@pytest.fixture
def history(tmp_path):
    return tmp_path / "deep" / "history.jsonl"


def run(*arguments):
    found = CliRunner().invoke(main, ["bench", *map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_measures_everything_and_appends(history):
    shown = run("--size", *SIZE, "--out", history)
    records = read(history)
    assert {record["case"] for record in records} == set(CASES)
    assert {"cavity sep", "cavity ep", "cavity vi"} <= {r["what"] for r in records if r["case"] == "step"}
    assert [r["what"] for r in records if r["case"] == "fit"] == ["ep", "sep", "gfitc", "vi"]
    assert len(shown.splitlines()) == len(records)
    for record in records:
        assert {"when", "commit", "processor", "threads", "torch"} <= set(record)
    for record in (r for r in records if r["case"] == "step"):
        assert 0 < record["least_ms"] <= record["median_ms"]
        assert record["floor_ms"] == pytest.approx(1e-6 * SIZE.step_flops() / record["roofline_gflops"], abs=0.01)


def test_a_second_run_adds_to_the_first(history):
    run("predict", "--size", *SIZE, "--out", history)
    n_records = len(read(history))
    run("predict", "--size", *SIZE, "--out", history)
    assert len(read(history)) == 2 * n_records
    assert run("--history", "--out", history).count("rows/s") == 2 * n_records


def test_an_empty_history_says_so(history):
    assert "nothing yet" in run("--history", "--out", history)
    assert not history.exists()


def test_a_record_is_one_line(history):
    append(history, {"a": 1} | machine("cpu"))
    append(history, {"a": 2})
    lines = history.read_text().splitlines()
    assert [json.loads(line)["a"] for line in lines] == [1, 2]


@pytest.mark.parametrize("method", ["sep", "ep", "vi"])
def test_a_step_is_a_step_of_training(method):
    """The second call goes on from the first, to the next batch."""
    work = cavity_step(method, sparse_images(SIZE), SIZE, "float64", "cpu")
    first, second = work(), work()
    assert torch.isfinite(second).all()
    assert not torch.equal(first, second)


def test_the_problem_is_the_same_every_time():
    a, b = sparse_images(SIZE), sparse_images(SIZE)
    assert all(np.array_equal(x, z) for x, z in zip(a, b, strict=True))
    assert a.X.shape == (4 * SIZE.B, SIZE.D)
    assert a.Z.shape == (SIZE.C, SIZE.M, SIZE.D)
    assert ((a.X >= 0) & (a.X <= 1)).all()


def test_rivals_may_be_absent():
    assert set(rivals.available()) <= {"gpytorch", "gpflow"}
