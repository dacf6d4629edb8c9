# %% [markdown]
# # Digits: which 100 of 1,000 images to label
#
# Rows are often cheap and labels dear: a person must look at each. Active learning asks for the labels that teach the
# model most. Here are 1,000 images of digits, and we can pay for 100 labels.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from cavity import GPClassifier, active
from cavity.metrics import scores

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
pool, test = order[:1000], order[1000:]


def fit(rows):
    clf = GPClassifier(random_state=0).fit(X[rows], y[rows])
    found = scores(y[test], clf.predict_log_proba(X[test]), clf.classes_)
    return clf, (len(rows), found.nll, found.error)


# %% [markdown]
# Forty images at random are the start. Then `active.query` names twenty at a time, those whose labels say most about
# all images in the pool, and the model is fitted again.

# %%
known, batches, curve = pool[:40], [], []
while True:
    clf, step = fit(known)
    curve.append(step)
    if len(known) == 100:
        break
    left = np.setdiff1d(pool, known)
    batches.append(left[active.query(clf, X[left], 20, "epig")])
    known = np.concatenate([known, batches[-1]])
random = [curve[0], *(fit(pool[:n])[1] for n in (70, 100, 150, 200, 250, 300))]
for name, steps in {"EPIG": curve, "random": random}.items():
    for n, nll, error in steps:
        if n >= 100:
            print(f"{name:6} {n} labels: NLL {nll:.2f}, error {error:.1%}")

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for steps, name, style, color in [(random, "random", "s--", "#D55E00"), (curve, "EPIG", "o-", "#0072B2")]:
    n, nll, _ = np.transpose(steps)
    ax.plot(n, nll, style, color=color, markersize=4, label=name)
ax.set(xlabel="labels", ylabel="NLL of 797 other images", ylim=(0, None))
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
# alt: NLL against the number of labels, by EPIG up to 100 and at random up to 300.

# %% [markdown]
# This is the last batch that it asked for, in order. Each image is chosen given those before it, so the batch does not
# ask twenty times about the same kind of digit.

# %%
figure, axes = plt.subplots(2, 10, figsize=(8, 2), layout="constrained")
for ax, row in zip(axes.flat, batches[-1], strict=True):
    ax.imshow(X[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(y[row], fontsize=9)
    ax.axis("off")
plt.show()
# alt: Twenty images of digits of many kinds.

# %% [markdown]
# How many labels this saves depends on the data: many where classes have sharp borders, few where they overlap. See
# [active learning](../active-learning.md), with figures for nine data sets.
