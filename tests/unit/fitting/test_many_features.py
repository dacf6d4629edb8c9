"""Mini-batches on many features: one scale for pixels, and VI where labels are clear."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from cavity.fitting.many_features import GPU_BATCH, GPU_INDUCING, for_many_features
from cavity.fitting.settings import BATCH_SIZE, FULL_BATCH_ROWS, MOST_SEARCHED, N_INDUCING, plan_fit
from tests.unit.fitting.test_settings import arguments

N_MANY, D_MANY = FULL_BATCH_ROWS + 1, MOST_SEARCHED + 1


def pixels(noise, n_rows=300, scale=1.0):
    """Rows of two kinds of picture, and labels of which a share is random."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % 2
    rows = rng.uniform(0.0, 1.0, (n_rows, D_MANY)) + np.where(np.arange(D_MANY) % 2 == y[:, None], 1.0, 0.0)
    flipped = rng.uniform(size=n_rows) < noise
    return scale * rows, np.where(flipped, rng.integers(0, 2, n_rows), y)


@pytest.mark.parametrize(("noise", "method"), [(0.0, "vi"), (0.2, "vi"), (0.9, "auto")])
def test_clear_labels_of_many_features_are_for_vi(noise, method):
    found = for_many_features(arguments(), *pixels(noise), N_MANY, on_gpu=False)
    assert found.method == method
    assert (found.scaling, found.init, found.n_inducing) == ("common", "kmeans-per-class", N_INDUCING)
    assert not plan_fit(found, N_MANY, 0, 2, D_MANY).searches


@pytest.mark.parametrize(("n_rows", "steps"), [(N_MANY, 2000), (50_000, 2500), (10**6, 3000)])
def test_steps_grow_with_the_rows_of_many_features(n_rows, steps):
    found = for_many_features(arguments(), *pixels(0.0), n_rows, on_gpu=True)
    assert found.n_inducing == GPU_INDUCING
    assert found.max_epochs == math.ceil(steps * BATCH_SIZE / n_rows)
    assert found.batch_size == GPU_BATCH


def test_the_settings_of_the_experiment_on_a_gpu_are_the_defaults():
    """`experiments/pixels/config.toml` names them all: 55,000 rows for training."""
    config = tomllib.loads(Path("experiments/pixels/config.toml").read_text())
    (fit,) = (f for f in config["fits"] if (f["name"], f.get("device")) == ("default", "cuda"))
    found = for_many_features(arguments(), *pixels(0.0), 55_000, on_gpu=True)
    assert {name: getattr(found, name) for name in fit["settings"]} == fit["settings"]


@pytest.mark.parametrize("size", [None, 300])
def test_a_given_batch_size_stays_on_a_gpu(size):
    found = for_many_features(arguments(batch_size=size), *pixels(0.0), N_MANY, on_gpu=True)
    assert found.batch_size == size


@pytest.mark.parametrize(
    "changes", [{"n_inducing": 100}, {"learning_rate": 0.1}, {"max_epochs": 5}, {"method": "sep"}, {"init": "random"}]
)
def test_a_wish_for_how_to_learn_is_met_with_many_features(changes):
    given = arguments(**changes)
    assert for_many_features(given, *pixels(0.0), N_MANY, on_gpu=False) is given


def test_few_features_or_rows_have_no_other_settings():
    rows, y = pixels(0.0)
    assert for_many_features(arguments(), rows[:, :-1], y, N_MANY, on_gpu=False) == arguments()
    assert for_many_features(arguments(), rows, y, FULL_BATCH_ROWS, on_gpu=False) == arguments()


def test_features_of_many_kinds_keep_their_scaling_and_gaps_are_no_obstacle():
    rows, y = pixels(0.0, scale=10.0 ** (np.arange(D_MANY) % 7))
    rows[::5, 3] = np.nan
    found = for_many_features(arguments(), rows, y, N_MANY, on_gpu=False)
    assert (found.method, found.scaling) == ("vi", "default")
    assert for_many_features(arguments(scaling="standard"), *pixels(0.0), N_MANY, on_gpu=False).scaling == "standard"
