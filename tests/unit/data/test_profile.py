"""The training columns one by one: values and rows, gaps, and how unusual a cell is."""

import numpy as np
import pytest

from cavity.data.profile import KNOTS, ColumnProfile, Profile
from cavity.data.schema import CATEGORY, LEFT_OUT, UNKNOWN, Column, Schema

NAN = np.nan
SCHEMA = Schema((Column("x"), Column("color", CATEGORY, ("blue", "green", "red")), Column("id", LEFT_OUT)))
CELLS = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [NAN, NAN, 0.0]])


def profile(weight=(1.0, 1.0, 1.0, 1.0), **more):
    return Profile.of(SCHEMA, CELLS, np.array(weight), **more)


def test_values_with_their_rows_and_gaps():
    x, color, other = profile().columns
    assert (x.values.tolist(), x.rows.tolist(), x.missing) == ([1.0, 2.0], [2.0, 1.0], 1.0)
    assert (color.values.tolist(), color.rows.tolist(), color.missing) == ([0.0, 2.0], [2.0, 1.0], 1.0)
    assert len(other.values) == other.missing == 0


def test_a_weight_is_a_number_of_copies():
    copies = Profile.of(SCHEMA, CELLS.repeat([3, 1, 2, 1], axis=0), np.ones(7))
    for one, two in zip(profile((3.0, 1.0, 2.0, 1.0)).columns, copies.columns, strict=True):
        np.testing.assert_equal(one._asdict(), two._asdict())


def test_how_unusual_cells_are():
    cells = np.array([[1.0, 0.0, 5.0], [2.0, 2.0, 5.0], [9.0, 1.0, 5.0], [NAN, NAN, 5.0]])
    n = 4 + 1
    np.testing.assert_allclose(
        profile().unusual(cells) * [n, n, 1],
        [
            [min(2 * 4 * 2 / 3, 4) + 1, 4 + 1, 1],  # a value of two of the three known rows; the most frequent level
            [2 * 4 / 3 + 1, 2 + 1, 1],  # the largest number; a level as rare as a gap
            [0 + 1, 0 + 1, 1],  # beyond the range; a level without rows
            [1 + 1, 2 + 1, 1],
        ],
    )
    assert profile().unusual(np.array([[1.5, UNKNOWN, NAN]]))[0, 1] == 1 / n


def test_new_levels_and_gaps():
    cells = np.array([[7.0, 0.0, 0.0], [NAN, 1.0, 0.0], [1.0, UNKNOWN, NAN]])
    assert profile().count_new(cells).tolist() == [0.0, 1.0, 1.0]
    gapless = Profile.of(None, np.ones((3, 2)), np.ones(3))
    assert gapless.count_new(np.array([[NAN, NAN], [1.0, 5.0]])).tolist() == [2.0, 0.0]


def test_a_training_row_does_not_count_for_itself():
    assert profile().count_new(CELLS, is_left_out=True).tolist() == [0.0, 0.0, 1.0, 2.0]
    assert profile((1.0, 1.0, 2.0, 2.0)).count_new(CELLS, is_left_out=True).tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("n", [KNOTS, KNOTS + 1, 5000])
def test_many_values_are_thinned_evenly(n):
    x = np.random.default_rng(0).standard_normal(n)
    found = ColumnProfile.of(x, np.ones(n))
    assert len(found.values) <= KNOTS
    assert (np.diff(found.values) > 0.0).all()
    assert found.known == n
    assert {x.min(), x.max()} <= set(found.values)
    grid = np.linspace(-3.0, 3.0, 50)
    np.testing.assert_allclose(found.share_up_to(grid), (x[:, None] <= grid).mean(0), atol=0.01)
    assert found.unusual(np.array([np.sort(x)[-2]]))[0] <= 5 / n  # the ends are kept one by one


def test_merged_profiles_are_those_of_all_rows():
    some, others = (np.random.default_rng(k).integers(0, 20, (50, 1)).astype(float) for k in (0, 1))
    both = Profile.of(None, some, np.ones(50)).merged(Profile.of(None, others, np.ones(50))).columns[0]
    np.testing.assert_equal(both, Profile.of(None, np.concatenate([some, others]), np.ones(100)).columns[0])


def test_levels_that_were_counted_in_all_rows():
    known = profile(levels={1: np.array([5.0, 0.0, 3.0, 2.0])}).columns[1]
    assert (known.values.tolist(), known.rows.tolist(), known.missing) == ([0.0, 2.0], [5.0, 3.0], 2.0)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_background_stands_for_a_column(count):
    for j in range(3):
        cells, weight = profile().background(j, count)
        assert len(cells) <= max(count, 2)  # a gap and something else
        assert weight.sum() == pytest.approx(1.0)
        assert (weight > 0.0).all()


def test_the_background_of_numbers_has_their_quantiles():
    x = np.random.default_rng(0).standard_normal((4000, 1))
    cells, weight = Profile.of(None, x, np.ones(4000)).background(0, 20)
    assert len(cells) == 20
    np.testing.assert_allclose(weight, 0.05)
    np.testing.assert_allclose(cells, np.quantile(x, (np.arange(20) + 0.5) / 20), atol=0.1)
