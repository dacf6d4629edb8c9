# %% [markdown]
# # Breast cancer: label 100 rows instead of 400
#
# Rows are often cheap and labels dear: here, 30 measurements of the nuclei of a cell sample come from an image, and a
# biopsy must tell whether the tumor is malignant. Active learning asks for the labels that teach the model most.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from cavity import GPClassifier, active
from cavity.metrics import scores

data = load_breast_cancer(as_frame=True)
y = np.array(["malignant", "benign"])[data.target]


def nll(clf, X, y):
    return scores(y, clf.predict_log_proba(X), clf.classes_).nll


# %% [markdown]
# Four times, 400 samples are the pool, and the others are for tests. Twenty samples at random have labels from the
# start. Then `active.query` names twenty more at a time, and the model is fitted again. Random labels are the comparison,
# up to all 400.

# %%
curves = {"BALD": [], "random": []}
for seed in range(4):
    X, X_test, label, label_test = train_test_split(data.data, y, train_size=400, stratify=y, random_state=seed)
    order = np.random.default_rng(seed).permutation(400)
    known, found = order[:20], []
    while len(known) <= 100:
        clf = GPClassifier(random_state=0).fit(X.iloc[known], label[known])
        found.append(nll(clf, X_test, label_test))
        left = np.setdiff1d(order, known)
        known = np.concatenate([known, left[active.query(clf, X.iloc[left], 20)]])
    curves["BALD"].append(found)
    fits = [GPClassifier(random_state=0).fit(X.iloc[order[:n]], label[order[:n]]) for n in (60, 100, 200, 400)]
    curves["random"].append([found[0], *(nll(clf, X_test, label_test) for clf in fits)])
mean = {name: np.mean(found, axis=0) for name, found in curves.items()}
print(f"NLL with 100 labels, BALD:   {mean['BALD'][-1]:.3f}")
print(f"NLL with 100 labels, random: {mean["random"][2]:.3f}")
print(f"NLL with 400 labels:         {mean['random'][-1]:.3f}")

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.axhline(mean["random"][-1], color="0.6", linewidth=0.8)
ax.plot([20, 60, 100, 200, 400], mean["random"], "s--", color="#D55E00", markersize=4, label="random")
ax.plot(range(20, 101, 20), mean["BALD"], "o-", color="#0072B2", markersize=4, label="BALD")
ax.set(xlabel="labels", ylabel="NLL of the test samples", ylim=(0, None))
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
# alt: NLL against the number of labels. With 100 labels by BALD it is near that of all 400.

# %% [markdown]
# What did the last model ask for? Most samples in the pool are clear cases, and it hardly asks for those.

# %%
asked = known[20:100]
share = GPClassifier(random_state=0).fit(X.iloc[order[:60]], label[order[:60]]).predict_proba(X)[:, 1]
unclear = (share > 0.05) & (share < 0.95)
print(f"unclear to a model of 60 random labels: {unclear.mean():.0%} of the pool, {unclear[asked].mean():.0%} of those")

# %% [markdown]
# How many labels this saves depends on the data: many where classes have sharp borders, few where they overlap. See
# [active learning](../active-learning.md), with figures for nine data sets.
