"""Charts: where values lie, what is left out, what is said."""

import re
from collections import Counter

import numpy as np
import pytest

from cavity.report.charts.bars import Bar, bars
from cavity.report.charts.course import curve, floor
from cavity.report.charts.doubt import DRAWN, KEPT, drawn, gain
from cavity.report.charts.heat import head_room, heat
from cavity.report.charts.marks import COLORS, SHAPES, are_glyphs, color, shape
from cavity.report.charts.plane import inducing, rows
from cavity.report.charts.reliability import is_met, reliability
from cavity.report.charts.scale import Scale, reach, ticks
from cavity.report.charts.whisker import common_end, whisker
from cavity.report.findings import Course, Interval
from cavity.report.numerals import alike, many, name, number, tidy, wide
from cavity.report.sections.confusion import pairs
from tests.unit.report import made_up

# --- Numbers and names ---


def test_numbers_that_are_not_finite_are_signs():
    assert [number(v) for v in (np.inf, -np.inf, np.nan)] == ["∞", "−∞", "–"]
    assert [tidy(v) for v in (np.inf, 0.0, -0.5, 1.23e-9)] == ["∞", "0", "−0.5", "1.23e−9"]


def test_numbers_of_one_chart_have_the_same_decimals():
    write = alike([0.0123, 0.5])
    assert (write(0.5), write(0.0123), write(0.0)) == ("0.500", "0.012", "0.000")
    assert alike([])(1.0) == "1.00"


@pytest.mark.parametrize("width", [3, 8, 20])
@pytest.mark.parametrize("label", [label for label in made_up.HOSTILE if label])
def test_a_name_that_is_cut_fits(label, width):
    assert wide(name(label, width)) <= width
    assert name(label, width)[:-1] in name(label, 10_000)


def test_small_counts_are_words():
    assert many(1, "class", "classes") == "one class"
    assert many(0, "row") == "no rows"
    assert many(1234, "row") == "1,234 rows"


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
    low, high = reach(values)
    assert high > low


# --- Intervals ---


def test_what_lies_far_out_does_not_stretch_the_column():
    near = [Interval(0.1, 0.05, 0.2), Interval(0.2, 0.1, 0.3)]
    assert common_end([*near, Interval(2.3, 2.2, 2.4), Interval(np.inf, 1.0, np.inf)]) == 0.3
    assert common_end(near) == 0.3
    assert common_end([Interval(0.0, 0.0, 0.0)]) == 1.0


@pytest.mark.parametrize(("interval", "arrow", "dot"), [
    (Interval(0.1, 0.05, 0.2), False, True),
    (Interval(0.2, 0.1, 0.9), True, True),
    (Interval(np.inf, 0.1, np.inf), True, False),
])  # fmt: skip
def test_an_interval_that_goes_on_ends_in_an_arrow(interval, arrow, dot):
    drawn = whisker("key", interval, 0.3, "title", "seen", False)
    assert drawn.count('class="whisker"') == 1 + arrow
    assert ("<circle" in drawn) == dot


# --- Reliability ---


def test_dots_lie_where_confidence_and_frequency_say():
    found = made_up.digits().reliability[0]
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', reliability("key", found))
    x = [46.0 + 336.0 * c for c in found.confidence]
    y = [334.0 - 304.0 * f for f in found.frequency]
    np.testing.assert_allclose(np.array(circles, dtype=float), np.column_stack([x, y]), atol=0.01)


def test_a_bin_agrees_where_its_interval_holds_the_confidence():
    found = made_up.digits().reliability[0]
    off = found._replace(confidence=found.high + 0.1)
    assert is_met(found).sum() >= 13
    assert not is_met(off).any()


def test_the_counts_add_up():
    drawn = reliability("key", made_up.digits().reliability[0])
    assert sum(int(n) for n in re.findall(r"<title>(\d+) rows from", drawn)) == 450


# --- Bars, shades ---


def test_bars_are_as_long_as_their_values():
    drawn = bars("key", [Bar("a", 2.0), Bar("b", 1.0)], "title", "seen", tidy)
    long, half = (float(w) for w in re.findall(r'width="([\d.]+)"', drawn))
    assert long == pytest.approx(2 * half)


