"""The page as text: whole, safe, accessible, the same every time."""

import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from cavity.report.findings import Advice, Course, Interval, ScoreLine
from cavity.report.html import VOID, Markup, el, join, text
from cavity.report.page import SECTIONS, page
from cavity.report.sections.verdict import by_chance, support, trust, verdict
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


# --- Escaping ---


def test_what_is_no_markup_is_escaped():
    assert el("b", "<i>", title="\"'<&>") == '<b title="&quot;&#x27;&lt;&amp;&gt;">&lt;i&gt;</b>'
    assert el("b", Markup("<i>")) == "<b><i></b>"
    assert join(["<", None, el("br")]) == "&lt;<br>"


def test_what_no_file_can_hold_is_shown_as_a_sign():
    text("\ud800\x00\x1b\u2028").encode()
    assert text("a\ud800\x00b") == "a\ufffd\ufffdb"
    assert text("a\n\t b") == "a b"


def test_attributes_of_none_and_false_are_left_out():
    assert el("input", hidden=True, id=None, checked=False, data_x=1.5) == '<input hidden data-x="1.5">'


# --- The page ---


@pytest.mark.parametrize("name", ALL)
def test_elements_are_closed_in_their_order_and_ids_are_unique(name):
    ids = [element["id"] for element in tree(name).found if "id" in element]
    assert len(ids) == len(set(ids))
    named = [key for element in tree(name).found for key in element.get("aria-labeledby", "").split()]
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
        title, told = element["aria-labeledby"].split()
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
    assert len(figures) == len(tables) + 1 == 11 + 10


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
    assert "Nothing stood out." in html("bare")


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
        scores=[ScoreLine(line.name, *4 * [Interval(0.0, 0.0, 0.0)]) for line in found.scores],
        relevance=found.relevance._replace(values=np.zeros((3, 2))),
        total=zeros,
        aleatoric=zeros,
        epistemic=zeros,
        course=Course(np.array([1, 2]), np.zeros(2), np.zeros(2), []),
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
        made_up.small(), course=Course(np.array([1]), np.ones(1), np.ones(1), [(1, "settled")])
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


def with_ece(interval, **bins):
    found = made_up.digits()
    scores = [found.scores[0]._replace(ece=interval), *found.scores[1:]]
    return replace(found, scores=scores, reliability=[found.reliability[0]._replace(**bins), *found.reliability[1:]])


@pytest.mark.parametrize(
    ("interval", "bins", "said"),
    [
        (Interval(0.011, 0.0, 0.02), {}, "its probabilities can be taken at their word"),
        (Interval(0.009, 0.005, 0.02), {}, "its probabilities can be taken at their word"),
        (Interval(0.1, 0.05, 0.2), {"frequency": np.full(15, 0.5)}, "it is surer than it should be"),
        (Interval(0.1, 0.05, 0.2), {"confidence": np.full(15, 0.5)}, "it is right more often than it says"),
        (Interval(0.1, 0.05, 0.2), {}, "its probabilities are too high in some rows and too low in others"),
        (Interval(0.1, 0.0, 0.2), {"count": np.ones(15, dtype=np.int64), "confidence": np.full(15, 0.6)},
         "too few rows to judge its probabilities by"),
    ],
)  # fmt: skip
def test_the_headline_says_how_far_to_trust(interval, bins, said):
    found = with_ece(interval, **bins)
    assert trust(found) == said
    assert verdict(found) == f"96.9\u202f% right on 450 rows; {said}"


def test_the_error_that_chance_gives_is_that_of_simulation():
    rng, top = np.random.default_rng(0), made_up.digits().reliability[0]
    top = top._replace(confidence=np.linspace(0.55, 0.95, 15))
    drawn = rng.binomial(30, top.confidence, (4000, 15)) / 30
    errors = np.abs(drawn - top.confidence).mean(1)
    assert by_chance(top) == pytest.approx(np.quantile(errors, 0.95), rel=0.06)


def test_a_baseline_that_does_better_is_named():
    found = made_up.digits()
    assert "the best baseline, logistic regression, has 0.114" in support(found)
    worse = replace(found, scores=[found.scores[0]._replace(nll=Interval(0.2, 0.1, 0.3)), *found.scores[1:]])
    assert "a baseline, logistic regression, does better with 0.114" in support(worse)


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
