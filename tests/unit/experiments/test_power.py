from pathlib import Path

from experiments.experiment import read_config
from experiments.power.run import cost, jobs, summarize

CONFIG = read_config(Path(__file__).parents[3] / "experiments" / "power", smoke=False)
SMALL = CONFIG | {"sets": ["a"], "folds": 2, "tables": ["b", "c"], "alphas": [0.5, 1.0]}


def records(config, factor):
    """NLL of α = 1 times a factor, calibrated half of it; folds differ."""
    return [
        job | {"nll": nll, "nll_calibrated": 0.5 * nll, "sharpness": 2.0, "cpu_seconds": 1.0}
        for job in jobs(config)
        if (nll := (1.0 + job["fold"]) * (1.0 if job["alpha"] == 1.0 else factor[job["data_set"]]))
    ]


def test_every_alpha_meets_the_same_rows():
    found = jobs(CONFIG)
    rows = {
        alpha: [(j["data_set"], j["fold"], j["seed"]) for j in found if j["alpha"] == alpha]
        for alpha in (0.25, 0.5, 1.0)
    }
    assert rows[0.25] == rows[0.5] == rows[1.0]
    assert {job["settings"]["n_inducing"] for job in found} == {100}
    assert cost(found[0]) > cost(found[2])  # EP needs no quadrature


def test_ratios_are_of_geometric_means_over_complete_sets():
    made = records(SMALL, {"a": 0.5, "b": 0.5, "c": 0.125})
    found = summarize(made, SMALL, Path())
    assert "-68.5" in found.text  # (½ · ½ · ⅛)^⅓ − 1
    assert len(found.verdicts) == 2
    assert not any("preliminary" in v.claim for v in found.verdicts)
    part = summarize(made[1:], SMALL, Path())  # a fold of set a is missing
    assert part.text.startswith("7 of 8 fits; 2 of 3 data sets")
    assert all("(preliminary: 2 of 3 data sets)" in v.claim for v in part.verdicts)


def test_nothing_is_judged_without_a_complete_set():
    found = summarize(records(SMALL, {"a": 1.0, "b": 1.0, "c": 1.0})[:1], SMALL, Path())
    assert found.verdicts == []
