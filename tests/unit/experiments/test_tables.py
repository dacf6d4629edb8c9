"""The everyday tables: which fits, the rivals, and what made-up records show."""

import sys
from pathlib import Path

import pytest

from experiments.experiment import read_config
from experiments.tables.run import CATBOOST, NAMES, TREES, cost, jobs, run, summarize

FOLDER = Path(__file__).parents[3] / "experiments" / "tables"
CONFIG = read_config(FOLDER, smoke=False)
SMALL = CONFIG | {"tables": ["a", "b"], "splits": [0, 1], "models": ["cavity", "catboost", "logreg"], "encoded": []}
SMOKE = read_config(FOLDER, smoke=True)


def records(ours=0.5, seconds=1.0, error=0.1, cut=()):
    """NLLs of ours, of CatBoost (1) and of logistic regression (2); CatBoost takes 2 s and its error is 0.1."""
    nll, times = {"cavity": ours, "catboost": 1.0, "logreg": 2.0}, {"cavity": seconds, "catboost": 2.0, "logreg": 0.1}
    return [
        job | {"nll": nll[name], "error": error if name == "cavity" else 0.1, "ece": 0.05, "seconds": times[name],
               "trees": TREES - (job["table"] in cut) if name == CATBOOST else None}
        for job in jobs(SMALL)
        if (name := job["model"])
    ]  # fmt: skip


def test_every_model_meets_the_same_rows():
    found = jobs(CONFIG)
    assert len(found) == 20 * 3 * 6 + 16 * 3
    rows = {
        name: [(j["table"], j["split"], j["train_rows"], j["seed"]) for j in found if j["model"] == name]
        for name in CONFIG["models"]
    }
    assert all(part == rows["cavity"] for part in rows.values())
    assert {job["max_seconds"] for job in found if job["model"] == CATBOOST} == {60}
    assert {job["max_seconds"] for job in found if job["model"] != CATBOOST} == {None}
    assert cost(found[0]) == cost(found[1]) > cost(found[2])  # ours and CatBoost's come first, side by side


def test_a_smoke_run_needs_no_extra():
    assert not {"catboost", "lightgbm"} & set(SMOKE["models"])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cavity"])
def test_a_rival_on_text_and_gaps(name):
    if name in ("catboost", "lightgbm"):
        pytest.importorskip(name)
    job = jobs(SMOKE)[0] | {"model": name, "max_seconds": 60 if name == CATBOOST else None}
    found = run(job)
    assert found["nll"] < 0.9
    assert found["error"] < 0.4
    assert found["trees"] == (TREES if name == CATBOOST else None)


def test_a_time_limit_stops_catboost():
    pytest.importorskip("catboost")
    assert run(jobs(SMOKE)[0] | {"model": CATBOOST, "max_seconds": 0})["trees"] == 1


def test_a_rival_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match=r"CatBoost is not installed: pip install '\.\[rivals\]'"):
        run(jobs(SMOKE)[0] | {"model": CATBOOST, "max_seconds": 60})


def test_records_that_support_all_claims():
    pytest.importorskip("matplotlib")
    shown = summarize(records(), SMALL, FOLDER)
    assert [v.holds for v in shown.verdicts] == [True] * 4
    assert [v.evidence for v in shown.verdicts] == [
        "ratio 0.500", "ours 1.00, CatBoost 2.00", "ours 2.00, CatBoost 2.00", "4 s, CatBoost 8 s",
    ]  # fmt: skip
    assert "| cavity | 0.500 | 1.000 | 2.000 | 0.050 | 4 |" in shown.text
    assert "| a | **0.5000** | 1.0000 | 2.0000 |" in shown.text
    assert "preliminary" not in shown.verdicts[0].claim


def test_records_that_support_none():
    pytest.importorskip("matplotlib")
    judged = summarize(records(ours=0.95, seconds=3.0, error=0.2), SMALL | {"least_lead": 1.5}, FOLDER).verdicts
    assert [v.holds for v in judged] == [False] * 4


def test_tables_where_catboost_was_cut_short_are_marked_and_left_out_of_a_second_ratio():
    pytest.importorskip("matplotlib")
    made = [r | {"nll": 0.1} if (r["table"], r["model"]) == ("b", "cavity") else r for r in records(cut=("b",))]
    shown = summarize(made, SMALL, FOLDER)
    assert shown.verdicts[0].evidence == "ratio 0.224; without the 1 marked *: ratio 0.500"
    assert "| b\\* |" in shown.text


def test_only_complete_tables_are_compared():
    pytest.importorskip("matplotlib")
    shown = summarize(records()[1:], SMALL, FOLDER)
    assert "### Comparison on 1 of 2 tables" in shown.text
    assert all("(preliminary: 1 of 2 tables)" in v.claim for v in shown.verdicts)
    assert summarize(records()[:2], SMALL, FOLDER).verdicts == []
