"""The report as one HTML page: no network, no fonts or scripts from elsewhere, the same bytes for the same findings."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from cavity.report.findings import Findings
from cavity.report.html import Markup, el, join
from cavity.report.numerals import many
from cavity.report.sections.about import about
from cavity.report.sections.advice import advice
from cavity.report.sections.calibration import calibration
from cavity.report.sections.confusion import confusion
from cavity.report.sections.features import features
from cavity.report.sections.parts import prose
from cavity.report.sections.plane import plane
from cavity.report.sections.scores import scores
from cavity.report.sections.training import training
from cavity.report.sections.unsure import unsure
from cavity.report.sections.verdict import support, verdict

SECTIONS = (
    ("scores", "Scores", scores),
    ("advice", "What to know", advice),
    ("calibration", "Calibration", calibration),
    ("confusion", "Confusions", confusion),
    ("features", "Features", features),
    ("unsure", "Where it is unsure", unsure),
    ("map", "Map", plane),
    ("training", "Training", training),
    ("settings", "Settings", about),
)
DARK = "screen and (prefers-color-scheme: dark)"  # paper stays light


def page(findings: Findings) -> str:
    """The whole page.

    Args:
        findings: what to show.
    """
    skip = el("a", "Skip to the report", href="#report", class_="skip")
    main = el("main", *(draw(findings) for _, _, draw in SECTIONS), id="report")
    layout = el("div", _header(findings), _contents(), main, _footer(findings), class_="layout")
    script = _asset("report.js")
    body = el("body", skip, layout, el("script", script))
    return "<!doctype html>\n" + el("html", _head(findings, script), body, lang="en") + "\n"


def _head(findings: Findings, script: Markup) -> Markup:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{findings.title} – report"),
        el("link", rel="icon", href="data:,"),
        el("style", _asset("report.css")),
        el("style", _asset("dark.css"), id="dark", media=DARK),
    )


def _policy(script: Markup) -> str:
    """Nothing may be fetched, and no other script may run than the one we wrote."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'")  # fmt: skip


def _header(findings: Findings) -> Markup:
    facts = [many(findings.n_rows, "row"), many(len(findings.classes), "class", "classes"), findings.made]
    button = el("button", "Dark", type="button", id="theme", hidden=True)
    return el(
        "header",
        el("div", el("p", "Model report", class_="kicker"), button, class_="bar"),
        el("h1", findings.title),
        el("p", join(el("span", fact) for fact in facts), class_="facts"),
        el("p", verdict(findings), ".", class_="verdict"),
        el("p", support(findings), class_="support"),
        _alert(findings),
    )


def _alert(findings: Findings) -> Markup | None:
    """The first warning, for a headline alone may please too much."""
    warnings = [advice.what for advice in findings.advice if advice.level == "warning"]
    if not warnings:
        return None
    more = f"All {len(warnings)} warnings" if len(warnings) > 1 else "What to do about it"
    return el("p", el("strong", "Warning: "), prose(warnings[0]), " ", el("a", more, href="#advice"), class_="alert")


def _contents() -> Markup:
    links = [el("li", el("a", title, href=f"#{key}")) for key, title, _ in SECTIONS]
    return el("nav", el("ol", *links), aria_label="Contents")


def _footer(findings: Findings) -> Markup:
    return el("footer", el("p", f"Made {findings.made}. The page holds all that it shows; nothing is fetched."))


def _asset(name: str) -> Markup:
    """A file of the package, as it is."""
    return Markup(files("cavity.report").joinpath("assets", name).read_text(encoding="utf-8"))
