"""Make the gallery's pages from the scripts in examples, and the pictures of docs/plots.md.

    python docs/gallery/make.py            all of them
    python docs/gallery/make.py digits     one page

A script is a list of cells in the percent format: `# %% [markdown]` starts a text cell (every line is a comment),
`# %%` a code cell. Cells run in order, in one namespace. The page shows each cell, what it prints, and the figures that
are open in pyplot at its end. A line `# alt: …` is the alternative text of a figure of its cell.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
EXAMPLES, GALLERY, PLOTS = ROOT / "examples", ROOT / "docs" / "gallery", ROOT / "docs" / "plots.md"
DPI = 120

MARK = re.compile(r"^# %%( \[markdown\])?\s*$", re.MULTILINE)
ALT = re.compile(r"^# alt: (.*)\n?", re.MULTILINE)
PICTURE = re.compile(r"^!\[([^\]]*)\]\((img/[^)]+)\)$", re.MULTILINE)
OUTPUT = re.compile(r"^```text\n.*?^```\n\n", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Cell(NamedTuple):
    """A cell: text or code, the alternative texts of its figures, and its first line in the script."""

    is_code: bool
    text: str
    alts: tuple[str, ...] = ()
    line: int = 1


class Output(NamedTuple):
    """What a cell prints, and its figures as PNG."""

    text: str = ""
    pictures: tuple[bytes, ...] = ()


def cells_of(script: str) -> list[Cell]:
    """Split a script into cells."""
    marks = list(MARK.finditer(script))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    if not marks or script[: marks[0].start()].strip():
        raise ValueError("a script of the gallery must start with a cell, # %% or # %% [markdown]")
    return [_cell(mark, script, end) for mark, end in zip(marks, ends, strict=True)]


def _cell(mark: re.Match[str], script: str, end: int) -> Cell:
    body, line = script[mark.end() : end], script.count("\n", 0, mark.end())
    if mark[1] is not None:
        return Cell(False, re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
    alts = tuple(found.strip() for found in ALT.findall(body))
    return Cell(True, ALT.sub("", body).strip(), alts, line + len(body) - len(body.lstrip("\n")) + 1)


def run(codes: Sequence[str], name: str, namespace: dict[str, Any]) -> Iterator[Output]:
    """Run pieces of code in order; yield what each prints and draws."""
    with _pyplot() as pyplot:
        for number, code in enumerate(codes, 1):
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(code, f"{name}, piece {number}", "exec"), namespace)
            yield Output(printed.getvalue(), tuple(_png(pyplot.figure(i)) for i in pyplot.get_fignums()))
            pyplot.close("all")


@contextmanager
def _pyplot() -> Iterator[Any]:
    """Yield pyplot with a backend that draws to memory; close all figures before and after."""
    import matplotlib as mpl
    from matplotlib import pyplot

    before, show = mpl.get_backend(), pyplot.show
    pyplot.close("all")
    pyplot.switch_backend("Agg")
    pyplot.show = lambda *args, **kwargs: None
    try:
        yield pyplot
    finally:
        pyplot.close("all")
        pyplot.show = show
        pyplot.switch_backend(before)


def _png(figure: Any) -> bytes:
    """Return a figure as PNG. 64 steps per color instead of 256 halve the size, with no visible difference."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    steps = Image.open(whole).convert("RGB").point(lambda light: 4 * (light // 4) + light // 64)
    steps.save(small, format="png", optimize=True)
    return small.getvalue()


def page_of(name: str, cells: Sequence[Cell], outputs: Sequence[Output]) -> str:
    """Return the page: text unchanged, and code with its output."""
    results = iter(outputs)
    parts = [part for cell in cells for part in (_shown(name, cell, next(results)) if cell.is_code else [cell.text])]
    return "\n\n".join([*_numbered(name, parts), f"Run it yourself: `python examples/{name}.py`."]) + "\n"


def _shown(name: str, cell: Cell, output: Output) -> Iterator[str]:
    if len(output.pictures) not in (0, len(cell.alts)):
        raise ValueError(f"{name}: {len(output.pictures)} figures, but {len(cell.alts)} lines `# alt: …` in the cell "
                         f"at line {cell.line}")  # fmt: skip
    yield f"```python\n{cell.text}\n```"
    if output.text.strip():
        yield f"```text\n{output.text.rstrip()}\n```"
    yield from (f"![{alt}](img/{name}_N.png)" for alt in cell.alts)


def _numbered(name: str, parts: Sequence[str]) -> Iterator[str]:
    """Number the pictures 1, 2, … in the order of the page."""
    count = 0
    for part in parts:
        is_picture = part.endswith(f"(img/{name}_N.png)")
        count += is_picture
        yield part.replace(f"{name}_N.png", f"{name}_{count}.png") if is_picture else part


def without_outputs(page: str) -> str:
    """Remove the printed output from a page. The rest is determined by the script alone."""
    return OUTPUT.sub("", page)


def make_page(name: str) -> None:
    """Run examples/name.py, and write its page and pictures."""
    cells = cells_of((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    outputs = list(run([cell.text for cell in cells if cell.is_code], name, {"__name__": "__main__"}))
    for old in (GALLERY / "img").glob(f"{name}_*.png"):
        old.unlink()
    for number, picture in enumerate((picture for output in outputs for picture in output.pictures), 1):
        (GALLERY / "img" / f"{name}_{number}.png").write_bytes(picture)
    (GALLERY / f"{name}.md").write_text(page_of(name, cells, outputs), encoding="utf-8")


def make_pictures(page: Path) -> None:
    """Run the code blocks of a page, and save the figures of each block as the pictures that follow it."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    ends = [block.start() for block in blocks[1:]] + [len(text)]
    for block, end, output in zip(blocks, ends, run([block[1] for block in blocks], page.name, {}), strict=True):
        files = [found[2] for found in PICTURE.finditer(text, block.end(), end)]
        for file, picture in zip(files, output.pictures, strict=True):
            (page.parent / file).write_bytes(picture)


def main(names: Sequence[str]) -> None:
    """Make the named pages ("plots" for the pictures of docs/plots.md), or all of them."""
    for name in names or [*sorted(path.stem for path in EXAMPLES.glob("*.py")), PLOTS.stem]:
        print(name, flush=True)
        make_pictures(PLOTS) if name == PLOTS.stem else make_page(name)


if __name__ == "__main__":
    main(sys.argv[1:])
