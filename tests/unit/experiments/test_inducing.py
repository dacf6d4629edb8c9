from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from experiments.experiment import read_config
from experiments.inducing import problem as square
from experiments.inducing import run as inducing

FOLDER = Path(__file__).parents[3] / "experiments" / "inducing"


@pytest.mark.parametrize("lengthscale", [1.0, 0.5])
def test_the_series_is_the_kernel(lengthscale):
    functions = square.draw(0, 30, 0, lengthscale, 1.0, 0.0).functions
    x = np.linspace(-2.5, 2.5, 30) / lengthscale
    phi = square.features(x, functions.weights.shape[-1])
    np.testing.assert_allclose(phi @ phi.T, np.exp(-0.5 * (x[:, None] - x) ** 2), atol=1e-14)


def test_functions_have_the_covariance_of_the_prior():
    X = np.random.default_rng(0).uniform(-2.5, 2.5, (6, 2))
    draws = np.concatenate([square.draw(seed, 1, 0, 1.0, 2.0, 0.0).functions(X) for seed in range(700)], axis=1)
    expected = 2.0 * np.exp(-0.5 * cdist(X, X) ** 2)
    np.testing.assert_allclose(draws @ draws.T / draws.shape[1], expected, atol=0.25)


def test_without_noise_the_label_is_the_largest_function():
    problem = square.draw(3, 100, 50, 1.0, 1.0, 0.0)
    assert (problem.X.shape, problem.y_test.shape) == ((100, 2), (50,))
    assert np.abs(problem.X).max() <= 2.5
    np.testing.assert_array_equal(problem.y, problem.functions(problem.X).argmax(1))


def test_the_boundary_of_a_half_plane():
    places = square.grid(10)
    found = square.boundary((places[:, 0] > 0).astype(np.int64), 10)
    np.testing.assert_allclose(found[:, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.sort(found[:, 1]), np.unique(places[:, 1]))
    assert square.distance(np.array([[[1.0, 0.25], [-2.0, 0.25], [9.0, 0.25]]]), found) == pytest.approx(2.0)


def test_what_is_outside():
    assert square.outside(np.array([[[0.0, 0.0], [2.6, 0.0], [0.0, -3.0], [2.4, 2.4]]])) == 0.5


def test_chains_of_points_count_as_one():
    apart = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]]
    chain = [[0.0, 0.0], [0.09, 0.0], [0.18, 0.0], [2.0, 2.0]]
    assert square.distinct(np.array([apart]), 0.1) == 1.0
    assert square.distinct(np.array([chain]), 0.1) == 0.5
    assert square.distinct(np.array([apart, chain]), 0.1) == 0.75
    assert square.distinct(np.array([[[0.0, 0.0]]]), 0.1) == 1.0


def small(**changes):
    return read_config(FOLDER, smoke=True) | changes


def test_all_methods_start_at_the_same_rows():
    starts = [inducing._start(job) for job in inducing.jobs(small(inducing=[4]))]
    assert starts[0].shape == (square.CLASSES, 4, 2)
    for start in starts[1:]:
        np.testing.assert_array_equal(start, starts[0])
    assert len(np.unique(starts[0].reshape(-1, 2), axis=0)) > 4


def test_only_vi_has_batches_and_no_job_shares_a_name_with_what_is_found():
    jobs = inducing.jobs(small(methods=["gfitc", "vi"], inducing=[2]))
    assert [job["batch_size"] for job in jobs] == [None, 20]
    found = inducing.run(jobs[0])
    assert not set(found) & set(jobs[0])
    assert np.shape(found["points"]) == np.shape(found["start"]) == (3, 2, 2)
    assert len(found["labels"]) == 20 * 20
    assert set(found["labels"]) <= set("012")


def made_up(config, errors, places, nll=0.5):
    """Records with these errors by method and M, points that are random, stacked or on the boundary, VI's NLL 1."""
    records = []
    for job in inducing.jobs(config):
        start, M = inducing._start(job), job["inducing"]
        edge = inducing._boundary(job)
        points = {
            "start": start,
            "stacked": np.repeat(start[:, : M // 2], 2, axis=1),
            "edge": edge[: 3 * M].reshape(3, M, 2),
        }[places[job["method"]]]
        of_method = {"error": errors[job["method"]][M], "nll": nll if job["method"] in inducing.EP_FAMILY else 1.0}
        found = of_method | {"seconds": 1.0, "labels": "012" + "0" * 397}
        records.append(job | found | {"start": start.tolist(), "points": points.tolist()})
    return records


def test_verdicts_follow_the_records():
    pytest.importorskip("matplotlib")
    config = small(inducing=[2, 4], many=4, few=2, apart=0.05, near_best=0.08, radius=1e-3)
    family = {method: {2: 0.1, 4: 0.03} for method in inducing.EP_FAMILY}
    errors = family | {"vi": {2: 0.3, 4: 0.05}, "vi-natural": {2: 0.3, 4: 0.05}}
    places = dict.fromkeys(inducing.EP_FAMILY, "stacked") | {"vi": "edge", "vi-natural": "start"}
    shown = inducing.summarize(made_up(config, errors, places), config, FOLDER)
    assert [v.holds for v in shown.verdicts] == [True, True, True, True, True, True, False]
    assert "GFITC 0.5, EP 0.5, SEP 0.5, VI 1, at the start 1" in shown.verdicts[0].evidence
    assert shown.verdicts[4].evidence == "GFITC 0.5, EP 0.5, SEP 0.5, VI 1; mean over M = 2"
    assert shown.verdicts[5].evidence == "M = GFITC 2, EP 2, SEP 2, VI 4 for 0.11"
    assert set(shown.figures) == {"inducing", "inducing-measures"}
    assert len(shown.figures["inducing"].axes) == 5 * 2

    swapped = dict.fromkeys(inducing.EP_FAMILY, "start") | {"vi": "stacked", "vi-natural": "start"}
    judged = inducing.summarize(made_up(config, errors, swapped, nll=1.5), config, FOLDER).verdicts
    assert [judged[i].holds for i in (0, 1, 4)] == [False, False, False]


def test_few_points_on_top_of_each_other_do_not_count():
    """Half of them are: stacked for a share up to a half, not beyond."""
    pytest.importorskip("matplotlib")
    config = small(inducing=[4], many=4, few=4, near_best=0.08, radius=1e-3)
    errors = {method: {4: 0.1} for method in config["methods"]}
    records = made_up(config, errors, dict.fromkeys(config["methods"], "stacked"))
    for apart, holds in ((0.4, [True, False]), (0.6, [False, True])):
        judged = inducing.summarize(records, config | {"apart": apart}, FOLDER).verdicts
        assert [v.holds for v in judged[:2]] == holds


def test_half_a_run_is_shown_without_a_verdict():
    pytest.importorskip("matplotlib")
    config = small(inducing=[2, 4])
    errors = {method: {2: 0.1, 4: 0.1} for method in config["methods"]}
    records = made_up(config, errors, dict.fromkeys(config["methods"], "start"))
    shown = inducing.summarize([r for r in records if r["method"] == "ep"], config, FOLDER)
    assert not shown.verdicts
    assert "| M | EP | at the start |" in shown.text
