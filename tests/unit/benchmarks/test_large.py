"""The benchmarks of larger data, at their smallest: what they make, and what their records hold."""

import numpy as np
import pytest

from benchmarks import busy, classes, memory, query, ranks, source
from benchmarks.history import line, subject
from benchmarks.problems import Options

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def small(monkeypatch):
    """The same work on few rows, in this process: starting another takes seconds."""
    for module in (memory, classes, query):
        monkeypatch.setattr(module, "in_child", lambda work, *args, device: work(*args) | {"peak_memory_mib": 1})
    monkeypatch.setattr(memory, "ROWS", (2500, 3000))
    for module in (memory, source):
        monkeypatch.setattr(module, "MODEL", memory.MODEL | {"n_inducing": 5})
    monkeypatch.setattr(classes, "SIZES", {"C": 12, "N": 700, "D": 3, "M": 4, "B": 200})
    monkeypatch.setattr(classes, "TEST_ROWS", 100)
    monkeypatch.setattr(query, "ROWS", (300, 400))
    monkeypatch.setattr(query, "MODEL", query.MODEL | {"n_inducing": 5, "max_epochs": 1})
    for name in ("TRAIN_ROWS", "CHECKED_ROWS"):
        monkeypatch.setattr(query, name, 200)


def test_rows_are_the_same_whenever_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "FILE_ROWS", 1000)
    monkeypatch.setattr(memory, "GROUP_ROWS", 300)
    tables = []
    for name in ("one", "other"):
        memory.write_rows(tmp_path / name, 2500)
        tables.append(pq.read_table(tmp_path / name))
        assert len(list((tmp_path / name).glob("*.parquet"))) == 3
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows == 2500
    assert set(np.unique(tables[0]["label"])) == set(range(memory.CLASSES))


def test_memory_is_measured_for_training_and_prediction_of_few_rows_and_many(small):
    records = list(memory.measure(Options()))
    assert [(r["what"], r["rows"]) for r in records] == [
        ("train", 2500), ("predict", 2500), ("train", 3000), ("predict", 3000)]  # fmt: skip
    assert "1 MiB" in line(records[0])


@pytest.mark.filterwarnings("ignore:X has columns that are left out")
def test_memory_is_measured_for_a_mixed_csv_file_on_the_command_line(small, monkeypatch):
    monkeypatch.setattr(memory, "LEVELS", (3, 10, 60))
    records = list(memory.measure(Options(what=("csv",), rows=2500)))
    assert [(r["what"], r["rows"], r["D"]) for r in records] == [("train csv", 2500, 8), ("predict csv", 2500, 8)]


def test_memory_is_measured_for_training_on_all_rows(small, monkeypatch):
    monkeypatch.setattr(memory, "FULL_MODEL", memory.FULL_MODEL | {"n_inducing": 5, "max_epochs": 1})
    records = list(memory.measure(Options(what=("full",), rows=300)))
    found = [(r["what"], r["rows"], r["C"], r["D"]) for r in records]
    assert found == [("train on all rows", 300, 10, 20), ("predict on all rows", 300, 10, 20)]


def test_queries_are_timed_by_every_method(small):
    records = list(query.measure(Options()))
    assert [(r["what"], r["rows"]) for r in records] == [
        ("bald", 300), ("bald", 400), ("epig", 400), ("entropy", 400), ("margin", 400), ("random", 400)]  # fmt: skip
    assert records[0]["rank_correlation"] > 0.8
    assert 20 <= records[0]["worst_rank"] < 200
    assert "400 rows, C=5 M=5 D=10" in line(records[-1])


def test_a_step_is_timed_from_files_and_from_memory_in_turns(small, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(source, "flights", lambda: (rng.standard_normal((2100, 3)), rng.integers(0, 3, 2100)))
    records = list(source.measure(Options()))
    assert [r["what"] for r in records] == ["in memory", "from Parquet"] * source.TURNS
    assert all(r["ms"] > 0 and r["rows"] == 2100 for r in records)
    assert "2100 rows" in subject(records[0])


def test_many_classes_are_trained_and_predicted(small):
    (record,) = classes.measure(Options())
    assert record["nll"] < np.log(12)
    assert record["rows_per_second"] > 0
    assert "C=12" in subject(record)


@pytest.mark.slow
def test_a_step_is_timed_on_one_process_and_on_two(monkeypatch):
    monkeypatch.setattr(ranks, "SIZES", ({"C": 2, "M": 3, "D": 2, "B": 20},))
    alone, shared = ranks.measure(Options())
    assert alone["ranks"] == 1
    assert shared["ranks"] == 2
    assert alone["message_mb"] == 0.0
    assert alone["ms"] > 0
    assert shared["ms"] > 0
    assert "2 ranks" in shared["what"]


def test_fits_are_timed_beside_busy_processes(monkeypatch):
    monkeypatch.setattr(busy, "SIZES", {"small": {"C": 2, "M": 3, "B": 20, "epochs": 1}})
    monkeypatch.setattr(busy, "TURNS", 1)
    running = []

    def seconds(*arguments, **others):
        running.append(len(others))
        return 2.0 + len(running)

    monkeypatch.setattr(busy, "command_line", lambda *arguments, folder: None)
    monkeypatch.setattr(busy, "_fit_seconds", seconds)
    records = list(busy.measure(Options(what=("small",))))
    assert [(r["busy"], r["seconds"], r["ratio"]) for r in records] == [(0, 3.0, 1.0), (1, 4.0, 1.33), (2, 5.0, 1.67)]
    assert "C=2 M=3 B=20, 1 busy" in line(records[1])
    assert "1.33 × idle" in line(records[1])
    assert busy.fit_seconds(busy.SIZES["small"]) > 0
