"""An extension for mkdocstrings: the examples in docstrings become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!\s*$).*\n?)*\n*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Fence `>>>` examples, which Markdown would show as quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence the examples in the docstring of one object."""
        if obj.docstring is not None:
            value = obj.docstring.value + "\n"
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].strip()}\n```\n", value)
