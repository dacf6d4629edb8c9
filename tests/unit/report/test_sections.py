"""What sections compute for themselves."""

from dataclasses import replace

import numpy as np
import pytest

from cavity.report.sections import confused_pairs, data_map, features, prediction_sets, uncertainty
from cavity.report.text import percent
from tests.unit.report import made_up


def test_confusions_are_listed_by_their_frequency():
    assert confused_pairs(np.array([[5, 1, 0], [3, 4, 0], [0, 2, 9]])) == [(1, 0, 3), (2, 1, 2), (0, 1, 1)]
    assert confused_pairs(np.eye(3, dtype=np.int64)) == []


def section(draw, found):
    return "".join(part for part in draw(found) if part)


def test_captions_say_how_much_of_what_is_drawn():
    found = made_up.digits()
    assert "The 200 inducing points by class." in section(data_map, found)
    some = replace(found, n_rows=20_000, map=found.map._replace(n_inducing=1000))
    drawn = section(data_map, some)
    assert "200 of the 1,000 inducing points, evenly chosen, by class." in drawn
    n_wrong = int((~found.map.row_is_right).sum())
    assert f"Rings mark their {n_wrong} errors. 450 of 20,000 rows are drawn." in drawn
    assert "They count a random sample of 450 rows. 450 of 20,000 rows are drawn." in section(uncertainty, some)
    assert "are drawn" not in section(data_map, found) + section(uncertainty, found)


def test_words_about_colors_are_true_in_both_themes():
    found = section(features, made_up.digits())
    assert "The stronger the blue, the more relevant." in found
    assert "arker" not in found


@pytest.mark.parametrize("n_classes", [10, 26, 100])
def test_many_classes_have_their_names_on_the_map(n_classes):
    """No two names cover each other; those without room appear when their class is highlighted."""
    names = [f"class {k}" for k in range(n_classes)]
    drawn = section(data_map, made_up.renamed(made_up.digits(1000, n_classes, 4), names))
    assert drawn.count('class="names') >= n_classes
    assert "Names mark the centers of the true classes, where there is room" in drawn
    assert 'class="legend"' not in drawn
    assert 'class="names' not in section(data_map, made_up.renamed(made_up.digits(1000, 9, 4), names[:9]))


def test_sets_are_summarized_by_coverage():
    found = made_up.digits()
    drawn = "".join(filter(None, prediction_sets(found)))
    for one in found.sets:
        assert percent(one.coverage, 0) in drawn
    assert "10 labels" in drawn
    assert "no prediction sets" in prediction_sets(replace(found, sets=[]))[0]
