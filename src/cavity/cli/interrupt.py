"""Ctrl-C: once to stop with what there is, twice to leave at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = b"\nstopping after this step; again to leave at once\n"
STDERR = 2


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises KeyboardInterrupt, as the first would elsewhere."""
    asked = threading.Event()

    def ask(number: int, at: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        os.write(STDERR, STOPPING)  # a stream may be in the middle of something

    if threading.current_thread() is not threading.main_thread():  # signals come to that one only
        yield asked
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
