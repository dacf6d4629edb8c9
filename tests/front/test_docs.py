"""The documentation: every block of code runs, every command parses, the site builds with no warning or network."""

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from urllib.parse import unquote, urldefrag

import click
import pytest

from cavity.cli import main
from cavity.data import schema, surveys
from cavity.fitting import encoding
from cavity.report import baselines
from tests import pages

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
READ = ["README.md", *DOCS]
BESIDE = ["CONTRIBUTING.md", "benchmarks/README.md", *(f"experiments/{path.parent.name}/README.md" for path in
          sorted((ROOT / "experiments").glob("*/README.md")))]  # fmt: skip
NEEDS = {"docs/migrate/gpytorch.md": "gpytorch"}
GALLERY = "docs/gallery/"  # its pages are made by running them, which tests/front/test_gallery.py repeats
LEFT_OUT = {  # page -> how many of its blocks are not run; each says why
    "docs/active-learning.md": 2,  # scikit-activeml and modAL, which test_active_packages.py runs
    "docs/clusters.md": 3,  # a cluster, Ray, Spark
    "docs/export.md": 1,  # skops and MLflow, which test_integrations.py runs
    "docs/migrate/gpflow.md": 1,  # GPflow wants NumPy 1
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = r"(?:cavity|python -m (?:experiments|benchmarks))"
IN_TEXT = re.compile(rf"^    ({PROGRAM} [a-z].*)$|`({PROGRAM} [a-zA-Z][^`]*)`", re.MULTILINE)
STAND_INS = {  # for placeholders in commands, and for a folder that only some machines have
    "experiments": {"NAME": "uci", "N": "2"},
    "benchmarks": {"NAME": "step", "../main/src": str(ROOT / "src")},
}
LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]*)")
TARGET = re.compile(r"\b(?:src|href)=\"([^\"#:]+)(?:#[^\"]*)?\"")


pytest.importorskip("mkdocs")
spec = spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
hooks = module_from_spec(spec)
spec.loader.exec_module(hooks)


def found(page):
    return pages.blocks((ROOT / page).read_text())


def sessions():
    """Pages with something to run."""
    for page in READ:
        is_run = any(block.language in (*pages.PYTHON, *pages.COMMANDS) for block in found(page))
        if is_run and not page.startswith(GALLERY):
            yield page


def test_how_blocks_are_found():
    assert doctest.testmod(pages) == (0, 2)


@pytest.mark.parametrize("page", list(sessions()))
def test_the_code_of_a_page_runs(page, tmp_path):
    if page in NEEDS and find_spec(NEEDS[page]) is None:
        pytest.skip(f"needs {NEEDS[page]}")
    pages.run(ROOT / page, tmp_path)


