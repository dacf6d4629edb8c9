"""One small problem for all tests of the package, and what the loop oracle computes for it."""

import pytest

from tests.problems import random_problem
from tests.reference import oracle

PROBLEM = random_problem(seed=1, n_rows=9)


@pytest.fixture(scope="module")
def dense():
    """K, υ and s of the rows, from the loop oracle."""
    return oracle.prior(PROBLEM.X, *PROBLEM.hyper)


@pytest.fixture
def prior():
    return PROBLEM.prior()
