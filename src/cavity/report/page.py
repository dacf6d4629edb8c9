"""The report: an object to show, print or save, and its HTML page.

The page loads nothing from elsewhere, runs only its own script, and has the same bytes for the same findings.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from cavity.files.atomic import atomic_write
from cavity.metrics import Interval
from cavity.report import sections
from cavity.report.findings import Findings
from cavity.report.html import Markup, el, join, prose
from cavity.report.palette import css_variables
from cavity.report.text import between, calibration_verdict, counted, number, percent, table

SECTIONS: tuple[tuple[str, str, Callable[[Findings], sections.Parts]], ...] = (
    ("scores", "Scores", sections.scores),
    ("advice", "Advice", sections.advice),
    ("calibration", "Calibration", sections.calibration),
    ("sets", "Prediction sets", sections.prediction_sets),
    ("confusion", "Confusion matrix", sections.confusion),
    ("features", "Features", sections.features),
    ("uncertainty", "Uncertainty", sections.uncertainty),
    ("novelty", "Novel rows", lambda found: sections.novelty(found.novelty)),
    ("map", "Map", sections.data_map),
    ("training", "Training", sections.training),
    ("settings", "Settings", sections.settings),
)
DARK = "screen and (prefers-color-scheme: dark)"  # print is always light
NOTEBOOK_HEIGHT = "720"


class Report:
    """The findings about a model: show them in a notebook, print them, or save them as one HTML page.

    Attributes:
        findings: the numbers, as plain values.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> report = GPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2]).report(X[1::2], y[1::2])
    >>> report.findings.n_rows
    75
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    @cached_property
    def html(self) -> str:
        """The report as one self-contained HTML page."""
        return page(self.findings)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, which is replaced atomically if it exists.

        Args:
            path: of the file, in an existing folder.

        Raises:
            ValueError: if the folder does not exist, or `path` is a folder.
        """
        return write_page(self.html, path)

    def __repr__(self) -> str:
        def spread(interval: Interval, as_percent: bool = False) -> str:
            value = percent(interval.value) if as_percent else number(interval.value)
            return f"{value} ({between(interval, as_percent)})"

        head = ["", "error", "NLL", "Brier", "calibration error"]
        rows = [[model.name, spread(model.error, True), *map(spread, (model.nll, model.brier, model.ece))]
                for model in self.findings.scores]  # fmt: skip
        warnings = [f"warning: {what}" for what in _warnings(self.findings)]
        return "\n".join([self.findings.title, f"{headline(self.findings)}.", "", table(head, rows), *warnings])

    def _repr_html_(self) -> str:
        return in_notebook(self.html, self.findings.title)


def headline(found: Findings) -> str:
    """Summarize accuracy and calibration in one sentence."""
    right = percent(1.0 - found.scores[0].error.value)
    verdict = calibration_verdict(found.calibration, found.no_verdict)
    return f"{right} accuracy on {counted(found.n_rows, 'row')}; {verdict}"


def support(found: Findings) -> str:
    """Give the interval of the accuracy, and compare the model with the best baseline by NLL, if rows are new."""
    if found.no_verdict:
        return "These scores do not tell how good the model is on new rows."
    model, *others = found.scores
    error = model.error
    accuracy = between(Interval(1 - error.value, 1 - error.high, 1 - error.low), as_percent=True)
    expected = f"Expected accuracy on new rows like these: {accuracy} (95 % confidence)."
    if not others:
        return expected
    rival = min(others, key=lambda other: other.nll.value)
    ours, theirs = number(model.nll.value), number(rival.nll.value)
    other = f"the best baseline, {rival.name}, has {theirs}"
    if model.nll.value > rival.nll.value:
        other = f"a baseline, {rival.name}, is better with {theirs}"
    return f"{expected} The negative log-likelihood is {ours}; {other}."


def page(findings: Findings) -> str:
    """Write the findings as a complete HTML page."""
    facts = [counted(findings.n_rows, "row"), counted(len(findings.classes), "class"), findings.created]
    alert = None
    if warnings := _warnings(findings):  # a good headline must not hide them
        link = el("a", f"All {len(warnings)} warnings" if len(warnings) > 1 else "What to do", href="#advice")
        alert = el("p", el("strong", "Warning: "), prose(warnings[0]), " ", link, class_="alert")
    drawn = [(key, title, draw(findings)) for key, title, draw in SECTIONS]
    texts = headline(findings), support(findings)
    return document("Model report", findings.title, facts, texts, findings.created, drawn, alert)


def document(
    kind: str,
    title: str,
    facts: Sequence[str],
    texts: tuple[str, str],
    created: str,
    drawn: Sequence[tuple[str, str, sections.Parts]],
    alert: Markup | None = None,
) -> str:
    """Write a complete HTML page.

    Args:
        kind: of the page, above its title.
        title: of the page.
        facts: in a line below it.
        texts: the verdict, and what supports it.
        created: when the page was made.
        drawn: key, title, and lead and parts of each section.
        alert: a warning.
    """
    script, style = (Markup(files("cavity.report").joinpath("assets", f"report.{kind}").read_text(encoding="utf-8"))
                     for kind in ("js", "css"))  # fmt: skip
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
              "base-uri 'none'; form-action 'none'")  # fmt: skip
    meta = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),  # no script but ours, nothing is fetched
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} – report"),
        el("link", rel="icon", href="data:,"),
        el("style", Markup(f"{css_variables('light')}\n{style}")),
        el("style", Markup(css_variables("dark")), id="dark", media=DARK),
    )
    button = el("button", "Dark theme", type="button", id="theme", hidden=True)
    header = el(
        "header",
        el("div", el("p", kind, class_="kicker"), button, class_="bar"),
        el("h1", title),
        el("p", join(el("span", fact) for fact in facts), class_="facts"),
        el("p", texts[0], ".", class_="verdict"),
        el("p", texts[1], class_="support"),
        alert,
    )
    links = [el("li", el("a", head, href=f"#{key}")) for key, head, _ in drawn]
    contents = el("nav", el("ol", *links), aria_label="Contents")
    made = []
    for key, head, (lead, *parts) in drawn:
        top = [el("h2", head, id=f"{key}-title"), None if lead is None else el("p", lead, class_="lead")]
        made.append(el("section", *top, *parts, id=key, aria_labelledby=f"{key}-title"))
    main = el("main", *made, id="report")
    footer = el("footer", el("p", f"Created {created}. This page is self-contained and loads nothing else."))
    layout = el("div", header, contents, main, footer, class_="layout")
    skip = el("a", "Skip to the report", href="#report", class_="skip")
    return f"<!doctype html>\n{el('html', meta, el('body', skip, layout, el('script', script)), lang='en')}\n"


def write_page(html: str, path: str | os.PathLike[str]) -> Path:
    """Write a page to a file in an existing folder; the file is replaced atomically if it exists."""
    target = Path(path)
    if not target.parent.is_dir():
        folder = str(target.parent)
        raise ValueError(f"`path` must be in an existing folder, got {str(path)!r}. Create {folder!r} first.")
    if target.is_dir():
        raise ValueError(f"`path` must be a file name such as 'report.html', got the folder {str(path)!r}.")
    with atomic_write(target) as unfinished:
        unfinished.write_bytes(html.encode())
    return target


def in_notebook(html: str, title: str) -> Markup:
    """Return a page in a frame of its own, so that its style and script stay apart from the notebook's."""
    return el("iframe", srcdoc=Markup(html), sandbox="allow-scripts", title=title, width="100%",
              height=NOTEBOOK_HEIGHT, style="border:0")  # fmt: skip


def _warnings(findings: Findings) -> list[str]:
    return [advice.what for advice in findings.advice if advice.level == "warning"]
