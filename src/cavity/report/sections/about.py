"""Settings, and what was learned, as text."""

from __future__ import annotations

from cavity.report.findings import Findings
from cavity.report.html import Markup, el
from cavity.report.sections.parts import scrolls, section


def about(found: Findings) -> Markup:
    """A table of names and values."""
    if not found.about:
        return section("settings", "Settings", "No settings were kept.")
    rows = [el("tr", el("th", key, scope="row"), el("td", value)) for key, value in found.about]
    made = el(
        "table",
        el("caption", "Settings and what was learned"),
        el("colgroup", el("col"), el("col")),
        el("tbody", *rows),
        class_="about",
    )
    return section("settings", "Settings", None, scrolls("Settings and what was learned", made))