def test_the_page_on_tables_has_the_limits_of_the_code():
    page, words = (ROOT / "docs" / "tables.md").read_text(), {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    assert f"fewer than {words[encoding.RARE_ROWS]} training rows share" in page
    assert f"more than {encoding.MOST_INDICATORS} levels" in page
    assert f"one of {words[surveys.FOLDS]} parts" in page
    assert f"more than {schema.IDENTIFIER_LEVELS} levels" in page
    assert f"more than {10 * schema.IDENTIFIER_SHARE:g} different values for every 10 rows" in page
    assert f"at most {baselines.MAX_INDICATORS} in a column" in page


def _parse(line):
    """Parse a command up to its options; run nothing."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["python", "-m"]:
        rest = [STAND_INS[words[2]].get(word, word) for word in words[3:]]
        import_module(f"{words[2]}.__main__").main.make_context(words[2], rest)
        return
    program, name, *rest = words
    assert program == "cavity"
    command = main.get_command(click.Context(main), name)
    assert command is not None
    if rest and "--help" not in rest:
        command.make_context(name, rest[: rest.index(">") if ">" in rest else None])


def test_blocks_that_are_not_run_are_few_and_say_why():
    left_out = [(page, block.left_out) for page in READ for block in found(page) if block.left_out is not None]
    assert all(len(reason) > 5 for _, reason in left_out)
    assert Counter(page for page, _ in left_out) == LEFT_OUT


@pytest.mark.parametrize("page", DOCS)
def test_every_block_says_what_it_is(page):
    known = (*pages.PYTHON, *pages.COMMANDS, *pages.TEXT)
    assert [block.line for block in found(page) if block.language not in known] == []


@pytest.mark.parametrize("page", [*READ, *BESIDE])
def test_commands_in_the_text_are_commands(page):
    for match in IN_TEXT.finditer((ROOT / page).read_text()):
        _parse(match[1] or match[2])


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi"])
def test_the_steps_of_a_method_name_code(method):
    rooms = (
        "gp.sites",
        "gp.prior",
        "gp.gaussian",
        "gp.gradients",
        "numerics.quadrature",
        "numerics.power",
        "inference.full",
        f"inference.{method}",
    )
    places = [f"cavity.{room}" for room in rooms]
    modules = {place.rpartition(".")[2]: import_module(place) for place in places}
    text = (ROOT / f"docs/methods/{method}.md").read_text()
    listed = re.findall(r"Code: ((?:`[\w.]+`(?:, )?)+)", text)
    named = [name for names in listed for name in re.findall(r"[\w.]+", names)]
    assert len(named) > 3
    assert len(listed) == text.count("Code:")
    assert [name for name in named if not _exists(name, modules)] == []


def _exists(name, modules):
    first, *rest = name.split(".")
    starts = [modules[first]] if first in modules else [getattr(m, first, None) for m in modules.values()]
    for part in rest:
        starts = [getattr(start, part, None) for start in starts]
    return any(start is not None for start in starts)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement of another program
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("INFO")]
    assert (done.returncode, said) == (0, [])
    return folder


def test_the_pages_are_there(site):
    written = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    from_docs = {page.removeprefix("docs/").removesuffix(".md") + ".html" for page in DOCS}
    brought = {"changelog.html", "contributing.html", "benchmarks/index.html", "experiments/uci/index.html"}
    assert from_docs | brought | {"source/inference/ep.html"} <= written


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert LOADED.findall(text) == [], path
        assert "mermaid" not in text  # for which the theme would fetch a program
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text()) == [], path


def test_links_inside_the_site_lead_somewhere(site):
    for path in site.rglob("*.html"):
        if path.name != "404.html":  # its links start at the root of a server
            links = {urldefrag(unquote(link))[0].partition("?")[0] for link in TARGET.findall(path.read_text())}
            assert [link for link in sorted(links) if not (path.parent / link).exists()] == [], path
            assert [link for link in links if link.endswith((".md", ".py"))] == [], path


def test_equations_are_typeset(site):
    equations = {page: (site / page).read_text().count("<math") for page in ("notation.html", "methods/ep.html")}
    assert min(equations.values()) > 30
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert "arithmatex" not in text, path  # what the Markdown extension leaves where the hook does not match
        prose = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert re.findall(r"\\(?:frac|sum|log|text)\b|\$\$", prose) == [], path


def test_how_equations_are_converted():
    assert "<mi>log</mi><mspace" in hooks.mathml(r"\log Z", is_block=False)
    assert hooks.mathml("x", is_block=True).startswith('<div class="equation"><math')
    with pytest.raises(ValueError, match=r"unknown command \\nosuch"):
        hooks.mathml(r"x + \nosuch", is_block=False)
    with pytest.raises(ValueError, match="cannot be converted"):
        hooks.mathml(r"\left( x", is_block=False)


@pytest.mark.parametrize("page", [page for page in [*READ, "CONTRIBUTING.md"] if page != "docs/releasing.md"])
def test_install_commands_work_from_a_clone(page):
    """The package is not on PyPI."""
    assert re.findall(r"pip install '?cavity.*", (ROOT / page).read_text()) == []


@pytest.mark.parametrize("words", ["imbalanced", "feature importance", "missing values", "class weights"])
def test_search_finds_what_users_look_for(site, words):
    index = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    hits = [entry["location"] for entry in index if words in f"{entry['title']} {entry['text']}".lower()]
    assert "sharp-bits.html#" in " ".join(hits)
    assert len(hits) > 1


def test_code_is_shown_beside_the_equations(site):
    text = re.sub(r"<[^>]+>", "", (site / "methods/ep.html").read_text())
    assert "def new_site(" in text
    assert "&lt;!-- code" not in text


def test_search_works_from_a_folder_in_a_browser(site):
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium here")
    said = []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(site.as_uri()) else said.append(request.url))
        page.goto((site / "methods/ep.html").as_uri())
        page.focus("input[name=query]")
        page.get_by_text("Type to start searching").wait_for(state="attached")  # the index is read
        page.keyboard.type("sharpness")
        page.locator(".md-search-result__link").first.wait_for(state="attached")
        browser.close()
    assert said == []
