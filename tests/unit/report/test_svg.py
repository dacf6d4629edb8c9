"""Scales and marks."""

import numpy as np
import pytest

from cavity.report.palette import COLORS, VARIABLES
from cavity.report.svg import SHAPES, Scale, class_color, shape, ticks, value_range

# --- Scales ---


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-831.4, -372.9), (0.0, 3e-7), (12.0, 9e9), (-1.0, 1.0)])
def test_ticks_are_few_round_and_inside(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 9
    slack = 1e-9 * (high - low)
    assert all(low - slack <= v <= high + slack for v in found)
    assert np.ptp(np.diff(found)) < 1e-6 * (high - low)


@pytest.mark.parametrize("high", [0.01, 0.084, 0.7, 2.3, 4.6])
def test_ticks_by_roots_are_inside_and_apart(high):
    scale = Scale(0.0, high, 0.0, 300.0, root=True)
    places = [scale(v) for v in scale.ticks()]
    assert max(scale.ticks()) <= high
    assert min(np.diff(places)) > 25


def test_values_off_the_scale_are_put_at_its_end():
    scale = Scale(0.0, 1.0, 10.0, 20.0)
    assert [scale(v) for v in (-5.0, 0.5, 7.0)] == [10.0, 15.0, 20.0]


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0], [np.nan, np.inf], [0.0]])
def test_a_scale_has_length_whatever_it_must_hold(values):
    low, high = value_range(values)
    assert high > low


# --- Marks ---


def test_56_classes_have_marks_that_differ():
    looks = {(class_color(k), shape(k, 0.0, 0.0)) for k in range(len(COLORS) * len(SHAPES))}
    assert len(looks) == 56


def test_every_color_of_a_class_is_in_the_style_sheet():
    assert {f"--{class_color(k)}" for k in range(56)} == {key for key in VARIABLES if key.startswith("--k")}
