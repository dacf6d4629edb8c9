"""Every function that the paper map names can be imported."""

import importlib
import re
from pathlib import Path

import pytest

PAPER_MAP = Path(__file__).parents[2] / "docs" / "paper-map.md"
ENTRIES = sorted(set(re.findall(r"`(cavity(?:\.\w+)+)`", PAPER_MAP.read_text(encoding="utf-8"))))


def resolve(path: str) -> object:
    """Import the longest module of a dotted path, then walk its attributes."""
    parts = path.split(".")
    for n_module in range(len(parts), 0, -1):
        name = ".".join(parts[:n_module])
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # the module is there, but something that it imports is not
            continue
        for attribute in parts[n_module:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(path)


def test_the_map_covers_the_equations_of_the_paper() -> None:
    text = PAPER_MAP.read_text(encoding="utf-8")
    numbers = {int(number) for number in re.findall(r"^\| \((\d+)\)", text, flags=re.MULTILINE)}
    assert set(range(1, 13)) <= numbers
    assert len(ENTRIES) >= 12


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_exists(entry: str) -> None:
    assert resolve(entry) is not None


def test_a_wrong_entry_is_noticed() -> None:
    with pytest.raises(AttributeError):
        resolve("cavity.datasets.no_such_function")
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        resolve("cavity.no_such_module.f")
