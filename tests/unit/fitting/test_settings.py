"""The arguments: what each may be, what an error says, and the plan they amount to."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.fitting.settings import (
    BATCH_SIZE,
    FIXED_INDUCING,
    FIXED_SWEEPS,
    FIXED_TOL,
    FIXED_WORK,
    FOLDS,
    FULL_BATCH_ROWS,
    LEAST_HELD_OUT,
    MOST_HELD_OUT,
    MOST_SEARCHED,
    PRIORS,
    SEARCHED_INDUCING,
    SEARCHED_STEPS,
    STEP_ROWS,
    STEPS,
    TABLE_RELEVANCE,
    Settings,
    plan_fit,
)
from cavity.inference import METHODS
from cavity.kernels import BY_NAME, RBF
from cavity.training.optimizers import Adam, AdaptiveRate
from tests.problems import random_problem

# argument: values that it cannot take, and a word of what the error must say that it can
BAD = {
    "method": (["gp", "EP", None, 1, "Auto"], "'auto', 'ep'"),
    "n_inducing": ([0, -1, 0.0, 1.5, True, "10", None, math.nan], "positive int"),
    "init": (["k-means", None], "'kmeans'"),
    "share_kernel": (["yes", 2, None], "True"),
    "share_inducing": (["yes", 2, None], "True"),
    "learn_kernel": (["yes", None], "True"),
    "learn_inducing": (["yes", None], "True"),
    "priors": (["weak", {"amplitude": (1.0, 1.0)}, {"noise": 1.0}, {"noise": (0.1, 0.0)}, {"noise": (-1, 1.0)},
                {"noise": (0.1, 1.0, 1.0, 1.0)}, {"spread": 0.0}, {"spread": (0.5,)}, {"relevance": -1.0},
                {"relevance": (None, 0.5)}], "dict"),
    "scaling": (["minmax", True], "'quantile'"),
    "calibrate": ([0, 1, -3, 2.5, "yes", None, math.nan], "at least 2"),
    "batch_size": ([0, 2.5, "all", True], "positive int"),
    "max_epochs": ([0, -3, 1.5, None], "positive int"),
    "max_seconds": ([0, -1.0, "10", math.inf], "positive number"),
    "tol": ([-1e-3, None, math.nan], "at or above 0"),
    "optimizer": (["sgd", None], "'adam'"),
    "learning_rate": ([0.0, -0.1, math.nan], "positive number"),
    "damping": ([0.0, 1.5, "half"], "(0, 1]"),
    "alpha": ([0.0, -0.5, 1.5, math.nan, True, None, "half"], "(0, 1]"),
    "updates": (["both", None], "'outer'"),
    "device": ([0, None], "'cpu'"),
    "memory_limit": ([0, -1.0, "8GB", math.nan, True], "bytes, such as 8e9"),
    "dtype": (["float16", np.float64], "'float32'"),
    "checkpoint": ([1, "", b"folder"], "a folder"),
    "checkpoint_seconds": ([-1.0, None, math.inf], "at or above 0"),
    "distributed": (["yes", None, 1], "True, False, 'auto'"),
    "verbose": (["loud", None, 0.5], "silent"),
}  # fmt: skip
GOOD = {
    "n_inducing": [1, 200, 0.1, 1.0, np.int64(5), np.float64(0.5)],
    "method": ["auto", "ep", "sep", "gfitc", "vi"],
    "priors": [None, "default", {}, {"lengthscale": (None, 0.5), "noise": (0.1, 2.0, math.inf), "spread": 0.3},
               {"relevance": 0.5}, {"relevance": 1, "spread": math.inf}],
    "calibrate": ["auto", True, False, 2, 10, np.int64(5)],
    "scaling": [None, "standard", "common", "quantile", "auto"],
    "batch_size": [None, "auto", 1, np.int64(64)],
    "max_seconds": [None, 1, 0.5],
    "memory_limit": [None, 10**9, 8e9, math.inf],
    "tol": [0, 1e-3],
    "damping": [None, 1, 0.1],
    "alpha": [1, 1e-3, 0.5, np.float64(1.0)],
    "distributed": [True, False, "auto"],
    "verbose": [0, 1, 2, True],
}  # fmt: skip


def arguments(**changes):
    return Settings(**GPClassifier(**changes).get_params(deep=False))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, _) in BAD.items() for value in values])
def test_an_error_names_the_argument_the_value_and_what_is_accepted(name, value):
    with pytest.raises(ValueError, match=re.escape(f"got {value!r}")) as raised:
        arguments(**{name: value})
    assert str(raised.value).startswith(f"{name} must be ")
    assert BAD[name][1] in str(raised.value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_what_is_accepted_passes(name, value):
    arguments(**{name: value})


def test_defaults_pass():
    arguments()
    Settings(**GPClassifier.paper().get_params(deep=False))


def test_a_kernel_must_be_one():
    for kernel in (None, RBF(), *BY_NAME):
        arguments(kernel=kernel)
    accepted = r"kernel must be one of \['rbf', .*'linear'\], a cavity.kernels.Kernel or None, got "
    with pytest.raises(ValueError, match=accepted + "'RBF'"):
        arguments(kernel="RBF")
    for wrong in (RBF, 3, ["rbf"]):
        with pytest.raises(TypeError, match=accepted):
            arguments(kernel=wrong)


def test_combinations_that_contradict_each_other():
    with pytest.raises(ValueError, match=r"updates='outer'.*batch_size=None"):
        arguments(updates="outer", batch_size=10)
    with pytest.raises(ValueError, match=r"optimizer='lbfgs'.*updates='outer'"):
        arguments(optimizer="lbfgs")


# --- The plan ---


def plan(n_rows=100, **changes):
    return plan_fit(arguments(**changes), n_rows, 7)


def test_auto_batches_start_where_data_are_large():
    assert plan(FULL_BATCH_ROWS).training.batch_size is None
    assert plan(FULL_BATCH_ROWS + 1).training.batch_size == BATCH_SIZE
    assert plan(FULL_BATCH_ROWS + 1, updates="outer").training.batch_size is None


def test_a_batch_of_everything_is_no_batch():
    assert plan(100, batch_size=100).training.batch_size is None
    assert plan(100, batch_size=99).training.batch_size == 99


def test_optimizer_follows_the_updates():
    assert plan().optimizer == "adam"
    assert plan(updates="outer").optimizer == "lbfgs"
    assert plan(updates="outer", optimizer="adam").optimizer == "adam"


def test_what_is_given_is_kept():
    given = {"max_epochs": 3, "max_seconds": 2.0, "tol": 0.5, "damping": 0.3, "learning_rate": 0.7}
    choice = plan(updates="inner-exact", calibrate=False, **given)
    found = choice.training
    assert (found.updates, found.max_epochs, found.max_seconds, found.tol) == ("inner-exact", 3, 2.0, 0.5)
    assert (found.damping, choice.learning_rate, found.seed) == (0.3, 0.7, 7)


@pytest.mark.parametrize(("calibrate", "seconds"), [(False, 12.0), (3, 3.0), (5, 2.0), (True, 12.0 / (1 + FOLDS))])
def test_time_is_shared_among_the_fit_and_those_that_calibrate_it(calibrate, seconds):
    assert plan(max_seconds=12.0, calibrate=calibrate, n_inducing=100).training.max_seconds == pytest.approx(seconds)
    assert plan(calibrate=calibrate).training.max_seconds is None


FIXED = {"learn_kernel": False, "learn_inducing": False}


@pytest.mark.parametrize(
    ("changes", "folds"),
    [
        ({}, FOLDS),
        ({"learn_kernel": False}, FOLDS),
        (FIXED, 0),
        ({"batch_size": 50}, 0),
        ({"calibrate": False}, 0),
        ({"calibrate": 5}, 5),
        ({"calibrate": True, "batch_size": 50}, 0),
        ({"calibrate": True, **FIXED}, FOLDS),
    ],
)
def test_cross_fitting_is_for_all_rows_at_once_or_a_number_of_folds(changes, folds):
    assert plan(n_inducing=100, **changes).folds == folds
    assert plan(FULL_BATCH_ROWS + 1, **changes).folds == (folds if changes.get("calibrate") == 5 else 0)


@pytest.mark.parametrize(
    ("n_rows", "changes", "held_out"),
    [
        (FULL_BATCH_ROWS + 5, {}, (FULL_BATCH_ROWS + 5) // 5),
        (6000, {}, LEAST_HELD_OUT),
        (20_000, {}, 1000),
        (10**7, {}, MOST_HELD_OUT),
        (10**7, {"calibrate": True, **FIXED}, MOST_HELD_OUT),
        (10**7, FIXED, 0),
        (10**7, {"calibrate": False}, 0),
        (10**7, {"calibrate": 3}, 0),
        (FULL_BATCH_ROWS, {}, 0),
    ],
)
def test_many_rows_spare_a_few_for_calibration(n_rows, changes, held_out):
    assert plan(n_rows, **changes).n_held_out == held_out


@pytest.mark.parametrize(("n_rows", "expected"), [(1000, 0.03), (10_000, 0.02), (10**7, 0.002)])
def test_a_step_of_vi_is_as_long_as_the_share_of_its_batch_within_bounds(n_rows, expected):
    assert plan(n_rows, method="vi", batch_size=200).training.damping == expected
    assert plan(n_rows, method="vi", batch_size=200, damping=0.5).training.damping == 0.5


def test_auto_is_ep_on_all_rows_and_sep_in_batches():
    assert plan(FULL_BATCH_ROWS).method == "ep"
    assert plan(FULL_BATCH_ROWS + 1).method == "sep"
    assert plan(100, batch_size=50).method == "sep"
    assert plan(100, batch_size=100).method == "ep"
    assert plan(10**6, batch_size=None).method == "ep"
    assert plan(10**6, updates="outer").method == "ep"


@pytest.mark.parametrize("batch_size", [None, 50])
def test_auto_is_planned_as_the_method_it_stands_for(batch_size):
    found = plan(batch_size=batch_size)
    named = plan(batch_size=batch_size, method="ep" if batch_size is None else "sep")
    assert isinstance(found.inference(), type(named.inference()))
    assert replace(found, settings=named.settings) == named


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_is_named_is_kept(method):
    for n_rows in (100, FULL_BATCH_ROWS + 1):
        assert isinstance(plan(n_rows, method=method).inference(), METHODS[method])
        assert plan(n_rows, method=method).method == method


def test_nothing_to_learn_asks_for_a_tight_fixed_point():
    fixed = plan(learn_kernel=False, learn_inducing=False).training
    assert fixed.sweep_tol <= 1e-9
    assert fixed.max_epochs >= 1000
    assert plan(learn_kernel=False).training.sweep_tol > fixed.sweep_tol


def test_paper_settings_in_full_batch():
    """Damping 0.5 × 0.99 an iteration, rates from 0.01, 249 steps, no priors."""
    paper = GPClassifier.paper("ep", n_inducing=0.1)
    choice = plan_fit(Settings(**paper.get_params(deep=False)), 5000, 0)
    assert (choice.training.damping, choice.training.damping_decay, choice.training.batch_size) == (0.5, 0.99, None)
    assert (choice.optimizer, choice.learning_rate, choice.training.tol) == ("paper", 0.01, 0.0)
    assert (choice.training.max_epochs, choice.folds) == (249, 0)
    assert (paper.priors, paper.scaling) == (None, "standard")
    optimizer = choice.stepwise_optimizer(random_problem().model(), 1.0)
    assert isinstance(optimizer, AdaptiveRate)


def test_paper_settings_in_batches():
    """Damping 1, Adam with 1e-3 and no decay."""
    choice = plan_fit(Settings(**GPClassifier.paper(batch_size=200).get_params(deep=False)), 5000, 0)
    assert (choice.training.damping, choice.training.damping_decay, choice.training.batch_size) == (1.0, 1.0, 200)
    assert choice.learning_rate == 1e-3
    model = random_problem().model()
    optimizer, theta = choice.stepwise_optimizer(model, 1.0), model.start()
    assert isinstance(optimizer, Adam)
    steps = [float((optimizer.step(theta, theta + 10, progress) - theta).abs().max()) for progress in (0.0, 1.0)]
    assert steps == pytest.approx([1e-3, 1e-3], rel=1e-6)


def test_paper_changes_override():
    assert GPClassifier.paper(noise=0.3).noise == 0.3


def test_paper_rate_of_a_length_scale():
    """The authors move log(1/ℓ²): rate 0.01 there is a step of a quarter of it in log ℓ."""
    model = random_problem().model()
    optimizer = plan_fit(Settings(**GPClassifier.paper().get_params(deep=False)), 100, 0).stepwise_optimizer(model, 1.0)
    moved = model.split(optimizer.step(model.start(), model.start() * 0 + 1.0, 0.0) - model.start())
    assert float(moved["kernel.log_lengthscale"].max()) == pytest.approx(0.0025)
    for name in ("kernel.log_variance", "log_noise", "Z"):
        assert float(moved[name].max()) == pytest.approx(0.01)


def test_default_adam_decays():
    model = random_problem().model()
    optimizer, theta = plan().stepwise_optimizer(model, 1.0), model.start()
    first, last = (float((optimizer.step(theta, theta + 10, p) - theta).abs().max()) for p in (0.0, 1.0))
    assert last < 0.05 * first


def test_a_gradient_that_is_small_for_so_many_rows_makes_a_small_step():
    """Adam's ε is per row; there may be no row yet."""
    model = random_problem().model()
    theta, steps = model.start(), []
    for n_rows in (0.0, 1.0, 1e6):
        optimizer = plan().stepwise_optimizer(model, n_rows)
        steps.append(float((optimizer.step(theta, torch.full_like(theta, 1e-2), 0.0) - theta).abs().max()))
    assert steps[0] == steps[1] == pytest.approx(2.0 * steps[2], rel=1e-5)


