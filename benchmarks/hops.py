"""Trace a call through the package: which functions it enters, in which order, and where it calls back up the stack.

    python benchmarks/hops.py SRC fit             # or predict_proba, or sep_step; SRC is the src folder of a checkout

The output is a tree of first visits, one line `file:function` each, without `numerics` and `kernels`: how far a reader
has to follow a call (docs/adr/0009-the-house.md).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

LEFT_OUT = ("numerics/", "kernels/")
LOOP = ("loop:Trainer.train", "Adam.step")  # where the loop starts, and its first step


class Trace:
    """A profiler that records first visits of functions.

    Args:
        root: the folder of the package.
    """

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self.visits: list[tuple[int, str]] = []
        self.callbacks: list[str] = []
        self.chains: dict[str, list[str]] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = self._name(frame)
        if event != "call" or name is None:
            return
        stack, caller = [name], frame.f_back
        while caller is not None:
            if (above := self._name(caller)) is not None:
                stack.insert(0, above)
            caller = caller.f_back
        for end in LOOP:
            if name.endswith(end) and end not in self.chains:
                self.chains[end] = stack
        if all(name != visited for _, visited in self.visits):
            self.visits.append((len(stack) - 1, name))
            files = [function.partition(":")[0] for function in stack]
            if len(files) > 1 and files[-1] != files[-2] and files[-1] in files[:-1]:
                self.callbacks.append(f"{stack[-2]} -> {name}")

    def _name(self, frame: FrameType) -> str | None:
        file, function = frame.f_code.co_filename, frame.f_code.co_qualname
        path = file.removeprefix(self._root)
        if path == file or path.startswith(LEFT_OUT) or frame.f_code.co_name.startswith("<"):
            return None
        return f"{path.removesuffix('.py')}:{function}"


def main(src: str, what: str) -> None:
    """Trace one call and print the tree."""
    sys.path.insert(0, src)
    from sklearn.datasets import load_iris

    from cavity import GPClassifier

    X, y = load_iris(return_X_y=True)
    settings: dict[str, Any] = {"random_state": 0, "max_epochs": 3, "n_inducing": 10, "device": "cpu"}
    if what == "sep_step":
        settings |= {"method": "sep", "batch_size": 50, "calibrate": False}
    GPClassifier(**settings).fit(X, y).predict_proba(X[:3])  # so that imports are not traced
    model, trace = GPClassifier(**settings), Trace(Path(src).resolve() / "cavity")
    if what == "predict_proba":
        model.fit(X, y)
    sys.setprofile(trace)
    model.predict_proba(X[:3]) if what == "predict_proba" else model.fit(X, y)
    sys.setprofile(None)
    for depth, name in trace.visits:
        print("  " * depth + name)
    for end, chain in trace.chains.items():
        print(f"\n{len(chain)} functions down to {end}: {' -> '.join(chain)}")
    files = {name.partition(":")[0] for _, name in trace.visits}
    print(
        f"\n{len(trace.visits)} functions in {len(files)} files; calls back into a file further up: {trace.callbacks}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
