"""What to know: what was found and what to do about it, the worst first."""

from __future__ import annotations

from cavity.report.findings import Advice, Findings
from cavity.report.html import Markup, el
from cavity.report.sections.parts import prose, section

LEVELS = {"warning": ("!", "Warning"), "note": ("i", "Note"), "good": ("✓", "Good")}


def advice(found: Findings) -> Markup:
    """A card for each piece of advice."""
    if not found.advice:
        return section("advice", "What to know", "Nothing stood out.")
    order = list(LEVELS)
    cards = [_card(a) for a in sorted(found.advice, key=lambda a: order.index(_level(a)))]
    return section("advice", "What to know", None, el("ul", *cards, class_="cards"))


def _level(advice: Advice) -> str:
    return advice.level if advice.level in LEVELS else "note"


def _card(advice: Advice) -> Markup:
    level = _level(advice)
    sign, word = LEVELS[level]
    head = el("h3", el("span", sign, class_="sign", aria_hidden="true"), word, class_="level")
    remedy = el("p", prose(advice.remedy), class_="remedy") if advice.remedy else None
    return el("li", head, el("p", prose(advice.what), class_="what"), remedy, class_=f"card {level}")
