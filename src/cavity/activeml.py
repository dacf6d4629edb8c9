"""`cavity.active.query` as a query strategy of scikit-activeml, which `pip install 'cavity[integrations]'` installs."""

from __future__ import annotations

from typing import Any

import numpy as np
from skactiveml.base import SingleAnnotatorPoolQueryStrategy, SkactivemlClassifier
from skactiveml.utils import MISSING_LABEL, check_equal_missing_label, is_labeled
from sklearn.base import clone

from cavity.active import choose


class PoolQuery(SingleAnnotatorPoolQueryStrategy):
    """A query strategy of scikit-activeml that asks a GPClassifier.

    Args:
        method: "bald", "epig", "entropy", "margin" or "random", as for `cavity.active.query`.
        missing_label: what stands in `y` for a label that is not known.
        random_state: seed of "random".
    """

    def __init__(self, method: str = "bald", missing_label: Any = MISSING_LABEL, random_state: Any = None) -> None:
        super().__init__(missing_label=missing_label, random_state=random_state)
        self.method = method

    def query(
        self,
        X: Any,
        y: Any,
        clf: Any,
        fit_clf: bool = True,
        sample_weight: Any = None,
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Choose rows to label next.

        Args:
            X: all rows, (N, D).
            y: their labels, `missing_label` where they are not known.
            clf: a GPClassifier, or a `SklearnClassifier` of scikit-activeml that holds one.
            fit_clf: whether to fit a copy of it to the labels first.
            sample_weight: weights of the rows for that fit.
            candidates: rows to choose from, or their indices in X; None for the rows without a label.
            batch_size: the number of rows.
            return_utilities: whether to return scores too.

        Returns:
            The indices of the rows, in X or in `candidates` if these are rows; with `return_utilities` also the scores
            at each choice, (batch_size, N), NaN for rows that were not compared.
        """
        X, y, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True, check_X_dict={"ensure_all_finite": "allow-nan"}
        )
        X_cand, mapping = self._transform_candidates(candidates, X, y)
        is_wrapped = isinstance(clf, SkactivemlClassifier)
        if is_wrapped:
            check_equal_missing_label(clf.missing_label, self.missing_label_)
        if fit_clf:
            known = slice(None) if is_wrapped else is_labeled(y, self.missing_label_)
            weight = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)[known]}
            clf = clone(clf).fit(X[known], y[known], **weight)
        model = getattr(clf, "estimator_", clf)
        choice = choose(model, X_cand, batch_size, self.method, random_state=self.random_state_)
        places = np.arange(len(X_cand)) if mapping is None else mapping
        rows = places[choice.rows]
        if not return_utilities:
            return rows
        utilities = np.full((batch_size, len(X if mapping is not None else X_cand)), np.nan)
        utilities[:, places[choice.candidates]] = choice.scores
        return rows, utilities