def test_prior_spec():
    assert arguments(priors=None).log_priors() == {}
    assert arguments(priors="default").log_priors() == PRIORS
    assert arguments(priors="default").log_priors(is_table=True) == PRIORS | {"relevance": TABLE_RELEVANCE}
    assert arguments(priors={"noise": (0.1, 1.0)}).log_priors(is_table=True) == {"noise": (0.1, 1.0)}


@pytest.mark.parametrize(
    ("given", "n_rows", "expected"), [(50, 10, 50), (0.1, 99, 10), (1.0, 30, 30), (1, 30, 1), (1e-3, 99, 1)]
)
def test_inducing_count(given, n_rows, expected):
    assert plan(n_rows, n_inducing=given).n_inducing == expected


# --- A search on some rows ---


OPEN = [{}, {"method": "ep"}, {"kernel": "matern32"}, {"scaling": "common"}, {"calibrate": False}, {"max_seconds": 1.0}]


@pytest.mark.parametrize("changes", OPEN, ids=lambda changes: next(iter(changes), "defaults"))
def test_a_table_too_large_for_a_full_gp_is_searched(changes):
    small, large = plan(FULL_BATCH_ROWS, **changes), plan(FULL_BATCH_ROWS + 1, **changes)
    for found in (small, large):
        assert found.searches
        assert not found.is_full_gp
    assert (small.training.batch_size, small.folds, small.n_held_out) == (None, 0, 0)
    assert (small.training.max_epochs, small.training.sweep_tol) == (FIXED_SWEEPS, FIXED_TOL)
    assert small.training.final_sweeps == 0
    assert (large.n_inducing, large.training.batch_size, large.folds) == (SEARCHED_INDUCING, BATCH_SIZE, 0)
    assert large.n_held_out == (0 if changes.get("calibrate") is False else (FULL_BATCH_ROWS + 1) // 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_inducing": 50},
        {"kernel": RBF()},
        {"method": "sep"},
        {"max_epochs": 10},
        {"batch_size": 100},
        {"calibrate": 5},
        {"learn_kernel": False},
        {"share_inducing": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_who_says_how_to_learn_gets_no_search(changes):
    for n_rows in (100, FULL_BATCH_ROWS, FULL_BATCH_ROWS + 1):
        assert not plan(n_rows, **changes).searches


@pytest.mark.parametrize("dtype", ["auto", "float64", "float32"])
def test_the_precision_of_mini_batches_leaves_how_to_learn_open(dtype):
    assert plan(FULL_BATCH_ROWS + 1, dtype=dtype).searches
    assert plan(FULL_BATCH_ROWS, dtype=dtype).searches == (dtype != "float32")  # EP at fixed points needs double


@pytest.mark.parametrize(
    ("n_rows", "n_features", "dtype"),
    [
        (FULL_BATCH_ROWS + 1, MOST_SEARCHED + 1, "float32"),
        (FULL_BATCH_ROWS + 1, MOST_SEARCHED, "float64"),
        (FULL_BATCH_ROWS, MOST_SEARCHED + 1, "float64"),
    ],
)
def test_single_precision_is_for_mini_batches_of_many_features(n_rows, n_features, dtype):
    for given in ("auto", "float64"):
        found = plan_fit(arguments(device="cpu", dtype=given), n_rows, 0, n_features=n_features).dtype
        assert found == (dtype if given == "auto" else given)


def test_fixed_inducing_points_are_as_many_as_the_work_allows():
    fewest, most = FIXED_INDUCING
    counts = {n_classes: plan_fit(arguments(), 2000, 0, n_classes).n_inducing for n_classes in (2, 4, 8, 100)}
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert fewest == counts[100] < counts[2] <= most
    for n_classes, count in counts.items():
        assert count == fewest or n_classes * 2000 * count**2 <= FIXED_WORK
        assert count == most or n_classes * 2000 * (count + 1) ** 2 > FIXED_WORK


def test_many_features_with_mini_batches_get_no_search():
    found = [plan_fit(arguments(), FULL_BATCH_ROWS + 1, 0, 2, n).searches for n in (MOST_SEARCHED, MOST_SEARCHED + 1)]
    assert found == [True, False]
    assert plan_fit(arguments(), FULL_BATCH_ROWS, 0, 2, MOST_SEARCHED + 1).searches


@pytest.mark.parametrize(
    ("n_rows", "steps"), [(2500, SEARCHED_STEPS), (STEP_ROWS * 1000, 1000), (10**7, STEPS)], ids=["few", "more", "most"]
)
def test_after_a_search_the_steps_grow_with_the_rows(n_rows, steps):
    assert plan(n_rows).training.max_epochs == math.ceil(steps * BATCH_SIZE / n_rows)
    assert plan(n_rows, n_inducing=50).training.max_epochs == math.ceil(STEPS * BATCH_SIZE / n_rows)


def test_alpha_reaches_the_method_and_other_methods_refuse_it():
    for method in ("auto", "ep", "sep"):
        assert plan_fit(arguments(method=method, alpha=0.5), 100, 0).inference().alpha == 0.5
    for method in ("gfitc", "vi"):
        assert plan_fit(arguments(method=method), 100, 0).inference().alpha == 1.0
        with pytest.raises(ValueError, match=f"alpha must be 1 with method='{method}', got 0.5"):
            arguments(method=method, alpha=0.5)
    assert GPClassifier.paper().alpha == 1.0
