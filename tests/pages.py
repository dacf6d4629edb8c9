"""The code blocks of Markdown pages, and how each is run.

The blocks of a page are one session, in order: a process with an empty folder of its own, in which warnings are errors.

- ```python blocks share their names; those that begin with >>> must print what they show; one with a title such as
  title="train.py" is a file that a later command runs;
- ```console and ```bash blocks are commands, one after the other. `cavity …` runs in the same process, by the function
  that the installed command calls; all others in a shell, with the environment's own programs first on the path. Where
  lines begin with "$ " the others are what the commands print. A command of `NOT_RUN` is passed over;
- every other block is text.

Comments that a reader of the page does not see say more of the block that follows:

- <!-- setup … --> is Python of its own, for files that the page takes as given;
- <!-- not run: reason --> leaves the next block out (a Python block must still compile);
- <!-- prints --> says that the next block is what the one before it prints, numbers to a quarter or 0.02: on
  another machine rounding errors may have grown.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

COMMANDS, PYTHON, TEXT = ("console", "bash"), ("python",), ("text", "csv", "json", "toml")
NOT_RUN = {  # the first word of a command -> why it is not run
    "make": "makes an environment of its own",
    "pip": "needs the network",
}
FENCE = re.compile(r'^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>\w*)(?:.*title="(?P<title>[^"]*)")?')
COMMENT = re.compile(r"^<!-- (?P<name>setup|not run|prints)(?:: (?P<reason>.*?))?(?P<end> -->)?$")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
SHELL = set("|<>&;$*`~")
SECONDS = 300


class Block(NamedTuple):
    """A fenced block, or the set-up in a comment.

    Attributes:
        language: the word after the fence; "python" for set-up.
        text: what is in it, without common indentation.
        line: of the page, where the text begins, counted from 1.
        title: as the fence gives it.
        left_out: why it is not run; None where it is.
        is_output: whether it is what the block before it prints.
    """

    language: str
    text: str
    line: int
    title: str | None = None
    left_out: str | None = None
    is_output: bool = False


def blocks(page: str) -> list[Block]:
    """All of them, in order.

    >>> blocks("text\\n\\n<!-- not run: a reason -->\\n```python\\n1 / 0\\n```\\n")
    [Block(language='python', text='1 / 0\\n', line=5, title=None, left_out='a reason', is_output=False)]
    """
    lines, found, i, said = page.splitlines(), [], 0, dict[str, Any]()
    while i < len(lines):
        fence, comment = FENCE.match(lines[i]), COMMENT.match(lines[i])
        if fence:
            end = _find(lines, i + 1, fence["indent"] + fence["mark"])
            text = _dedent(lines[i + 1 : end], len(fence["indent"]))
            found.append(Block(fence["language"], text, i + 2, fence["title"], **said))
            i, said = end, {}
        elif comment and comment["name"] == "setup":
            end = _find(lines, i + 1, "-->")
            found.append(Block("python", _dedent(lines[i + 1 : end], 0), i + 2))
            i = end
        elif comment:
            said = {"is_output": True} if comment["name"] == "prints" else {"left_out": comment["reason"]}
        i += 1
    return found


def _find(lines: list[str], first: int, end: str) -> int:
    return next(i for i in range(first, len(lines)) if lines[i].rstrip() == end)


def _dedent(lines: list[str], width: int) -> str:
    return "".join(f"{line[width:]}\n" for line in lines)


def run(path: Path, folder: Path) -> None:
    """The whole session of a page, in a process of its own."""
    env = _env() | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-W", "error", "-m", "tests.pages", str(path)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def session(path: Path) -> None:
    """All blocks in order, in this process and in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(path.read_text()):
        if block.is_output:
            _compare(printed, block.text, f"{path}:{block.line}")
        elif block.language in PYTHON and (block.title or "").endswith(".py"):
            Path(str(block.title)).write_text(block.text)
        elif block.language in PYTHON:
            printed = _python(block, path, names)
        elif block.language in COMMANDS and block.left_out is None:
            printed = "".join(_command(line) for line in commands(block.text))


def _python(block: Block, path: Path, names: dict[str, Any]) -> str:
    if block.text.startswith(">>>"):
        return _doctest(block, path, names)
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")  # so that errors name the page's line
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if block.left_out is None:
            exec(code, names)
    return printed.getvalue()


def _doctest(block: Block, path: Path, names: dict[str, Any]) -> str:
    test = doctest.DocTestParser().get_doctest(block.text, names, path.name, str(path), block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)
    return ""


def commands(text: str) -> list[str]:
    """The commands of a block that are to be run.

    >>> commands("$ pip install cavity\\n$ cavity fit a.csv \\\\\\n    -o b  # a comment\\nfitted\\n")
    ['cavity fit a.csv -o b']
    """
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    lines = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines]
    return [line for line in lines if line and line.split()[0] not in NOT_RUN]


def _env() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


def _command(line: str) -> str:
    """What it prints; an error where it fails."""
    if line.startswith("cavity ") and not SHELL.intersection(line):
        return _in_process(shlex.split(line)[1:])
    done = subprocess.run(["bash", "-c", line], env=_env(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _in_process(words: list[str]) -> str:
    from cavity.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main(words, prog_name="cavity", standalone_mode=False)
    assert not code, f"cavity {shlex.join(words)} ends with {code}"
    return printed.getvalue()


def _compare(printed: str, expected: str, where: str) -> None:
    """The same words, numbers nearly."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", expected).split(), f"{where}: it prints\n{printed}"
    for a, b in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        assert abs(float(a) - float(b)) <= max(0.02, 0.25 * abs(float(b))), f"{where}: {b} is {a}\n{printed}"


if __name__ == "__main__":
    session(Path(sys.argv[1]))
