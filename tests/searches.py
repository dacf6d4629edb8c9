"""Fits that begin with a search on some rows, made small."""

from __future__ import annotations

import pytest

from cavity.fitting import search, settings

BATCH_ROWS = 150  # more rows than this are learned in mini-batches, fewer by EP at fixed inducing points
N_ROWS = {"ep": 120, "batches": 300}
N_INDUCING = 12
SMALL = {
    settings: {
        "FULL_GP_WORK": 0.0,  # every table is too large for a full GP
        "FULL_BATCH_ROWS": BATCH_ROWS,
        "BATCH_SIZE": 40,
        "SEARCHED_STEPS": 20,
        "inducing_count": lambda *args: N_INDUCING,
    },
    search: {"START_ROWS": 30, "LEARN_ROWS": 40, "LEAST_OF_CLASS": 5, "TRIAL_STEPS": 3, "STEPS": 5},
}


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Let a search and the fit after it take a fraction of a second."""
    for module, values in SMALL.items():
        for name, value in values.items():
            patch.setattr(module, name, value)
