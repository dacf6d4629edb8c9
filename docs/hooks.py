"""Build hooks of the documentation: pages from outside docs/, code beside equations, and typeset equations.

- Pages that live beside what they describe (benchmarks, experiments, CHANGELOG, CONTRIBUTING) become pages of the site.
- A link to any other file of the repository adds that file to the site: pictures and tables unchanged, a Python file as
  a page that shows its code.
- A comment `<!-- code: cavity.gp.sites.cavity cavity.gp.sites.tilted -->` is replaced by the code of these names, in
  tabs.
- Equations, LaTeX between dollar signs, become MathML. Browsers draw MathML themselves, so a page needs no script.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SOURCE = "src/cavity/"
PAGES = {  # path in the repository -> path in the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "tests/reference/README.md": "reference-values.md",
} | {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).with_name("index.md").as_posix()
    for path in sorted(ROOT.glob("experiments/**/README.md"))
}
EXTERNAL = {place: path for path, place in PAGES.items() if path != "README.md"}

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^<!-- code: ([\w. \n]+?) -->$", re.MULTILINE)
# What the Markdown extension pymdownx.arithmatex leaves for $…$ and $$…$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
TYPOGRAPHY = [  # where browsers would draw what the converter writes in another way than LaTeX does
    (re.compile(r"(<mi>(?:log|det|exp|max)</mi>)(?!<mo|</mrow>)"), r'\1<mspace width="0.17em" />'),  # log Z, not logZ
    (re.compile(r"<mi>(&#x0039[1-9A-F];|&#x003A[0-9];)</mi>"), r'<mi mathvariant="normal">\1</mi>'),  # upright capitals
    (re.compile(r"<m[io]>(&#x02016;|&#x0007C;)</m[io]>"), r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
    (re.compile(r"<mi>&#x029F5;</mi>"), '<mo lspace="0" rspace="0">\u2216</mo>'),  # a set minus that fonts have
]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and the files that pages link to."""
    for place, path in EXTERNAL.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for page in files.documentation_pages():
        for path in _linked(page):
            place = _place(path)
            if files.get_file_from_path(place) is None:
                files.append(_added(path, place, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to the file's path in the site, and insert the code that comments name."""
    here = page.file.src_uri

    def in_site(match: re.Match[str]) -> str:
        path = _path(here, match[1])
        target = match[1] if path is None else posixpath.relpath(_place(path), posixpath.dirname(here) or ".")
        return target + (match[2] or "")

    return CODE.sub(_tabs, _outside_fences(markdown, lambda text: LINK.sub(in_site, text)))


def on_page_content(page_html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Typeset the equations of a page."""

    def typeset(match: re.Match[str]) -> str:
        try:
            return mathml(html.unescape(match[2]).strip(), is_block=match[1] == "div")
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error

    return EQUATION.sub(typeset, page_html)


def mathml(latex: str, is_block: bool) -> str:
    """Convert an equation from LaTeX to MathML; raise ValueError if it contains a command that is not known."""
    try:
        found = convert(latex, display="block" if is_block else "inline")
    except Exception as error:  # of many kinds, all of them local to latex2mathml
        raise ValueError(f"the equation ${latex}$ cannot be converted: {error!r}") from error
    if unknown := re.search(r"\\[a-zA-Z]+", found):  # the converter copies what it does not know
        raise ValueError(f"the equation ${latex}$ contains the unknown command {unknown[0]}")
    for pattern, replacement in TYPOGRAPHY:
        found = pattern.sub(replacement, found)
    # Wide equations scroll inside their own box, so that the page does not.
    return f'<div class="equation">{found}</div>' if is_block else found


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    parts, done = [], 0
    for fence in FENCED.finditer(markdown):
        parts += [change(markdown[done : fence.start()]), fence[0]]
        done = fence.end()
    return "".join([*parts, change(markdown[done:])])


def _linked(page: File) -> Iterator[str]:
    """Yield the paths in the repository, outside docs/, that a page links to."""
    links = (match[1] for match in LINK.finditer(FENCED.sub("", page.content_string)))
    paths = (_path(page.src_uri, link) for link in links)
    return (path for path in paths if path is not None and not path.startswith("docs/"))


def _path(here: str, link: str) -> str | None:
    """Return the path in the repository that a link of the page at `here` points to, or None for a broken link.

    mkdocs warns about broken links.
    """
    home = posixpath.dirname(EXTERNAL.get(here, f"docs/{here}"))
    path = posixpath.normpath(posixpath.join(home, link))
    if (ROOT / path).is_dir():
        path += "/index.md" if path.startswith("docs/") else "/README.md"
    return path if (ROOT / path).is_file() else None


def _place(path: str) -> str:
    """Return the path in the site of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".py"):
        return "source/" + path.removeprefix(SOURCE).removesuffix(".py") + ".md"
    return path


def _added(path: str, place: str, config: MkDocsConfig) -> File:
    if not path.endswith(".py"):
        return File.generated(config, place, abs_src_path=str(ROOT / path))
    text = f'# {path.removeprefix("src/")}\n\n```python linenums="1"\n{(ROOT / path).read_text()}```\n'
    return File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _tabs(match: re.Match[str]) -> str:
    names = match[1].split()
    blocks = [f"```python\n{_code(name)}\n```" for name in names]
    titles = [name.removeprefix("cavity.").removeprefix("inference.").removeprefix("gp.") for name in names]
    tabs = zip(titles, blocks, strict=True)
    return "\n".join(f'=== "{title}"\n\n{textwrap.indent(block, "    ")}\n' for title, block in tabs)


def _code(name: str) -> str:
    """Return the code of the function, method or class with this dotted name."""
    parts = name.split(".")
    files = [(ROOT / "src" / "/".join(parts[:k])).with_suffix(".py") for k in range(len(parts))]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise PluginError(f"<!-- code: {name} -->: module not found")
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
    raise PluginError(f"<!-- code: {name} -->: {part!r} not found")
