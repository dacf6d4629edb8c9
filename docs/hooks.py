"""What the site takes from outside docs/, so that every file reads well on a code host and in the site alike.

Pages that live beside what they describe (benchmarks, experiments, CHANGELOG, CONTRIBUTING) become pages of the site.
A link to any other file of the repository brings the file along: a picture or a table as it is, a Python file as a page
that shows it. A comment `<!-- code: cavity.sites.cavity cavity.gp.sites.tilted -->` is replaced by the code of what it
names, in tabs.
"""

from __future__ import annotations

import ast
import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SOURCE = "src/cavity/"
PAGES = {  # path in the repository -> place in the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "tests/reference/README.md": "reference-values.md",
} | {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).with_name("index.md").as_posix()
    for path in sorted(ROOT.glob("experiments/**/README.md"))
}
PLACES = {place: path for path, place in PAGES.items() if path != "README.md"}

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^<!-- code: ([\w. \n]+?) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the files that pages link to."""
    for place, path in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for page in files.documentation_pages():
        for path in _linked(page):
            place = _place(path)
            if files.get_file_from_path(place) is None:
                files.append(_brought(path, place, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ to where the file is in the site, and show the code that comments name."""
    here = page.file.src_uri

    def turned(match: re.Match[str]) -> str:
        path = _path(here, match[1])
        target = match[1] if path is None else posixpath.relpath(_place(path), posixpath.dirname(here) or ".")
        return target + (match[2] or "")

    return CODE.sub(_tabs, _outside_fences(markdown, lambda text: LINK.sub(turned, text)))


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts, done = [], 0
    for fence in FENCED.finditer(markdown):
        parts += [change(markdown[done : fence.start()]), fence[0]]
        done = fence.end()
    return "".join([*parts, change(markdown[done:])])


def _linked(page: File) -> Iterator[str]:
    """Paths in the repository that a page links to and that are not in docs/."""
    links = (match[1] for match in LINK.finditer(FENCED.sub("", page.content_string)))
    paths = (_path(page.src_uri, link) for link in links)
    return (path for path in paths if path is not None and not path.startswith("docs/"))


def _path(here: str, link: str) -> str | None:
    """What a link of the page at `here` points at, as a path in the repository; None if it is not there.

    mkdocs warns of those, as of any other link to nowhere.
    """
    home = posixpath.dirname(PLACES.get(here, f"docs/{here}"))
    path = posixpath.normpath(posixpath.join(home, link))
    if (ROOT / path).is_dir():
        path += "/index.md" if path.startswith("docs/") else "/README.md"
    return path if (ROOT / path).is_file() else None


def _place(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".py"):
        return "source/" + path.removeprefix(SOURCE).removesuffix(".py") + ".md"
    return path


def _brought(path: str, place: str, config: MkDocsConfig) -> File:
    if not path.endswith(".py"):
        return File.generated(config, place, abs_src_path=str(ROOT / path))
    text = f'# {path.removeprefix("src/")}\n\n```python linenums="1"\n{(ROOT / path).read_text()}```\n'
    return File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _tabs(match: re.Match[str]) -> str:
    names = match[1].split()
    blocks = [f"```python\n{_code(name)}\n```" for name in names]
    titles = [name.removeprefix("cavity.").removeprefix("inference.") for name in names]
    tabs = zip(titles, blocks, strict=True)
    return "\n".join(f'=== "{title}"\n\n{textwrap.indent(block, "    ")}\n' for title, block in tabs)


def _code(name: str) -> str:
    """The text of the function, method or class of this dotted name."""
    parts = name.split(".")
    files = [(ROOT / "src" / "/".join(parts[:k])).with_suffix(".py") for k in range(len(parts))]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise PluginError(f"<!-- code: {name} --> names nothing: there is no such module")
    text = file.read_text()
    node: ast.AST = ast.parse(text)
    for part in parts[files.index(file) :]:
        node = _child(node, part, name)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _child(node: ast.AST, part: str, name: str) -> ast.AST:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part:
            return child
    raise PluginError(f"<!-- code: {name} --> names nothing: there is no {part!r}")
