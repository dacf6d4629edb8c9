"""`cavity bench` at its smallest size: it measures, appends and shows. How fast it is, is not tested."""

import json

import pytest
from click.testing import CliRunner

from cavity.bench import USUAL, Size, append, fits, machine, read, steps
from cavity.bench.child import peak_memory
from cavity.cli import main
from cavity.fitting.settings import PAPER_STEPS

SIZE = Size(3, 4, 6, 5)


@pytest.fixture
def history(tmp_path):
    return tmp_path / "deep" / "history.jsonl"


@pytest.fixture
def no_children(monkeypatch):
    """The same work in this process: starting another takes seconds."""

    def here(work, *arguments, device):
        return work(*arguments) | {"peak_memory_mib": peak_memory(device)}

    monkeypatch.setattr(fits, "in_child", here)


def run(*arguments):
    found = CliRunner().invoke(main, ["bench", *map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_measures_and_appends(history, no_children, monkeypatch):
    monkeypatch.setattr(fits, "METHODS", ("sep",))
    monkeypatch.setattr(steps, "REPEATS", 2)
    monkeypatch.setitem(PAPER_STEPS, "sep", 20)
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    shown = run("--size", *SIZE, "--out", history)
    records = read(history)
    assert {record["case"] for record in records} == set(USUAL)
    assert {"cavity sep", "cavity ep", "cavity vi"} <= {r["what"] for r in records if r["case"] == "step"}
    assert "CAVITY_DATA names no data folder" in shown
    assert len(shown.splitlines()) == len(records) + 1
    for record in records:
        assert {"when", "commit", "processor", "threads", "torch"} <= set(record)
    for record in (r for r in records if r["case"] == "step"):
        assert 0 < record["least_ms"] <= record["median_ms"]
        assert record["floor_ms"] == pytest.approx(1e-6 * SIZE.step_flops() / record["roofline_gflops"], abs=0.01)
    for record in (r for r in records if r["case"] in ("fit", "predict")):
        assert record["peak_memory_mib"] > 10


def test_quality_scores_every_budget_and_sums_up(history):
    shown = run(
        "quality",
        "--data",
        "digits",
        "--inducing",
        4,
        "--batch",
        50,
        "--seconds",
        0.4,
        "--seconds",
        0.1,
        "--out",
        history,
    )
    records = [r for r in read(history) if r["what"] == "cavity sep"]
    assert [record["budget"] for record in records] == [0.1, 0.4]
    for record in records:
        assert record["seconds"] >= record["budget"]
        assert 0 < record["setup"] < record["seconds"]
        assert 0 < record["nll"] < 2.3026
        assert record["error"] < 0.5
        assert (record["rows"], record["test_rows"], record["M"], record["B"]) == (1347, 450, 4, 50)
    summary = shown[shown.index("seconds to an NLL of") :]
    assert "cavity sep" in summary
    assert "cavity ep" in summary


def test_a_second_run_adds_to_the_first_and_the_best_is_shown(history, no_children):
    for _ in range(2):
        run("predict", "--size", *SIZE, "--out", history)
    records = read(history)
    shown = run("--history", "--out", history).splitlines()
    assert len(shown) == 1 + len(records) // 2
    large = [r["rows_per_second"] for r in records if r["what"] == "cavity" and r["D"] == SIZE.D]
    of_large = next(line for line in shown if "cavity" in line and f"D={SIZE.D} " in line)
    assert f"{large[-1]} rows/s" in of_large
    assert f"{max(large)} rows/s" in of_large


def test_an_empty_history_says_so(history):
    assert "nothing yet" in run("--history", "--out", history)
    found = CliRunner().invoke(main, ["bench", "--plot", str(history.with_suffix(".png")), "--out", str(history)])
    assert found.exit_code == 1
    assert "nothing to draw yet" in found.output
    assert not history.exists()


def test_steps_of_one_precision_are_drawn(history, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(steps, "REPEATS", 2)
    run("step", "--dtype", "float64", "--size", *SIZE, "--out", history)
    assert {record["dtype"] for record in read(history)} == {"float64"}
    picture = history.with_suffix(".png")
    run("--plot", picture, "--out", history)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_record_is_one_line(history):
    append(history, {"a": 1} | machine("cpu"))
    append(history, {"a": 2})
    lines = history.read_text().splitlines()
    assert [json.loads(line)["a"] for line in lines] == [1, 2]
