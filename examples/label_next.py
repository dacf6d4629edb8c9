# %% [markdown]
# # Which 100 of 1,000 rows to label
#
# Rows are often cheap and labels dear: a person must look at each. Active learning asks for the labels that teach the
# model most. Here are 1,000 places in a plane that three regions share. A survey of a place tells its region, and we
# can pay for 100 surveys.

# %%
import matplotlib.pyplot as plt
import numpy as np

from cavity import GPClassifier, active
from cavity.metrics import scores
from cavity.plot import BoundaryDisplay


def places(n, seed):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    turn = np.arctan2(X[:, 1], X[:, 0]) / np.pi + 1
    return X, np.array(["east", "north", "west"])[(1.5 * turn + 1.2 * np.hypot(*X.T)).astype(int) % 3]


X, region = places(1000, seed=0)  # `region` stands for the surveys: we look only at those that we ask for
X_test, y_test = places(2000, seed=1)
start = np.random.default_rng(0).permutation(1000)

# %% [markdown]
# Ten places at random are the start. Then `active.query` names 15 places at a time, those whose regions the model
# learns most from, and the model is fitted again.


# %%
def learn(ask):
    known, steps = start[:10], []
    while True:
        clf = GPClassifier(random_state=0).fit(X[known], region[known])
        found = scores(y_test, clf.predict_log_proba(X_test), clf.classes_)
        steps.append((len(known), found.nll, found.error))
        if len(known) == 100:
            return clf, known, np.array(steps)
        left = np.setdiff1d(np.arange(1000), known)
        known = np.concatenate([known, left[ask(clf, X[left])]])


runs = {
    "random": learn(lambda clf, pool: active.query(clf, pool, 15, "random", random_state=0)),
    "BALD": learn(lambda clf, pool: active.query(clf, pool, 15)),
}
for name, (_, known, steps) in runs.items():
    print(f"{name:7} {len(known)} labels: NLL {steps[-1, 1]:.2f}, error {steps[-1, 2]:.1%}")
more = GPClassifier(random_state=0).fit(X[start[:250]], region[start[:250]])
print(f"random  250 labels: NLL {scores(y_test, more.predict_log_proba(X_test), more.classes_).nll:.2f}")

# %% [markdown]
# Random places fall mostly inside the regions, where the answer is no surprise. BALD asks along the borders, and spreads
# each batch over them, because two places side by side teach much the same.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, (name, (clf, known, _)) in zip(axes, runs.items(), strict=True):
    BoundaryDisplay.from_estimator(clf, X[known], region[known], ax=ax)
    ax.set_title(f"100 labels, {name}")
# alt: The places that were asked for: all over the plane at random, and along the borders of the regions by BALD.

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, (_, _, steps)), color in zip(runs.items(), ["#D55E00", "#0072B2"], strict=True):
    ax.plot(steps[:, 0], steps[:, 1], "o-", color=color, markersize=4, label=name)
ax.set(xlabel="labels", ylabel="NLL of 2,000 other places", yscale="log")
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
# alt: NLL against the number of labels: by BALD it falls further below random's with each batch.

# %% [markdown]
# How many labels this saves depends on the data: much where classes have sharp borders, little where they overlap. See
# [active learning](../active-learning.md), with figures for nine data sets.
