"""The command `cavity`, also as `python -m cavity`: Ctrl-C ends it with one line from the first moment on."""

import contextlib
import os
import signal
import sys
from typing import Any

INTERRUPTED = 130


def start() -> None:
    """Run the command. The handler is set before anything else is imported, which takes seconds on a slow disk."""
    is_interrupted = False

    def interrupt(number: int, stack: Any) -> None:
        nonlocal is_interrupted
        if is_interrupted:  # the first has not ended it, or not yet
            leave()
        is_interrupted = True
        sys.unraisablehook = lambda _: None  # an import that is cut short may leave objects that cannot be deleted
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    code: Any = None
    try:
        from cavity.cli import main

        main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        if not is_interrupted:
            raise
    if is_interrupted:
        leave("" if code == INTERRUPTED else "stopped\n")  # the command has printed a line of its own
    sys.exit(code)


def leave(text: str = "stopped\n") -> None:
    """End the process at once: nothing that runs at exit can print a traceback, or wait."""
    with contextlib.suppress(Exception):  # the reader may be gone, or a write interrupted
        sys.stdout.flush()
    os.write(2, text.encode())
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    start()
