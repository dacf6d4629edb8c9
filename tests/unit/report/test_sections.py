"""What sections compute for themselves."""

import numpy as np

from cavity.report.sections import confused_pairs


def test_confusions_are_listed_by_their_frequency():
    assert confused_pairs(np.array([[5, 1, 0], [3, 4, 0], [0, 2, 9]])) == [(1, 0, 3), (2, 1, 2), (0, 1, 1)]
    assert confused_pairs(np.eye(3, dtype=np.int64)) == []
