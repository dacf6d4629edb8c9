"""Charts: where values lie, what is left out, what is said."""

import re
from collections import Counter

import numpy as np
import pytest

from cavity.metrics import Interval
from cavity.report.charts import (
    KEPT,
    MAX_POINTS,
    Bar,
    agrees,
    axis_floor,
    bar_chart,
    choose_points,
    column_head,
    common_end,
    errors_of_kept,
    heat_map,
    map_of_inducing,
    map_of_rows,
    reliability_diagram,
    training_chart,
    whisker,
)
from cavity.report.findings import TrainingCurve, TrainingEvent
from cavity.report.svg import are_glyphs
from cavity.report.text import tidy
from tests.unit.report import made_up

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
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', reliability_diagram("key", found))
    x = [46.0 + 336.0 * c for c in found.confidence]
    y = [334.0 - 304.0 * f for f in found.accuracy]
    np.testing.assert_allclose(np.array(circles, dtype=float), np.column_stack([x, y]), atol=0.01)


def test_a_bin_agrees_where_its_interval_holds_the_confidence():
    found = made_up.digits().reliability[0]
    off = found._replace(confidence=found.high + 0.1)
    assert agrees(found).sum() >= 13
    assert not agrees(off).any()


def test_the_counts_add_up():
    drawn = reliability_diagram("key", made_up.digits().reliability[0])
    assert sum(int(n) for n in re.findall(r"<title>(\d+) rows from", drawn)) == 450


# --- Bars, shades ---


def test_bars_are_as_long_as_their_values():
    drawn = bar_chart("key", [Bar("a", 2.0), Bar("b", 1.0)], "title", "seen", tidy)
    long, half = (float(w) for w in re.findall(r'width="([\d.]+)"', drawn))
    assert long == pytest.approx(2 * half)


def test_shades_run_from_pale_to_full():
    values = np.array([[1.0, 2.0], [3.0, 5.0]])
    drawn = heat_map("key", ["a", "b"], ["c", "d"], values, "title", "seen", tidy)
    shades = [float(v) for v in re.findall(r'fill-opacity="([\d.]+)"', drawn)[:4]]
    assert shades == pytest.approx([0.06, 0.295, 0.53, 1.0], abs=0.01)


def test_long_names_of_columns_stand_upright_and_of_many_some_are_left_out():
    few, long, all_ = ["a", "b"], ["a long label"] * 12, [str(i) for i in range(100)]
    assert column_head(few, few) == column_head(few, all_) < column_head(few, long)
    one = np.ones((1, 100))
    drawn = heat_map("key", ["a"], all_, one, "title", "seen", tidy)
    named = re.findall(r'middle">(\d+)<', drawn)
    assert named == [str(i) for i in range(0, 100, 10)]
    drawn = heat_map("key", ["a"], [f"class number {i}" for i in range(100)], one, "title", "seen", tidy)
    assert "100 classes, in order" in drawn


# --- Rows ---


def test_of_many_rows_all_that_are_wrong_are_drawn_first():
    is_right = np.arange(5000) % 50 != 0
    found = choose_points(is_right)
    assert len(found) == len(set(found)) == MAX_POINTS
    assert set(np.flatnonzero(~is_right)) <= set(found)
    assert choose_points(np.zeros(10_000, dtype=bool))[-1] == 9999
    assert choose_points(np.ones(7, dtype=bool)) == list(range(7))


def test_the_error_of_what_is_left_counts_the_surest_rows():
    total, is_right = np.arange(10.0), np.array([True] * 5 + [False] * 5)
    found = errors_of_kept(total, is_right)
    assert (found[0], found[-1]) == (0.5, 0.0)
    assert found[10] == pytest.approx(4 / 9)
    assert (KEPT[0], KEPT[10], KEPT[-1]) == pytest.approx((1.0, 0.9, 0.5))


# --- Map ---


def test_short_labels_are_the_marks_themselves():
    assert are_glyphs(["0", "10"])
    assert not are_glyphs(["0", "setosa"])
    found = made_up.digits(n_classes=9)
    assert ">7<title>7, correct</title></text>" in map_of_rows("key", found.map, found.classes)
    assert "<path" in map_of_rows("key", found.map, [f"class {c}" for c in found.classes])


def test_rows_that_are_wrong_have_a_ring():
    found = made_up.digits()
    rings = re.findall(
        r'<path d="([^"]+)" class="ring" data-class="(\d)">', map_of_rows("key", found.map, found.classes)
    )
    wrong = found.map.row_class[~found.map.row_is_right].tolist()
    assert {int(k): d.count("M") for d, k in rings} == Counter(wrong)
    assert wrong


def test_inducing_points_that_all_classes_share_have_a_mark_of_their_own():
    found = made_up.digits()
    shared = found.map._replace(inducing_class=np.full(len(found.map.inducing), -1))
    drawn = map_of_inducing("key", shared, found.classes)
    assert drawn.count("<title>inducing point of all classes</title>") == len(found.map.inducing)
    assert "data-class" not in drawn


# --- Training ---


def test_the_first_steep_rise_does_not_hide_the_rest():
    late = np.linspace(-12.0, -10.0, 50)
    assert axis_floor(np.concatenate([[-1000.0, -400.0], late])) == late[1]
    assert axis_floor(late) == -12.0


def test_events_that_lie_close_share_a_flag():
    course = made_up.digits().training._replace(
        events=[TrainingEvent(1, "a"), TrainingEvent(2, "b"), TrainingEvent(2, "c"), TrainingEvent(70, "d")]
    )
    drawn = training_chart("key", course, False)
    assert re.findall(r'middle">([\d–]+)</text></g>', drawn) == ["1–3", "4"]
    assert "<title>a; b; c</title>" in drawn


def test_events_lie_at_their_seconds():
    course = TrainingCurve(np.arange(1, 5), np.array([2.0, 4.0, 6.0, 8.0]), np.arange(4.0), [TrainingEvent(2, "a")])
    assert '<path d="M221 42V262">' in training_chart("key", course, True)  # half of the way from 60 to 382
    assert '<path d="M221 42V262">' in training_chart("key", course, False)
