"""The eight sets: which fits, one of them, and what made-up records show beside the paper."""

import math
from itertools import product
from pathlib import Path

import pytest

from experiments.experiment import read_config
from experiments.uci.run import AUTO, EVERY_M, PAPER, cost, jobs, run, summarize

FOLDER = Path(__file__).parents[3] / "experiments" / "uci"
CONFIG = read_config(FOLDER, smoke=False) | {"repetitions": 2}
SMOKE = read_config(FOLDER, smoke=True)


def paper_nll():
    rows = [line.split(",") for line in (FOLDER / "paper.csv").read_text().splitlines()[1:]]
    return {(d, float(share), m): float(mean) for d, share, m, metric, mean, _ in rows if metric == "nll"}


def records(shift=0.0, ours=-0.1):
    """The paper's figures moved by so much, two splits around each; ours so far from the best of the paper's four."""
    found, nll = [], paper_nll()
    for job in jobs(CONFIG):
        d, share, method = job["data_set"], job["inducing"], job["method"]
        shares = CONFIG["inducing"] if share == EVERY_M else [share]
        best = min(nll[d, s, m] for m in PAPER for s in shares)
        mean = nll[d, share, method] + shift if method in PAPER else best + ours
        scores = {"nll": mean + 0.01 * (job["split"] - 0.5), "error": 0.1, "cpu_seconds": 2.0, "device": "cpu"}
        found.append(job | scores)
    return found


def test_the_paper_s_figures_are_complete():
    cells = set(product(CONFIG["sets"], CONFIG["inducing"], PAPER))
    assert set(paper_nll()) == cells
    assert len(cells) == 96
    assert all(math.isfinite(value) for value in paper_nll().values())


def test_every_fit_is_asked_for_once():
    config = read_config(FOLDER, smoke=False)
    found = jobs(config)
    assert len(found) == 8 * 20 * (3 * (len(config["methods"]) - 1) + 1)
    assert {job["inducing"] for job in found if job["method"] == AUTO} == {EVERY_M}
    assert len({str(job) for job in found}) == len(found)
    assert all(job["seed"] == job["split"] for job in found)
    assert all(cost(job) > 0 for job in found)


@pytest.mark.parametrize("method", ["sep", "cavity", AUTO])
def test_a_fit_of_wine(method, monkeypatch):
    monkeypatch.setattr("cavity.fitting.settings.EPOCHS", 40)
    job = next(job for job in jobs(SMOKE) if job["method"] == method)
    record = run(job)
    assert record["nll"] < 0.5
    assert record["error"] < 0.2
    assert (record["device"], record["events"]) == ("cpu", 0)


def test_records_like_the_paper_s_bear_it_out():
    shown = summarize(records(), CONFIG, FOLDER)
    assert [verdict.holds for verdict in shown.verdicts] == [True, True]
    assert shown.verdicts[0].evidence == "96 of 96"
    assert shown.verdicts[1].evidence.startswith("24 of 24")
    assert " !" not in shown.text.partition("### Test error")[0].partition("| set")[2]


def test_records_unlike_the_paper_s_do_not():
    shown = summarize(records(shift=1.0, ours=0.1), CONFIG, FOLDER)
    assert [verdict.holds for verdict in shown.verdicts] == [False, False]
    assert shown.verdicts[1].evidence.startswith("0 of 24, 0 more if rounded")


def test_one_fit_of_our_defaults_is_compared_with_the_paper_s_best_at_every_m():
    """Wine's best figures are 0.07, 0.06 and 0.05: a mean of 0.055 is below two of them, and rounds to none."""
    made = [r | {"nll": 0.055} if (r["data_set"], r["method"]) == ("wine", AUTO) else r for r in records()]
    shown = summarize(made, CONFIG, FOLDER)
    assert shown.verdicts[1].holds
    assert shown.verdicts[1].evidence == "23 of 24, 0 more if rounded; with M as given 24, with SEP 24"
    rows = [line for line in shown.text.partition("### Test error")[0].splitlines() if line.startswith("| Wine")]
    assert [f"| 0.055 ± 0.000{mark} |" in row for row, mark in zip(rows, (" ✓", " ✓", ""), strict=True)] == [True] * 3


def test_cells_with_too_few_splits_are_named():
    assert "fewer than" not in summarize(records(), CONFIG, FOLDER).text
    text = summarize(records()[1:], CONFIG, FOLDER).text
    assert "Cells with fewer than 2 splits: Glass 5% GFITC: 1." in text
    text = summarize([r for r in records() if r["method"] != AUTO or r["data_set"] != "wine"], CONFIG, FOLDER).text
    assert "Cells with fewer than 2 splits: Wine cavity: 0." in text


def test_a_verdict_before_all_fits_of_our_defaults_is_preliminary():
    made = records()
    last = max(i for i, record in enumerate(made) if record["method"] == AUTO)
    shown = summarize(made[:last] + made[last + 1 :], CONFIG, FOLDER)
    assert shown.verdicts[1].evidence.endswith(" (preliminary: 15 of 16 fits)")


def test_some_of_the_fits_are_enough_to_be_shown():
    some = [record for record in records() if record["data_set"] == "wine" and record["method"] in ("ep", "vi")]
    text = summarize(some, CONFIG, FOLDER).text
    assert "VI minus EP" in text
    assert "| Wine | 5% |" in text