def test_shades_run_from_pale_to_full():
    values = np.array([[1.0, 2.0], [3.0, 5.0]])
    drawn = heat("key", ["a", "b"], ["c", "d"], values, "title", "seen", tidy)
    shades = [float(v) for v in re.findall(r'fill-opacity="([\d.]+)"', drawn)[:4]]
    assert shades == pytest.approx([0.06, 0.295, 0.53, 1.0], abs=0.01)


def test_long_names_of_columns_stand_upright_and_of_many_some_are_left_out():
    few, long, all_ = ["a", "b"], ["a long label"] * 12, [str(i) for i in range(100)]
    assert head_room(few, few) == head_room(few, all_) < head_room(few, long)
    one = np.ones((1, 100))
    drawn = heat("key", ["a"], all_, one, "title", "seen", tidy)
    named = re.findall(r'middle">(\d+)<', drawn)
    assert named == [str(i) for i in range(0, 100, 10)]
    drawn = heat("key", ["a"], [f"class number {i}" for i in range(100)], one, "title", "seen", tidy)
    assert "100 classes, in order" in drawn


# --- Rows ---


def test_of_many_rows_all_that_are_wrong_are_drawn_first():
    is_right = np.arange(5000) % 50 != 0
    found = drawn(is_right)
    assert len(found) == len(set(found)) == DRAWN
    assert set(np.flatnonzero(~is_right)) <= set(found)
    assert drawn(np.zeros(10_000, dtype=bool))[-1] == 9999
    assert drawn(np.ones(7, dtype=bool)) == list(range(7))


def test_the_error_of_what_is_left_counts_the_surest_rows():
    total, is_right = np.arange(10.0), np.array([True] * 5 + [False] * 5)
    found = gain(total, is_right)
    assert (found[0], found[-1]) == (0.5, 0.0)
    assert found[10] == pytest.approx(4 / 9)
    assert (KEPT[0], KEPT[10], KEPT[-1]) == pytest.approx((1.0, 0.9, 0.5))


def test_confusions_are_listed_by_their_frequency():
    assert pairs(np.array([[5, 1, 0], [3, 4, 0], [0, 2, 9]])) == [(1, 0, 3), (2, 1, 2), (0, 1, 1)]
    assert pairs(np.eye(3, dtype=np.int64)) == []


# --- Map ---


def test_56_classes_have_marks_that_differ():
    looks = {(color(k), shape(k, 0.0, 0.0)) for k in range(COLORS * len(SHAPES))}
    assert len(looks) == 56


def test_short_labels_are_the_marks_themselves():
    assert are_glyphs(["0", "10"])
    assert not are_glyphs(["0", "setosa"])
    found = made_up.digits()
    assert ">7<title>7, right</title></text>" in rows("key", found.map, found.classes)
    assert "<path" in rows("key", found.map, [f"class {c}" for c in found.classes])


def test_rows_that_are_wrong_have_a_ring():
    found = made_up.digits()
    rings = re.findall(r'<path d="([^"]+)" class="ring" data-class="(\d)">', rows("key", found.map, found.classes))
    wrong = found.map.row_class[~found.map.row_is_right].tolist()
    assert {int(k): d.count("M") for d, k in rings} == Counter(wrong)
    assert wrong


def test_inducing_points_that_all_classes_share_have_a_mark_of_their_own():
    found = made_up.digits()
    shared = found.map._replace(inducing_class=np.full(len(found.map.inducing), -1))
    drawn = inducing("key", shared, found.classes)
    assert drawn.count("<title>inducing point of all classes</title>") == len(found.map.inducing)
    assert "data-class" not in drawn


# --- Training ---


def test_the_first_steep_rise_does_not_hide_the_rest():
    late = np.linspace(-12.0, -10.0, 50)
    assert floor(np.concatenate([[-1000.0, -400.0], late])) == late[1]
    assert floor(late) == -12.0


def test_events_that_lie_close_share_a_flag():
    course = made_up.digits().course._replace(events=[(1, "a"), (2, "b"), (2, "c"), (70, "d")])
    drawn = curve("key", course, False)
    assert re.findall(r'middle">([\d–]+)</text></g>', drawn) == ["1–3", "4"]
    assert "<title>a; b; c</title>" in drawn


def test_events_lie_at_their_seconds():
    course = Course(np.arange(1, 5), np.array([2.0, 4.0, 6.0, 8.0]), np.arange(4.0), [(2, "a")])
    assert '<path d="M221 42V262">' in curve("key", course, True)  # half of the way from 60 to 382
    assert '<path d="M221 42V262">' in curve("key", course, False)
