"""Docstrings as pages: the examples at their end become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!\s*$).*\n?)*\n*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences `>>>` examples, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for everything that is read, members before what holds them."""
        if obj.docstring is not None:
            value = obj.docstring.value + "\n"
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].strip()}\n```\n", value)
