"""`python -m benchmarks` at its smallest size: it measures, appends and shows. Speed itself is not tested."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import against, fit, page, predict, step
from benchmarks.__main__ import STANDARD, main
from benchmarks.measure import peak_memory
from benchmarks.problems import Options, Size
from benchmarks.records import append, machine, read
from cavity.fitting.settings import PAPER_STEPS
from experiments.experiment import between_marks

SIZE = Size(3, 4, 6, 5)
RECORDS = against.ROOT / "benchmarks" / "history.jsonl"


@pytest.fixture
def history(tmp_path):
    return tmp_path / "deep" / "history.jsonl"


@pytest.fixture
def no_children(monkeypatch):
    """The same work in this process: starting another takes seconds."""

    def here(work, *arguments, device):
        return work(*arguments) | {"peak_memory_mib": peak_memory(device)}

    for module in (fit, predict):
        monkeypatch.setattr(module, "in_child", here)


def run(*arguments):
    found = CliRunner().invoke(main, [*map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_measures_and_appends(history, no_children, monkeypatch):
    monkeypatch.setattr(fit, "METHODS", ("sep",))
    monkeypatch.setattr(step, "REPEATS", 2)
    monkeypatch.setitem(PAPER_STEPS, "sep", 20)
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    pytest.importorskip("matplotlib")
    history.parent.mkdir()
    readme = history.with_name("README.md")
    readme.write_text(f"<!-- {page.MARK} -->\n<!-- /{page.MARK} -->\n")
    shown = run("--size", *SIZE, "--data", "digits", "--seconds", 0.1, "--out", history)
    records = read(history)
    assert {record["case"] for record in records} == set(STANDARD)
    assert {"cavity sep", "cavity ep", "cavity vi"} <= {r["what"] for r in records if r["case"] == "step"}
    assert "CAVITY_DATA is not set to a data folder" in shown
    lines = shown.splitlines()
    assert f"Figure: {history.with_name('speed.png')}" in lines
    assert history.with_name("speed.png").stat().st_size > 1000
    assert len([line for line in lines if line.split(" ")[0] in STANDARD]) == len(records) + 1
    assert readme.read_text().count("cavity sep") >= 3
    for record in records:
        assert {"when", "commit", "processor", "threads", "torch"} <= set(record)
    for record in (r for r in records if r["case"] == "step"):
        assert 0 < record["least_ms"] <= record["median_ms"]
        assert record.get(step.RATIO, 1.0) > 0.0
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
    shown = run("history", "--out", history).splitlines()
    assert len(shown) == 1 + len(records) // 2
    large = [r["rows_per_second"] for r in records if r["what"] == "cavity" and r["D"] == SIZE.D]
    of_large = next(line for line in shown if "cavity" in line and f"D={SIZE.D} " in line)
    assert f"{large[-1]} rows/s" in of_large
    assert f"{max(large)} rows/s" in of_large


def test_an_empty_history_says_so(history):
    assert "The history is empty" in run("history", "--out", history)
    found = CliRunner().invoke(main, ["plot", "--picture", str(history.with_suffix(".png")), "--out", str(history)])
    assert found.exit_code == 1
    assert "nothing to draw yet" in found.output
    assert not history.exists()


def test_steps_of_one_precision_are_drawn(history, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(step, "REPEATS", 2)
    run("step", "--dtype", "float64", "--size", *SIZE, "--out", history)
    assert {record["dtype"] for record in read(history)} == {"float64"}
    picture = history.with_suffix(".png")
    run("plot", "--picture", picture, "--out", history)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_record_is_one_line(history):
    append(history, {"a": 1} | machine("cpu"))
    append(history, {"a": 2})
    lines = history.read_text().splitlines()
    assert [json.loads(line)["a"] for line in lines] == [1, 2]


# --- The page, and the speed of this checkout ---


def test_the_page_has_the_tables_of_the_records():
    """After new records: python -m benchmarks plot page."""
    text = (against.ROOT / "benchmarks" / "README.md").read_text()
    assert between_marks(text, page.MARK, page.tables(read(RECORDS))) == text


@pytest.mark.slow
def test_a_step_is_not_slower_than_it_was():
    """CPU time relative to GPyTorch in the same run: at most a tenth more than the best record of such a processor."""
    pytest.importorskip("gpytorch")
    like = {"case": "step", "dtype": "float64", "processor": machine("cpu")["processor"], **Size()._asdict()}
    records = [r for r in read(RECORDS) if step.RATIO in r and all(r.get(name) == x for name, x in like.items())]
    if not records:
        pytest.skip("no record of a SEP step beside GPyTorch on such a processor")
    best = min(record[step.RATIO] for record in records)
    ratio = step.cpu_time_ratio("gpytorch", Size(), "float64")
    assert ratio < 1.1 * best, f"a SEP step takes {ratio:.3f} of GPyTorch's time; the best record is {best:.3f}"


# --- Two checkouts in one run ---


@pytest.mark.slow
def test_steps_of_another_checkout_are_compared(history, monkeypatch):
    """With itself: every method has both times and a ratio, and nothing is appended."""
    monkeypatch.setattr(against, "TURNS", 1)
    shown = run("step", "--against", against.ROOT / "src", "--size", *SIZE, "--threads", 1, "--out", history)
    header, *rows = shown.splitlines()
    assert header.split() == " ".join(against.HEADER).split()
    assert [row.split()[0] for row in rows] == list(against.METHODS)
    for row in rows:
        this, other, ratio = map(float, row.split()[1:4])
        assert ratio == pytest.approx(this / other, rel=0.01)
    assert not history.exists()


def test_turns_alternate_and_ratios_are_of_medians(tmp_path, monkeypatch):
    """The other checkout takes twice as long, but for one turn that was disturbed."""
    (tmp_path / "cavity").mkdir()
    (tmp_path / "cavity" / "__init__.py").touch()
    order = []

    def made_up(source, options, threads):
        order.append(source)
        disturbed = 10.0 if order.count(source) == 2 else 0.0
        return dict.fromkeys(against.METHODS, disturbed + (1.0 if source == against.ROOT / "src" else 2.0))

    monkeypatch.setattr(against, "_measure_in", made_up)
    found = list(against.compare(tmp_path, Options(), 1))
    assert order[:4] == [against.ROOT / "src", tmp_path, tmp_path, against.ROOT / "src"]
    assert [comparison.ratio for comparison in found] == [0.5, 0.5, 0.5]
    assert found[0].row() == ["sep", "1.000", "2.000", "0.500", "0.500", "0.500", "0.917"]


@pytest.mark.parametrize(
    ("names", "message"), [(["step"], "must be the src folder of a checkout"), (["fit"], "step only")]
)
def test_what_cannot_be_compared(names, message, tmp_path):
    found = CliRunner().invoke(main, [*names, "--against", str(tmp_path)])
    assert found.exit_code in (1, 2)
    assert message in found.output
