"""Active learning: which curves, one of each kind, and what made-up records show."""

from pathlib import Path

import numpy as np
import pytest

from experiments.active.run import ALONE, BALD, EPIG, FOREST, RANDOM, SINGLE, cost, jobs, run, summarize
from experiments.experiment import read_config

FOLDER = Path(__file__).parents[3] / "experiments" / "active"
CONFIG = read_config(FOLDER, smoke=False) | {"more_sets": []}
SMOKE = read_config(FOLDER, smoke=True)


def records(speed=2.0, single=1.0):
    """Curves that fall by a factor e with every 100 labels: `speed` times as fast for BALD."""
    rates = {BALD: speed, EPIG: speed, SINGLE: speed * single, ALONE: 0.5, RANDOM: 1.0}
    found = []
    for job in jobs(CONFIG):
        labels = list(range(job["start"], job["end"] + 1, 10))
        fall = [-rates.get(job["model"], 0.1) * (n - job["start"]) / 100 for n in labels]
        found.append(job | {"labels": labels, "nll": np.exp(fall).tolist()})
    return found


def test_every_strategy_has_the_same_pools():
    found = jobs(CONFIG)
    assert len(found) == 5 * 10 * 6 + 5 * 10 + 5 * 3
    assert {job["end"] for job in found if job["model"] in (BALD, EPIG)} == {180}
    assert {job["end"] for job in found if job["model"] == RANDOM or job["model"].startswith(FOREST)} == {270}
    assert {job["end"] for job in found if job["model"] in (ALONE, SINGLE)} == {60}
    assert max(found, key=cost)["model"] == SINGLE


@pytest.mark.parametrize("model", [BALD, EPIG, ALONE, SINGLE, FOREST + "entropy", FOREST + "committee"])
def test_a_curve_starts_at_the_same_rows(model):
    if model.startswith(FOREST):
        pytest.importorskip("skactiveml")
    job = jobs(SMOKE)[0] | {"model": model, "end": 13}
    found = run(job)
    assert found["labels"] == [10, 13]
    assert np.isfinite(found["nll"]).all()
    if not model.startswith(FOREST):
        assert found["nll"][0] == run(job | {"model": RANDOM})["nll"][0]


def test_the_claims_of_made_up_curves():
    text, verdicts, figures = summarize(records(), CONFIG, FOLDER)
    assert [verdict.holds for verdict in verdicts] == [True, True, True, True]
    assert verdicts[0].evidence.count("0.54") == 5  # 145 of 270
    assert "| 0.0821 | 145 | 145 | 270 | " in text
    assert verdicts[2].evidence.count("145 against never") == 5
    assert verdicts[3].evidence.startswith("100 ± 0 %")
    assert "best 20 by themselves 33" in text
    assert len(figures["active"].axes) == 5
    slow = summarize(records(speed=1.2, single=3.0), CONFIG, FOLDER).verdicts
    assert [verdict.holds for verdict in slow] == [False, False, True, False]


def test_nothing_is_claimed_without_curves():
    assert summarize([], CONFIG, FOLDER).verdicts == []
