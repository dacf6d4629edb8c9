"""MNIST: which rows train, which model a table of the settings is, and what made-up records show."""

from pathlib import Path

import numpy as np
import pytest

from experiments.experiment import read_config
from experiments.mnist import run as mnist

FOLDER = Path(__file__).parents[3] / "experiments" / "mnist"
CONFIG = read_config(FOLDER, smoke=False)


def record(name, *points, recipe="paper", rows="test", n_inducing=200):
    curve = [list(point) for point in points]
    method = name if recipe == "paper" else "sep"
    return {"name": name, "method": method, "recipe": recipe, "rows": rows, "curve": curve, "settings":
            {"n_inducing": n_inducing, "batch_size": 200}, "nll": curve[-1][1], "error": curve[-1][2],
            "train_seconds": curve[-1][0], "epochs": 100}  # fmt: skip


SEP = record("sep", (1.0, 0.3, 0.08), (20.0, 0.09, 0.025), (150.0, 0.072, 0.0205))
EP = record("ep", (1.0, 0.3, 0.08), (30.0, 0.09, 0.025), (150.0, 0.073, 0.0210))
VI = record("vi", (1.0, 2.0, 0.70), (70.0, 0.09, 0.025), (150.0, 0.070, 0.0210))


def verdicts(*records):
    return mnist.summarize(list(records), CONFIG, FOLDER).verdicts


def ours(name, nll, rows, n_inducing=1000):
    return record(name, (60.0, nll, 0.018), recipe="ours", rows=rows, n_inducing=n_inducing)


def test_validation_rows_come_from_the_training_rows():
    X, y, X_test, _ = mnist.digits("digits", "test")
    X_learned, y_learned, X_held_out, y_held_out = mnist.digits("digits", "validation")
    assert len(X_learned) + len(X_held_out) == len(X)
    assert len(X_held_out) == len(X) // 12
    np.testing.assert_array_equal(np.sort(np.concatenate([X_learned, X_held_out]), axis=0), np.sort(X, axis=0))
    np.testing.assert_array_equal(np.bincount(y), np.bincount(y_learned) + np.bincount(y_held_out))
    assert X.max() == X_test.max() == 1.0


def test_names_are_unique_and_can_be_given_to_only():
    jobs = mnist.jobs(CONFIG)
    assert len({(job["name"], job["rows"]) for job in jobs}) == len(jobs)
    assert not any(set(job["name"]) & {",", "="} for job in jobs)
    assert len({tuple(job) for job in jobs}) == 1


def test_a_table_of_the_settings_becomes_a_model():
    jobs = {job["name"]: job for job in mnist.jobs(CONFIG)}
    paper, own = mnist.model_of(jobs["vi"]), mnist.model_of(jobs["ours-500"])
    assert (paper.method, paper.optimizer, paper.priors, paper.scaling) == ("vi", "paper", None, None)
    assert (paper.n_inducing, paper.batch_size, paper.max_seconds) == (200, 200, jobs["vi"]["seconds"])
    assert (own.method, own.optimizer, own.n_inducing, own.batch_size) == ("sep", "auto", 500, 1000)
    assert (own.kernel.lengthscale, own.kernel.variance) == (2.0, 10.0)
    assert own.max_epochs > 10**5


def test_the_paper_s_findings_hold_where_the_curves_say_so():
    found = verdicts(SEP, EP, VI)
    assert [verdict.holds for verdict in found] == [True, True, True, True]
    assert found[0].evidence == "2.05 % and 0.0720"
    assert found[-1].evidence == "SEP 20 s, EP 30 s, VI 70 s"


@pytest.mark.parametrize(("error", "nll"), [(0.0209, 0.07), (0.02, 0.0726)])
def test_sep_has_to_be_below_both_figures(error, nll):
    assert not verdicts(record("sep", (150.0, nll, error)), EP, VI)[0].holds


def test_ours_is_chosen_by_the_rows_held_out():
    records = [ours("a", 0.060, "test"), ours("b", 0.065, "test"),
               ours("a", 0.080, "validation"), ours("b", 0.075, "validation")]  # fmt: skip
    (found,) = verdicts(*records)
    assert found.evidence == "b: 1.80 % and 0.0650"
    (found,) = verdicts(*records[:2])
    assert found.evidence.startswith("a:")


def test_validation_rows_are_in_a_table_of_their_own():
    shown = mnist.summarize([SEP, ours("a", 0.08, "validation")], CONFIG, FOLDER)
    test, held_out = shown.text.split("### ")[1:]
    assert "0.0720" in test
    assert "0.0800" not in test
    assert "0.0800" in held_out
    assert shown.verdicts == []
