"""The report as an object, and its page: whole, safe, accessible, the same every time."""

import os
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cavity.metrics import CalibrationCheck, Interval, ScoreIntervals
from cavity.report.findings import Advice, TrainingCurve, TrainingEvent
from cavity.report.html import VOID
from cavity.report.page import SECTIONS, Report, headline, page, support
from tests.unit.report import made_up

ALL = ["digits", "small", "large", "hostile", "bare"]


class Tree(HTMLParser):
    """Elements in their order, with what they stand in and the text that stands in them."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "in": [e["tag"] for e in self.open], "text": "", **dict(attributes)}
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags):
        return [element for element in self.found if element["tag"] in tags]


@cache
def html(name):
    return page(getattr(made_up, name)())


@cache
def tree(name):
    return Tree(html(name))


# --- The page ---


@pytest.mark.parametrize("name", ALL)
def test_elements_are_closed_in_their_order_and_ids_are_unique(name):
    ids = [element["id"] for element in tree(name).found if "id" in element]
    assert len(ids) == len(set(ids))
    named = [key for element in tree(name).found for key in element.get("aria-labelledby", "").split()]
    named += [element["href"][1:] for element in tree(name).all("a")]
    named += [element["for"] for element in tree(name).all("label")]
    assert set(named) <= set(ids)


@pytest.mark.parametrize("name", ALL)
def test_headings_are_in_order_below_one_title(name):
    levels = [int(element["tag"][1]) for element in tree(name).all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert levels.count(2) == len(SECTIONS)


@pytest.mark.parametrize("name", ALL)
def test_every_picture_is_described_in_words_and_numbers(name):
    pictures = [element for element in tree(name).all("svg") if element.get("aria-hidden") != "true"]
    assert len(pictures) >= 4
    for element in pictures:
        assert element["role"] == "img"
    words = {element["id"]: element["text"] for element in tree(name).all("title", "desc") if "id" in element}
    for element in pictures:
        title, told = element["aria-labelledby"].split()
        assert words[title].strip()
        assert re.search(r"\d|∞", words[told]), words[told]


@pytest.mark.parametrize("name", ALL)
def test_cells_that_name_others_say_which(name):
    assert {element.get("scope") for element in tree(name).all("th")} <= {"row", "col"}
    tables = tree(name).all("table")
    assert len(tables) == len(tree(name).all("caption"))


@pytest.mark.parametrize("name", ALL)
def test_nothing_comes_from_elsewhere_and_only_our_script_may_run(name):
    policy = next(e["content"] for e in tree(name).all("meta") if e.get("http-equiv") == "Content-Security-Policy")
    scripts = tree(name).all("script")
    assert len(scripts) == 1
    digest = b64encode(sha256(scripts[0]["text"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert not [e for e in tree(name).found if any(key.startswith("on") for key in e)]
    assert not [e for e in tree(name).all("img", "iframe", "object", "link", "base") if e.get("href") != "data:,"]
    assert not re.search(r"https?:|@import|url\(", html(name))


@pytest.mark.parametrize("name", ALL)
def test_no_number_goes_unwritten(name):
    words = " ".join(e["text"] for e in tree(name).all("main"))
    shapes = [e.get("d", "") + e.get("x", "") + e.get("cy", "") + e.get("viewbox", "") for e in tree(name).found]
    assert not re.search(r"\b(nan|inf|None|np\.|array)\b", words + " ".join(shapes))


def test_infinity_is_a_sign():
    assert "∞" in html("digits")
    assert "0.200 to ∞" in html("digits")


def test_the_same_findings_give_the_same_bytes():
    assert html("digits") == page(made_up.digits())
    html("digits").encode()


def test_the_page_is_small():
    assert len(html("digits").encode()) < 500_000
    assert len(html("large").encode()) < 2_000_000


@pytest.mark.parametrize("name", ["digits", "hostile"])
def test_every_chart_has_its_numbers_behind_it(name):
    """By time there are the numbers of the epochs once more."""
    figures = tree(name).all("figure")
    tables = [e for e in tree(name).all("table") if "figure" in e["in"]]
    assert len(figures) == len(tables) + 1 == 12 + 10


def test_hostile_names_stay_names():
    shown = " ".join(e["text"] for e in tree("hostile").all("main"))
    assert "<script>window.hacked = 1</script>" in shown
    assert "\"><img src=x onerror='window.hacked = 2'>" in shown
    assert "(empty)" in shown
    assert "W" * 200 not in " ".join(e["text"] for e in tree("hostile").all("svg"))


def test_best_scores_are_named_as_such():
    cells = [e["text"] for e in tree("digits").all("td") if "best" in e["text"]]
    assert len(cells) == 4
    assert cells[1].startswith("0.066best")


def test_one_model_alone_is_not_the_best():
    assert "best" not in " ".join(e["text"] for e in tree("bare").all("td"))


def test_advice_comes_with_its_level_in_words_the_worst_first():
    levels = [e["text"] for e in tree("digits").all("h3") if e.get("class") == "level"]
    assert levels == ["!Warning", "iNote", "✓Good"]
    assert "Nothing to report." in html("bare")


def all_right():
    found = made_up.digits(40, 3, 2)
    everything = np.ones(40, dtype=bool)
    return replace(
        found, is_right=everything, confusion=np.diag(found.counts), map=found.map._replace(row_is_right=everything)
    )


def nothing_differs():
    """Every number of a kind the same, most of them 0."""
    found, zeros = made_up.digits(40, 3, 2), np.zeros(40)
    return replace(
        found,
        scores=[ScoreIntervals(line.name, *4 * [Interval(0.0, 0.0, 0.0)]) for line in found.scores],
        relevance=found.relevance._replace(values=np.zeros((3, 2))),
        total=zeros,
        aleatoric=zeros,
        epistemic=zeros,
        training=TrainingCurve(np.array([1, 2]), np.zeros(2), np.zeros(2), []),
        map=found.map._replace(
            rows=np.zeros((40, 2)), inducing=np.empty((0, 2)), inducing_class=np.empty(0, dtype=np.int64)
        ),
    )


ODD = {
    "few rows": lambda: made_up.digits(3, 2, 1),
    "more classes than rows": lambda: made_up.digits(30, 57, 1),
    "twenty classes": lambda: made_up.digits(100, 20, 20),
    "one more": lambda: made_up.digits(100, 21, 21),
    "all right": all_right,
    "nothing differs": nothing_differs,
    "one record": lambda: replace(
        made_up.small(), training=TrainingCurve(np.array([1]), np.ones(1), np.ones(1), [TrainingEvent(1, "settled")])
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_findings_are_drawn(name):
    words = Tree(page(ODD[name]()))
    shapes = [
        value for e in words.found for key, value in e.items() if key in ("d", "x", "y", "cx", "cy", "width", "height")
    ]
    assert not re.search("nan|inf", " ".join(shapes))
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(e["text"] for e in words.all("main")))


# --- The headline ---


@pytest.mark.parametrize(
    ("interval", "fault", "said"),
    [
        (
            (0.011, 0.0, 0.019),
            None,
            "no sign of miscalibration, but a calibration error of up to 0.019 could go unnoticed",
        ),
        ((0.1, 0.0, 0.2), None, "no sign of miscalibration, but a calibration error of up to 0.200 could go unnoticed"),
        (
            (0.009, 0.005, 0.01),
            "overconfident",
            "the model is slightly overconfident, by a calibration error of 0.005 to 0.010",
        ),
        ((0.1, 0.05, 0.12), "overconfident", "the model is overconfident, by a calibration error of 0.050 to 0.120"),
        ((0.1, 0.05, 0.12), "underconfident", "the model is underconfident, by a calibration error of 0.050 to 0.120"),
        (
            (0.1, 0.05, 0.12),
            "mixed",
            "some probabilities are too high, others too low, by a calibration error of 0.050 to 0.120",
        ),
    ],
)
def test_the_headline_says_what_is_known_about_calibration(interval, fault, said):
    """How large an error could go unnoticed, or how large the error is: from the interval of the table."""
    found = replace(made_up.digits(), calibration=CalibrationCheck(Interval(*interval), 0.9, 0.9, fault))
    assert headline(found) == f"96.9\u202f% accuracy on 450 rows; {said}"


@pytest.mark.parametrize("fault", [None, "overconfident"])
def test_training_rows_get_no_verdict(fault):
    check = CalibrationCheck(Interval(0.1, 0.05, 0.12), 0.9, 0.8, fault)
    found = replace(made_up.digits(), calibration=check, no_verdict="the model was trained on these rows")
    assert headline(found).endswith("; no verdict on calibration, because the model was trained on these rows")
    assert support(found) == "These scores do not tell how good the model is on new rows."
    assert "These scores are better than on new rows, because the model was trained on these rows." in page(found)


def test_a_baseline_that_does_better_is_named():
    found = made_up.digits()
    assert "the best baseline, logistic regression, has 0.114" in support(found)
    worse = replace(found, scores=[found.scores[0]._replace(nll=Interval(0.2, 0.1, 0.3)), *found.scores[1:]])
    assert "a baseline, logistic regression, is better with 0.114" in support(worse)


def test_the_first_warning_stands_beside_the_headline():
    two = replace(made_up.small(), advice=[Advice("warning", "These are the training rows.", "Use `others`.")] * 2)
    alert = next(e for e in Tree(page(two)).all("p") if e.get("class") == "alert")
    assert alert["text"] == "Warning: These are the training rows. All 2 warnings"
    assert "<code>others</code>" in page(two)
    assert 'class="alert"' not in html("bare")


def test_a_tip_names_the_row_as_the_table_does():
    found = made_up.digits(40, 3, 2)
    named = page(replace(found, row_names=[str(1000 + i) for i in range(40)]))
    assert "row 1003: aleatoric" in named
    assert "row 3: aleatoric" not in named


# --- The report as an object ---


@pytest.fixture
def report():
    return Report(made_up.small())


def test_it_is_saved_as_one_file_of_utf8(report, tmp_path):
    path = report.save(tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == report.html
    assert report.html.startswith("<!doctype html>\n<html")
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_name_will_do_for_a_path(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report.save("report.html") == Path("report.html")
    assert os.listdir(tmp_path) == ["report.html"]


def test_an_old_file_stays_whole_until_the_new_one_is_there(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*args):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no space left"):
            report.save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]
    report.save(path)
    assert path.read_text(encoding="utf-8") == report.html


def test_a_folder_that_is_missing_is_named(report, tmp_path):
    with pytest.raises(ValueError, match=r"existing folder, got '.*none/report.html'. Create '.*none' first"):
        report.save(tmp_path / "none" / "report.html")


def test_a_folder_is_no_file(report, tmp_path):
    with pytest.raises(ValueError, match=r"`path` must be a file name .* got the folder"):
        report.save(tmp_path)


def test_a_notebook_shows_it_in_a_frame_of_its_own(report):
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count("<") == 2  # nothing of the page is outside of the attribute
    assert 'sandbox="allow-scripts"' in shown
    inside = unescape(shown.split('srcdoc="')[1].split('" sandbox')[0])
    assert inside == report.html


def test_its_text_is_a_headline_and_a_table():
    lines = repr(Report(made_up.digits())).splitlines()
    assert lines[0] == "Handwritten digits"
    assert lines[1].startswith("96.9\u202f% accuracy on 450 rows; no sign")
    assert lines[3].split() == ["error", "NLL", "Brier", "calibration", "error"]
    assert lines[4].startswith("this model  ")
    assert "∞ (0.200 to ∞)" in lines[7]
    assert lines[-1] == "warning: Class 7 is more frequent than its probabilities predict."
