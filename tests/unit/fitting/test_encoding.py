"""Input scaling: invertible, weighted, safe for values of any size; and the encoding of whole tables."""

from datetime import datetime, time, timedelta

import numpy as np
import pytest

from cavity.data.schema import DATE, DAY, LEFT_OUT, Column, Schema, find_schema
from cavity.data.surveys import FOLDS, CellStatistics, row_folds
from cavity.fitting.encoding import (
    CYCLES,
    KNOTS,
    LEAST_OF_A_KIND,
    LEAST_VARIANCE,
    MOST_INDICATORS,
    POWER_VALUES,
    RARE_ROWS,
    SIMILAR_RANGE,
    Group,
    Scaler,
    Unscaled,
    encode_training,
    fit_encoding,
    fit_scaler,
    has_common_unit,
    most_features,
    standard_scaler,
)
from cavity.numerics.limits import LARGEST_INPUT
from tests.models import mixed_table

BOTH = ["standard", "quantile"]
ALL = [*BOTH, "power", "common"]


def skewed(n_rows=40, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return scale * np.exp(rng.standard_normal((n_rows, 3))) * [1.0, 100.0, 1e-3]


def fitted(scaling, X, weight=None):
    return fit_scaler(scaling, X, np.ones(len(X)) if weight is None else weight)


@pytest.mark.parametrize("scaling", [*ALL, None])
def test_inverse_undoes_transform(scaling):
    X, new = skewed(), skewed(seed=1) * 3 - 1.0  # beyond the training range too
    scaler = fitted(scaling, X)
    assert isinstance(scaler, Scaler)
    for rows in (X, new):
        np.testing.assert_allclose(scaler.inverse(scaler.transform(rows)), rows, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scaling", [*ALL, None])
def test_inverse_takes_inducing_points_of_all_classes(scaling):
    X = skewed()
    scaler, Z = fitted(scaling, X), X[:12].reshape(2, 6, 3)
    scaled = scaler.transform(X[:12]).reshape(2, 6, 3)
    np.testing.assert_allclose(scaler.inverse(scaled), Z, rtol=1e-10)


def test_standard_has_mean_zero_and_sd_one():
    scaled = fitted("standard", skewed()).transform(skewed())
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(scaled.std(0, ddof=1), 1, rtol=1e-13)


def test_quantiles_are_those_of_a_uniform_with_mean_zero_and_sd_one():
    X = skewed(400)
    scaled = fitted("quantile", X).transform(X)
    workers = (np.argsort(np.argsort(X, axis=0), axis=0) + 0.5) / 400
    np.testing.assert_allclose(scaled, (workers - 0.5) * np.sqrt(12), rtol=0, atol=1e-12)


def test_quantiles_do_not_see_a_monotone_change_of_units():
    X = skewed()
    a, b = fitted("quantile", X).transform(X), fitted("quantile", np.log(X)).transform(np.log(X))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_a_power_transform_is_that_of_scikit_learn():
    from sklearn.preprocessing import PowerTransformer

    X = skewed(KNOTS)
    z = fitted("standard", X).transform(X)
    expected = PowerTransformer().fit_transform(z) * np.sqrt(1.0 - 1.0 / len(X))  # whose sd has n − 1
    np.testing.assert_allclose(fitted("power", X).transform(X), expected, rtol=0, atol=0.01)


def test_the_exponent_of_a_power_transform_is_the_most_likely():
    """Of a normal distribution of the transformed values, which are those of a known exponent."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((KNOTS, 1))
    for X in (np.exp(0.5 * normal), -np.exp(0.5 * normal)):
        scaled = fitted("power", X).transform(X)
        assert abs(np.mean(scaled**3)) < 0.1 < abs(np.mean(fitted("standard", X).transform(X) ** 3))
    assert np.corrcoef(fitted("power", normal).transform(normal).ravel(), normal.ravel())[0, 1] > 0.999


def test_a_power_transform_of_many_values_is_found_from_some_of_them():
    X = skewed(3 * POWER_VALUES)
    some, every = fitted("power", X[: POWER_VALUES // 2]), fitted("power", X)
    at = np.quantile(X, np.linspace(0.02, 0.98, 40), axis=0)
    np.testing.assert_allclose(every.transform(at), some.transform(at), atol=0.1)


def test_many_distinct_values_share_a_bounded_number_of_knots():
    X = skewed(5 * KNOTS)
    scaler = fitted("quantile", X)
    assert max(len(k) for k in scaler.knots) <= KNOTS
    scaled = scaler.transform(X)
    workers = (np.argsort(np.argsort(X, axis=0), axis=0) + 0.5) / len(X)
    np.testing.assert_allclose(scaled, (workers - 0.5) * np.sqrt(12), rtol=0, atol=4 / KNOTS)


@pytest.mark.parametrize("scaling", ALL)
def test_a_weight_counts_as_copies(scaling):
    X, weight = skewed(), np.arange(40) % 4 + 1
    weighted, repeated = fitted(scaling, X, weight.astype(float)), fitted(scaling, np.repeat(X, weight, axis=0))
    new = skewed(seed=1)
    np.testing.assert_allclose(weighted.transform(new), repeated.transform(new), rtol=1e-11, atol=1e-12)
    assert not np.allclose(weighted.transform(new), fitted(scaling, X).transform(new), rtol=1e-3)


@pytest.mark.parametrize("scaling", BOTH)
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e150, 1e-150])
def test_a_constant_feature_becomes_zero(scaling, value):
    X = np.column_stack([np.full(7, value), np.arange(7.0)])
    scaler = fitted(scaling, X)
    np.testing.assert_allclose(scaler.transform(X)[:, 0], 0, atol=1e-14 * max(1.0, abs(value)))
    np.testing.assert_allclose(scaler.inverse(scaler.transform(X)), X, rtol=1e-14)
    if abs(value) < 1e100:
        assert scaler.transform(np.array([[value + 2.0, 0.0]]))[0, 0] == pytest.approx(2.0)


@pytest.mark.parametrize("scaling", ALL)
@pytest.mark.parametrize("size", [1e150, 1e-150, 1e300, 1e-300])
def test_values_of_any_size_scale_as_ordinary_ones(scaling, size):
    X = skewed()
    huge = fitted(scaling, size * X)
    np.testing.assert_allclose(huge.transform(size * X), fitted(scaling, X).transform(X), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(huge.inverse(huge.transform(size * X)), size * X, rtol=1e-10)


@pytest.mark.parametrize("scaling", ALL)
def test_new_values_far_outside_stay_finite_when_squared(scaling):
    scaled = fitted(scaling, skewed()).transform(np.array([[1e308, -1e308, 1e200]]))
    assert np.isfinite(scaled**2).all()
    assert np.abs(scaled).max() == LARGEST_INPUT
    assert np.sign(scaled).tolist() == [[1.0, -1.0, 1.0]]


@pytest.mark.parametrize("scaling", ALL)
def test_strictly_monotone_also_beyond_the_training_range(scaling):
    X = skewed()
    low, high = X.min(0), X.max(0)
    grid = low + (high - low) * np.linspace(-2, 3, 501)[:, None]
    assert (np.diff(fitted(scaling, X).transform(grid), axis=0) > 0).all()


def test_quantile_goes_on_with_the_slope_of_standard():
    X = skewed()
    quantile, standard = fitted("quantile", X), fitted("standard", X)
    outside = np.stack([X.max(0) + 1.0, X.max(0) + 3.0])
    np.testing.assert_allclose(
        np.diff(quantile.transform(outside), axis=0), np.diff(standard.transform(outside), axis=0), rtol=1e-9
    )


def test_single_row():
    row = np.array([[3.0, -1.0]])
    for scaling in ALL:
        np.testing.assert_array_equal(fitted(scaling, row).transform(row), [[0, 0]])


def test_no_scaling_is_the_identity_and_refuses_what_overflows():
    scaler = fitted(None, skewed())
    np.testing.assert_array_equal(scaler.transform(skewed()), skewed())
    with pytest.raises(
        ValueError, match=r"scaling=None needs values of X up to .*, got 1e\+150: use scaling='standard'"
    ):
        scaler.transform(np.array([[1.0, -1e150, 2.0]]))


# --- One scale for all features ---


def pixels(n_rows=40, seed=0):
    """Features of one kind, whose standard deviations are 1 to 2."""
    return 10.0 + np.random.default_rng(seed).standard_normal((n_rows, 6)) * np.linspace(1.0, 2.0, 6)


def test_a_common_scale_keeps_the_proportions():
    X = pixels()
    scaled, sd = fitted("common", X).transform(X), X.std(0, ddof=1)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-13)
    np.testing.assert_allclose(scaled.std(0, ddof=1), sd / np.sqrt((sd**2).mean()), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e9])
def test_constant_features_do_not_count_for_the_common_scale(value):
    X = pixels()
    scaler, alone = fitted("common", np.column_stack([X, np.full(40, value)])), fitted("common", X)
    np.testing.assert_array_equal(scaler.transform(np.column_stack([X, np.full(40, value)]))[:, :6], alone.transform(X))
    moved = scaler.transform(np.full((1, 7), value + 2.0))[0, 6]
    assert 0.0 < moved <= 2.0 / alone.sd[0] * (1.0 + 1e-6)  # in the same unit, or a larger one
    if abs(value) < 1e8:
        assert moved == pytest.approx(2.0 / alone.sd[0], rel=1e-6)


@pytest.mark.parametrize("value", [1e9, 1e31, -1e150, 1e308])
def test_a_large_constant_becomes_zero_beside_a_common_scale(value):
    X = np.column_stack([pixels(), np.full(40, value)])
    scaler = fitted("common", X)
    np.testing.assert_allclose(scaler.transform(X)[:, 6], 0, atol=1e-6)
    np.testing.assert_allclose(scaler.inverse(scaler.transform(X)), X, rtol=1e-13)


def test_nothing_but_constants_have_a_common_scale_of_one():
    X = np.tile([3.0, -1.0], (5, 1))
    np.testing.assert_allclose(fitted("common", X).transform(X + 2.0), 2.0, rtol=1e-12)


def test_gaps_do_not_count_for_the_common_scale():
    X = pixels()
    X[::3, 0] = np.nan
    X = np.column_stack([X, np.full(40, np.nan)])  # and a column of nothing else
    scaler, known = fitted("common", X), ~np.isnan(X[:, 0])
    sd = np.array([X[known, 0].std(ddof=1), *X[:, 1:6].std(0, ddof=1)])
    np.testing.assert_allclose(scaler.sd, np.sqrt((sd**2).mean()), rtol=1e-12)
    scaled = scaler.transform(X)
    np.testing.assert_array_equal(scaled[~known, 0], 0.0)
    np.testing.assert_array_equal(scaled[:, 6], 0.0)
    assert np.abs(scaled[known, 0]).max() > 0.5


@pytest.mark.parametrize("size", [1.0, 1e150, 1e-150])
def test_all_rows_of_a_source_give_the_same_common_scale(size):
    X = np.column_stack([size * pixels(), np.full(40, 3.0)])
    scaler = standard_scaler("common", X.mean(0), size * (X / size).std(0, ddof=1), np.abs(X).max(0))
    np.testing.assert_allclose(scaler.transform(X)[:, :6], fitted("common", X).transform(X)[:, :6], rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e300, 1e-300])
def test_similar_ranges_are_a_common_unit_on_any_scale(scale):
    spans = np.array([1.0, 1.0, 1.0, 1.0, 0.99 * SIMILAR_RANGE])
    X = np.linspace(-1.0, 1.0, 11)[:, None] * spans
    assert has_common_unit(scale * X)
    assert has_common_unit(scale * np.column_stack([X, np.full(11, 7.0)]))  # what is constant has no range
    assert not has_common_unit(scale * X * [1.0, 1.0, 1.0, 1.0, 1.1])


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).random((9, LEAST_OF_A_KIND - 1)),
        np.column_stack([np.random.default_rng(0).random((9, LEAST_OF_A_KIND - 1)), np.ones(9)]),
        np.where(np.eye(9) > 0, np.nan, np.random.default_rng(0).random((9, 9))),
        np.zeros((9, 9)),
        np.random.default_rng(0).random((1, 9)),
    ],
    ids=["few", "constant", "gaps", "zeros", "one row"],
)
def test_no_common_unit(X):
    assert not has_common_unit(X)


def test_extreme_ranges_are_compared():
    X = np.random.default_rng(0).choice([-1.7e308, 1.7e308], (20, 6))
    assert has_common_unit(X)
    assert not has_common_unit(X * [1.0, 1.0, 1e-10, 1e-10, 1e-10, 1e-10])


# --- Gaps ---


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_gaps_do_not_count_and_are_filled_with_the_center(scaling):
    X = skewed()
    X[::3, 0] = np.nan
    known = ~np.isnan(X[:, 0])
    scaler, alone = fitted(scaling, X), fitted(scaling, X[known][:, :1])
    np.testing.assert_allclose(scaler.transform(X)[known, 0], alone.transform(X[known][:, :1])[:, 0], rtol=1e-13)
    center = X[known, 0].mean() if scaling is None else 0.0
    np.testing.assert_allclose(scaler.transform(X)[~known, 0], center, rtol=1e-13)


def test_a_table_of_numbers_without_gaps_is_scaled_as_before():
    X, y, weight = skewed(), np.arange(40) % 2, np.ones(40)
    schema = Schema(tuple(Column(j) for j in range(3)))
    for given in (None, schema):
        for scaling in (*ALL, None):
            found = fit_encoding(given, scaling, X, y, weight, 2)
            assert type(found) is type(fitted(scaling, X))
            np.testing.assert_array_equal(found.transform(X), fitted(scaling, X).transform(X))
            np.testing.assert_array_equal(encode_training(found, X), found.transform(X))


def test_a_gap_has_an_indicator_of_its_own():
    X = skewed()
    X[::4, 1] = np.nan
    found = fit_encoding(None, "standard", X, np.zeros(40, np.int64), np.ones(40), 2)
    assert found.groups == (Group(0), Group(1), Group(1, "missing"), Group(2))
    assert found.feature_groups == (0, 1, 2, 3)
    features = found.transform(X)
    np.testing.assert_allclose(features[:, 2].mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(features[:, 2].std(), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(features[::4, 1], 0.0)
    np.testing.assert_allclose(found.inverse(features), X, rtol=1e-10)


def test_a_rare_gap_does_not_get_a_huge_indicator():
    X = np.random.default_rng(0).standard_normal((10_000, 1))
    X[0] = np.nan
    features = fit_encoding(None, "standard", X, np.zeros(10_000, np.int64), np.ones(10_000), 2).transform(X)
    assert np.abs(features[0, 1]) <= 1.0 / np.sqrt(0.5 * LEAST_VARIANCE)


def test_a_column_without_values_is_constant():
    X = skewed()
    X[:, 1] = np.nan
    for scaling in (*BOTH, None):
        found = fit_encoding(None, scaling, X, np.zeros(40, np.int64), np.ones(40), 2)
        assert found.groups == (Group(0), Group(1), Group(2))
        np.testing.assert_array_equal(found.transform(X)[:, 1], 0.0)
        np.testing.assert_allclose(found.inverse(found.transform(X))[:, [0, 2]], X[:, [0, 2]], rtol=1e-10)


def test_a_gap_that_training_did_not_have_becomes_the_center():
    found = fit_encoding(None, "standard", skewed(), np.zeros(40, np.int64), np.ones(40), 2)
    np.testing.assert_array_equal(found.transform(np.full((1, 3), np.nan)), 0.0)


# --- Tables ---


def mixed(scaling="standard", weight=None, seed=0):
    table = mixed_table()
    schema, y = find_schema(table), np.random.default_rng(seed).integers(0, 3, 400)
    X = schema.read(table)
    return schema, X, y, fit_encoding(schema, scaling, X, y, np.ones(400) if weight is None else weight, 3)


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_groups_are_in_the_order_of_the_columns(scaling):
    schema, X, _, found = mixed(scaling)
    names = [(schema.columns[group.column].name, group.what, group.width) for group in found.groups]
    assert names == [
        ("size", "value", 1), ("size", "missing", 1), ("color", "level", 4), ("when", "value", 1),
        ("when", "missing", 1), ("when", "year", 2), ("when", "week", 2), ("when", "day", 2),
        ("town", "level", MOST_INDICATORS), ("town", "frequency", 3), ("at", "value", 1), ("at", "missing", 1),
        ("at", "day", 2), ("label", "level", 2), ("count", "value", 1),
    ]  # fmt: skip
    widths = [group.width for group in found.groups]
    assert list(found.feature_groups) == np.repeat(np.arange(len(widths)), widths).tolist()
    assert found.transform(X).shape == (400, sum(widths))
    assert sum(widths) <= most_features(schema, 3)
    for g, group in enumerate(found.groups):  # a group holds features of its column alone
        own, other = X.copy(), X.copy()
        changed = [j for j in range(X.shape[1]) if j != group.column]
        own[:, changed] = X[::-1][:, changed]
        other[:, group.column] = X[::-1, group.column]
        places = [k for k, one in enumerate(found.feature_groups) if one == g]
        np.testing.assert_array_equal(found.transform(own)[:, places], found.transform(X)[:, places])
        assert not np.array_equal(found.transform(other)[:, places], found.transform(X)[:, places])


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_inverse_gives_the_cells_back(scaling):
    """But for levels that share their features: rare ones, and those of equal class frequencies."""
    schema, X, _, found = mixed(scaling)
    again = found.inverse(found.transform(X))
    exact = [j for j, column in enumerate(schema.columns) if column.name not in ("town", "id")]
    np.testing.assert_allclose(again[:, exact], X[:, exact], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.transform(again), found.transform(X), rtol=1e-9, atol=1e-9)
    stacked = found.transform(X[:12]).reshape(2, 6, -1)
    np.testing.assert_array_equal(found.inverse(stacked), again[:12].reshape(2, 6, -1))
    np.testing.assert_array_equal(again[:, 3], 0.0)  # left out


def test_a_left_out_column_changes_nothing():
    schema, X, y, found = mixed()
    changed = X.copy()
    changed[:, 3] = 7.0
    np.testing.assert_array_equal(found.transform(changed), found.transform(X))
    used = [0, 1, 2, 5]  # without class frequencies, which depend on the folds of whole rows
    rest, with_id = (Schema(tuple(schema.columns[j] for j in places)) for places in (used, [*used, 3]))
    alone = fit_encoding(rest, "standard", X[:, used], y, np.ones(400), 3)
    both = fit_encoding(with_id, "standard", X[:, [*used, 3]], y, np.ones(400), 3)
    np.testing.assert_array_equal(alone.transform(X[:, used]), both.transform(X[:, [*used, 3]]))


def test_what_is_unknown_or_missing_is_none_of_the_levels():
    schema, X, y, _ = one_category(["a", "b", "c"] * 30)
    found = fit_encoding(schema, "standard", X, y, np.ones(90), 2)
    features = found.transform(np.array([[np.nan], [0.0]]))
    np.testing.assert_array_equal(features[0], 0.0)
    assert features[1].any()
    assert np.isnan(found.inverse(features)[0, 0])


# --- Categories ---


def one_category(levels, n_classes=2, seed=0):
    """A table of one category, with labels that depend on the level."""
    rows = [[level] for level in levels]
    schema = find_schema(rows, [0])
    X = schema.read(rows)
    rng = np.random.default_rng(seed)
    y = (np.nan_to_num(X[:, 0]).astype(int) + (rng.random(len(X)) < 0.3)) % n_classes
    return schema, X, y.astype(np.int64), n_classes


def test_indicators_share_a_group_and_levels_are_at_one_distance():
    schema, X, y, _ = one_category(["a"] * 50 + ["b"] * 30 + ["c"] * 20)
    found = fit_encoding(schema, "standard", X, y, np.ones(100), 2)
    assert found.groups == (Group(0, "level", 3),)
    table = found.categories[0].table
    assert table.shape == (4, 3)
    distances = np.linalg.norm(table[:3, None] - table[None, :3], axis=-1)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(distances, distances[0])
    features = found.transform(X)
    np.testing.assert_allclose(features.var(0).sum(), 1.0, rtol=1e-12)


def test_rare_levels_share_an_indicator():
    rare = [f"rare {i}" for i in range(4)]
    schema, X, y, _ = one_category(["a"] * 40 + ["b"] * 40 + rare * (RARE_ROWS - 1))
    found = fit_encoding(schema, "standard", X, y, np.ones(len(X)), 2)
    table = found.categories[0].table
    assert table.shape == (7, 3)
    np.testing.assert_array_equal(table[2:6], table[2:3].repeat(4, axis=0))
    single = one_category(["a"] * 40 + ["b"] * 40 + ["rare"])
    assert fit_encoding(*single[:1], "standard", *single[1:3], np.ones(81), 2).categories[0].table.shape == (4, 3)


def test_a_category_of_one_level():
    schema, X, y, _ = one_category(["a", None] * 20)
    found = fit_encoding(schema, "standard", X, y, np.ones(40), 2)
    np.testing.assert_array_equal(found.inverse(found.transform(X)), X)
    schema, X, y, _ = one_category(["a"] * 40)
    assert np.isfinite(fit_encoding(schema, "standard", X, y, np.ones(40), 2).transform(X)).all()


def many_levels(n_rows=1000, n_classes=3, seed=0):
    """A category of many levels, and a number that gives equal levels different folds."""
    rng = np.random.default_rng(seed)
    schema, X, y, _ = one_category([f"l{k}" for k in rng.integers(0, 2 * MOST_INDICATORS, n_rows)], n_classes)
    return Schema((*schema.columns, Column("n"))), np.column_stack([X, rng.standard_normal(n_rows)]), y, n_classes


def test_many_levels_are_encoded_by_class_frequencies():
    schema, X, y, n_classes = many_levels()
    found = fit_encoding(schema, "standard", X, y, np.ones(1000), n_classes)
    (part,) = found.categories
    assert part.table.shape == (len(schema.columns[0].levels) + 1, MOST_INDICATORS + n_classes)
    assert part.n_frequencies == n_classes
    assert part.by_fold.shape == (FOLDS, len(part.table), n_classes)
    assert (part.table[:, :MOST_INDICATORS] > 0).sum(0).tolist() == [1] * MOST_INDICATORS  # of the most frequent levels
    rows = np.bincount(X[:, 0].astype(int))
    has_indicator = (part.table[:-1, :MOST_INDICATORS] > 0).any(1)
    assert rows[has_indicator].min() >= rows[~has_indicator].max()
    training = found.transform_training(X)[:, MOST_INDICATORS:-1]
    np.testing.assert_array_equal(
        found.transform_training(X)[:, :MOST_INDICATORS], found.transform(X)[:, :MOST_INDICATORS]
    )
    np.testing.assert_allclose(training.mean(0), 0.0, atol=1e-10)
    np.testing.assert_allclose(training.var(0).sum(), 1.0, rtol=1e-10)
    fold = row_folds(X)
    for f in range(FOLDS):
        np.testing.assert_array_equal(training[fold == f], part.by_fold[f][X[fold == f, 0].astype(int)])
    for k in range(n_classes):  # levels with more rows of a class have a larger feature of it
        share = np.bincount(X[:, 0].astype(int), y == k) / np.bincount(X[:, 0].astype(int))
        assert np.corrcoef(share, part.table[:-1, MOST_INDICATORS + k])[0, 1] > 0.8


def test_the_features_of_a_training_row_do_not_see_its_label():
    """Up to the center and the scale, which all rows share."""
    schema, X, y, n_classes = many_levels()
    found, fold = fit_encoding(schema, "standard", X, y, np.ones(1000), n_classes), row_folds(X)
    assert (np.bincount(fold, minlength=FOLDS) > 100).all()
    changed = y.copy()
    changed[0] = (y[0] + 1) % n_classes
    other = fit_encoding(schema, "standard", X, changed, np.ones(1000), n_classes)
    own = fold == fold[0]

    def without_units(encoding, rows):
        """The features of a fold's rows, without a common shift and scale."""
        features = encoding.transform_training(X)[rows, MOST_INDICATORS : MOST_INDICATORS + n_classes]
        features = features - features.mean(0)
        return features / np.linalg.norm(features)

    np.testing.assert_allclose(without_units(found, own), without_units(other, own), rtol=0, atol=1e-12)
    for f in set(range(FOLDS)) - {int(fold[0])}:
        assert np.abs(without_units(found, fold == f) - without_units(other, fold == f)).max() > 1e-6


def test_levels_whose_rows_are_all_in_one_fold_have_indicators():
    """The folds of equal rows are equal: class frequencies of the other folds would say nothing of these levels."""
    schema, X, y, n_classes = many_levels(2000)
    schema, X = Schema(schema.columns[:1]), X[:, :1]
    found = fit_encoding(schema, "standard", X, y, np.ones(2000), n_classes)
    (part,) = found.categories
    assert part.by_fold is None
    assert part.table.shape[1] == MOST_INDICATORS
    frequent = np.argsort(-np.bincount(X[:, 0].astype(int)), kind="stable")[:MOST_INDICATORS]
    assert len(np.unique(part.table[frequent], axis=0)) == MOST_INDICATORS
    assert len(np.unique(found.transform_training(X), axis=0)) == MOST_INDICATORS + 1


def test_folds_depend_on_the_cells_alone():
    _, X, _, _ = many_levels()
    order = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(row_folds(X)[order], row_folds(X[order]))
    assert set(row_folds(X)) == set(range(FOLDS))


@pytest.mark.parametrize("scaling", [*BOTH, None])
def test_weights_count_as_copies_in_tables(scaling):
    schema, X, y, _ = mixed()
    weight = np.arange(400) % 3 + 1
    weighted = fit_encoding(schema, scaling, X, y, weight.astype(float), 3)
    copies = (np.repeat(a, weight, axis=0) for a in (X, y))
    repeated = fit_encoding(schema, scaling, *copies, np.ones(weight.sum()), 3)
    assert weighted.groups == repeated.groups
    for transform in ("transform", "transform_training"):
        one, two = (getattr(encoding, transform)(X) for encoding in (weighted, repeated))
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    plain = fit_encoding(schema, scaling, X, y, np.ones(400), 3)
    assert not np.allclose(plain.transform(X), weighted.transform(X), rtol=1e-3)


def test_known_statistics_and_scales_are_used():
    schema, X, y, whole = mixed()
    known = CellStatistics.of(schema, X, y, np.ones(400), 3)
    scaler = fit_scaler("standard", X, np.ones(400))
    found = fit_encoding(schema, "standard", X, y, np.ones(400), 3, known=known, scaler=scaler)
    assert found.groups == whole.groups
    np.testing.assert_allclose(found.transform(X), whole.transform(X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.transform_training(X), whole.transform_training(X), rtol=1e-12, atol=1e-12)


def test_the_names_and_the_order_of_levels_do_not_matter():
    """Levels are sorted by their names; only the order of a group's features can change."""
    schema, X, y, _ = one_category(["a", "b", "b", "c", None] * 20)
    renamed, Z, _, _ = one_category(["z", "y", "y", "x", None] * 20)
    one, two = (fit_encoding(s, "standard", cells, y, np.ones(100), 2).transform(cells)
                for s, cells in ((schema, X), (renamed, Z)))  # fmt: skip
    np.testing.assert_allclose(one @ one.T, two @ two.T, rtol=1e-12, atol=1e-12)


# --- Dates and times ---


def dates(*moments):
    rows = [[moment] for moment in moments]
    schema = find_schema(rows)
    X = schema.read(rows)
    return fit_encoding(schema, "standard", X, np.zeros(len(X), np.int64), np.ones(len(X)), 2), X


@pytest.mark.parametrize(
    ("step", "n", "cycles"),
    [
        (timedelta(hours=1), 20, []),
        (timedelta(hours=1), 100, ["day"]),
        (timedelta(hours=5), 100, ["week", "day"]),
        (timedelta(days=1), 30, ["week"]),
        (timedelta(days=7), 30, []),
        (timedelta(days=7), 110, ["year"]),
        (timedelta(hours=101), 200, ["year", "week", "day"]),
        (timedelta(0), 9, []),
    ],
    ids=str,
)
def test_cycles_are_those_that_the_dates_cover(step, n, cycles):
    found, _ = dates(*(datetime(2021, 5, 6, 7) + step * i for i in range(n)))
    assert [group.what for group in found.groups] == ["value", *cycles]


def test_times_have_the_cycle_of_a_day():
    found, _ = dates(*(time(h) for h in range(8, 18)))
    assert [group.what for group in found.groups] == ["value", "day"]


def test_a_cycle_closes_and_a_missing_date_is_at_its_center():
    found, X = dates(*(datetime(1965, 1, 1) + timedelta(hours=101) * i for i in range(800)), None)
    for cycle in found.cycles:
        moved = cycle.transform(X + 3 * cycle.period)
        np.testing.assert_allclose(moved, cycle.transform(X), rtol=0, atol=1e-6)  # seconds in a float64
        np.testing.assert_array_equal(cycle.transform(X)[-1], 0.0)
        np.testing.assert_allclose(np.linalg.norm(cycle.transform(X)[:-1], axis=1), 1.0)
    assert {cycle.name: cycle.period for cycle in found.cycles} == CYCLES


def test_dates_are_scaled_in_any_case():
    """Seconds since 1970 would hide every other column; numbers keep their units."""
    schema = Schema((Column("a"), Column("b", DATE), Column("c", LEFT_OUT, reason="test")))
    X = np.column_stack([np.arange(9.0), 1.6e9 + np.arange(9.0) * DAY, np.zeros(9)])
    X[4, 0] = np.nan
    found = fit_encoding(schema, None, X, np.zeros(9, np.int64), np.ones(9), 2)
    value, when = (found.transform(X)[:, found.groups.index(Group(j))] for j in (0, 1))
    np.testing.assert_allclose(np.diff(value[[0, 1, 2, 8]]), [1, 1, 6])
    assert value[4] == 0.0
    np.testing.assert_allclose([when.mean(), when.std(ddof=1)], [0, 1], atol=1e-12)
    np.testing.assert_allclose(found.inverse(found.transform(X)), X)
    known = Unscaled(np.zeros(3))  # of all columns of a source
    again = fit_encoding(schema, None, X, np.zeros(9, np.int64), np.ones(9), 2, scaler=known)
    np.testing.assert_array_equal(again.transform(X), found.transform(X))
