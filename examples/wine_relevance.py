# %% [markdown]
# # Wine: which measurements matter
#
# 178 wines from three growers, each with 13 chemical measurements. Which of them distinguish the growers? The kernel of
# a Gaussian process has one length-scale for every feature and class: how far you must move along the feature before
# the prediction changes. Training learns the length-scales, and their inverse is a measure of feature importance, the
# relevance.

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
# The gray bar is the mean over the growers, the dots are the single growers. If the dots differ, the feature
# distinguishes one grower from the rest better than it distinguishes the others.
#
# ## Is the ranking right?
#
# A list of important features is easy to make and hard to check. Here are two checks that need nothing but the data.
#
# **Use only some features.** Fit again with the four features at the top, and with the four at the bottom.

# %%
folds = StratifiedKFold(5, shuffle=True, random_state=0)
ranked = list(X.columns[display.order_])
error = {
    what: 1 - cross_val_score(clf, X[features], y, cv=folds).mean()
    for what, features in {"all 13": ranked, "first four": ranked[:4], "last four": ranked[-4:]}.items()
}
for what, share in error.items():
    print(f"{what:10} {share:5.1%} error")

# %% [markdown]
# The four features at the top do nearly as well as all of them; the four at the bottom make far more errors. (The
# ranking has used every wine, so the middle number is slightly optimistic.)
#
# **Add noise on purpose.** Add a shuffled copy of every feature: the same numbers, assigned to other wines. The copies
# contain no information, so their relevance shows what chance alone gives.

# %%
shuffled = X.apply(lambda column: np.random.default_rng(0).permutation(column)).add_prefix("shuffled ")
both = clone(clf).fit(X.join(shuffled), y)
with_noise = RelevanceDisplay.from_estimator(both, top=None)
is_noise = np.array([name.startswith("shuffled") for name in with_noise.feature_names[with_noise.order_]])
for bar, noise in zip(with_noise.bars_, is_noise, strict=True):
    bar.set_color("#E69F00" if noise else "0.8")
print(f"noise among the first ten features: {is_noise[:10].sum()}, among the last ten: {is_noise[-10:].sum()}")
# alt: Bars of relevance for 26 features; the shuffled copies, in orange, are mostly at the bottom.

# %% [markdown]
# The copies are at the bottom. They are not at zero: with few rows and a weak prior, length-scales do not grow to
# infinity. So compare with noise like this before you trust a small bar.
#
# ## Two features, one picture
#
# A model of the top two features can be drawn completely. The lines mark where the most probable grower changes; the
# color fades where the model is less confident.

# %%
two = GPClassifier(n_inducing=20, random_state=0).fit(X[ranked[:2]], y)
BoundaryDisplay.from_estimator(two, X[ranked[:2]], y)
plt.show()
# alt: Decision boundary over proline and flavanoids; the wines of the three growers lie in three regions.
