# %% [markdown]
# # Wine: which measurements matter
#
# 178 wines from three growers, each with 13 numbers from a chemist. Which of them tell the growers apart? The kernel
# of a Gaussian process has a length-scale for every feature and class: how far you must go along the feature before
# the answer changes. Training finds them, and one over the length-scale is a measure of relevance.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score

from cavity import GPClassifier
from cavity.plot import BoundaryDisplay, RelevanceDisplay

X, y = load_wine(return_X_y=True, as_frame=True)
y = np.array(["grower A", "grower B", "grower C"])[y]
clf = GPClassifier(n_inducing=20, max_epochs=50, calibrate=False, random_state=0).fit(X, y)

display = RelevanceDisplay.from_estimator(clf)
# alt: Bars of relevance for 13 features with a dot for each grower; proline, flavanoids and color are at the top.

# %% [markdown]
# The grey bar is the mean over the growers, the dots are the growers themselves. Where dots lie apart, a feature tells
# one grower from the rest better than it tells the others.
#
# ## Is it true?
#
# A list of important features is easily made and hard to check. Two checks that need nothing but the data:
#
# **Use only some.** Fit again with the four features at the top, and with the four at the bottom.

# %%
folds = StratifiedKFold(5, shuffle=True, random_state=0)
ranked = list(X.columns[display.order_])
error = {
    what: 1 - cross_val_score(clf, X[features], y, cv=folds).mean()
    for what, features in {"all 13": ranked, "first four": ranked[:4], "last four": ranked[-4:]}.items()
}
for what, share in error.items():
    print(f"{what:10} {share:5.1%} wrong")

# %% [markdown]
# Four measurements at the top do nearly the work of all; four at the bottom are wrong far more often. (The ranking has
# seen every wine, so the middle number flatters a little.)
#
# **Add noise on purpose.** Put a shuffled copy of every feature beside it: the same numbers, dealt to other wines. They
# can mean nothing, so whatever relevance they get is what chance gives.

# %%
shuffled = X.apply(lambda column: np.random.default_rng(0).permutation(column)).add_prefix("shuffled ")
both = clone(clf).fit(X.join(shuffled), y)
with_noise = RelevanceDisplay.from_estimator(both, top=None)
is_noise = np.array([name.startswith("shuffled") for name in with_noise.feature_names[with_noise.order_]])
for bar, noise in zip(with_noise.bars_, is_noise, strict=True):
    bar.set_color("#E69F00" if noise else "0.8")
print(f"of the first ten features {is_noise[:10].sum()} are noise, of the last ten {is_noise[-10:].sum()}")
# alt: Bars of relevance for 26 features; the shuffled copies, in orange, gather at the bottom.

# %% [markdown]
# The copies gather at the bottom. They are not at zero: few rows, and a weak prior, keep length-scales from running off
# to infinity. So compare with noise like this before you call a small bar a finding.
#
# ## Two features, one picture
#
# A model of the two features at the top can be drawn whole. The lines are where the most probable grower changes; the
# color fades where the model is less sure.

# %%
two = GPClassifier(n_inducing=20, random_state=0).fit(X[ranked[:2]], y)
BoundaryDisplay.from_estimator(two, X[ranked[:2]], y)
plt.show()
# alt: Decision boundary over proline and flavanoids; the wines of the three growers lie in three regions.
