"""What tests of findings share."""

import pytest


@pytest.fixture(scope="module")
def coarse():
    """Compute entropies by a coarse average, and baselines by small forests: what they say is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cavity.gp.probabilities.NODES", 4)
        patch.setattr("cavity.report.baselines.TREES", 5)
        yield
