"""The examples in docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil
from importlib.util import find_spec

import pytest
from matplotlib import pyplot

import benchmarks
import cavity
import experiments

NEEDS = {"cavity.activeml": "skactiveml"}  # which the slow tests install
MODULES = sorted(
    module.name
    for package in (cavity, experiments, benchmarks)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if module.name not in NEEDS or find_spec(NEEDS[module.name]) is not None
)


@pytest.mark.parametrize("name", ["cavity", *MODULES])
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    pyplot.close("all")
    assert not failed


def test_some_examples_were_found():
    finder = doctest.DocTestFinder()
    examples = sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert examples >= 5
