"""What went wrong, what went well, and what to do about it."""

from __future__ import annotations

from cavity.report.advice_on_rows import ON_ROWS
from cavity.report.advice_on_scores import ON_SCORES
from cavity.report.advice_on_training import ON_TRAINING
from cavity.report.evidence import Evidence
from cavity.report.findings import Advice

LEVELS = ("warning", "note", "good")


def advice(evidence: Evidence) -> list[Advice]:
    """Everything worth saying, the worst first; no praise for what the model knew by heart."""
    found = [piece for check in (*ON_ROWS, *ON_SCORES, *ON_TRAINING) for piece in check(evidence)]
    if evidence.is_known_by_heart:
        found = [piece for piece in found if piece.level != "good"]
    return sorted(found, key=lambda piece: LEVELS.index(piece.level))
