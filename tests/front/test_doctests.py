"""The examples in docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil

import pytest
from matplotlib import pyplot

import cavity

MODULES = sorted(module.name for module in pkgutil.walk_packages(cavity.__path__, "cavity."))


@pytest.mark.parametrize("name", ["cavity", *MODULES])
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    pyplot.close("all")
    assert not failed


def test_some_examples_were_found():
    finder = doctest.DocTestFinder()
    examples = sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert examples >= 5
