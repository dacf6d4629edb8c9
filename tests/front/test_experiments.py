"""The experiments run, at their smallest size."""

import importlib.util
import os
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def program(name):
    spec = importlib.util.spec_from_file_location(f"experiment_{name}", EXPERIMENTS / name / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_defaults_fit_a_candidate_and_print_a_table():
    defaults = program("defaults")
    record = defaults.run("symmetric priors, sd 1", "waveform", 0)
    assert 0 < record["nll"] < 1.0986
    assert record["error"] < 0.4
    assert len(defaults.table().splitlines()) == len(defaults.CANDIDATES) + len(defaults.RIVALS) + 5


def test_a_fold_never_reads_a_test_row(monkeypatch):
    if "CAVITY_DATA" not in os.environ:
        pytest.skip("the authors' splits are in the data folder")
    defaults = program("defaults")
    data = defaults.load("glass")
    train, test = data.splits[1]
    data.X[:, 0] = range(len(data.X))  # number the rows
    monkeypatch.setattr(defaults, "load", lambda name: data)
    X, _, X_valid, _ = defaults.fold("glass", 1)
    used = {*X[:, 0], *X_valid[:, 0]}
    assert used == set(map(float, train))
    assert not used & set(map(float, test))


def test_the_paper_s_table_says_what_the_records_say():
    uci = program("uci")
    assert uci.table() == (EXPERIMENTS / "uci" / "table.md").read_text()
    records = uci.records()
    assert len(records) == 1120
    assert len({uci.Job(*(record[name] for name in uci.Job._fields)) for record in records}) == 1120


def test_uci_fits_one_split():
    if "CAVITY_DATA" not in os.environ:
        pytest.skip("the authors' splits are in the data folder")
    uci = program("uci")
    record = uci.run(uci.Job("wine", 0, "sep", "cavity"))
    assert record["nll"] < 0.5
