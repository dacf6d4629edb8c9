# %% [markdown]
# # Breast cancer: triage with a cost matrix
#
# A tumor is malignant or benign, and 30 numbers describe its cells. There is more to do than to name it: operate, send
# the patient home, or take a biopsy, which settles the question. Mistakes differ as well: to miss a cancer is far worse
# than to operate in vain. `decide` takes a table of what each action costs in each case, and returns the action of the
# least expected cost. The costs below are made up; those of a hospital would be its own.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier

data = load_breast_cancer(as_frame=True)
X, y = data.data, data.target_names[data.target]
cost = {  # true label -> action -> cost, in biopsies
    "malignant": {"operate": 0, "send home": 100, "biopsy": 1},
    "benign": {"operate": 10, "send home": 0, "biopsy": 1},
}
folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
fits = [
    (GPClassifier(n_inducing=15, max_epochs=40, random_state=0).fit(X.iloc[train], y[train]), X.iloc[test])
    for train, test in folds
]
found = [clf.decide(rows, cost) for clf, rows in fits]

truth = np.concatenate([y[test] for _, test in folds])
action = np.concatenate([one.action for one in found])
costs = np.concatenate([one.costs for one in found])
actions = found[0].actions
for name in actions:
    print(f"{name:10}", *(f"{label}: {((action == name) & (truth == label)).sum():4d}" for label in cost), sep="   ")

# %% [markdown]
# Each tumor is decided by a model that has not seen it. Every expected cost is a straight line in the probability of
# cancer, and the best action is the lowest line. A biopsy is worth its price in between: from 1 % to 90 %. The most
# probable label would change hands at 50 %, where no action should change at all.

# %%
# alt: Expected cost of the three actions against the probability of cancer, and the tumors of each kind below.
p = np.concatenate([clf.predict_proba(rows)[:, 1] for clf, rows in fits])
colors = {"operate": "#D55E00", "send home": "#0072B2", "biopsy": "#7F7F7F"}
figure, (ax, below) = plt.subplots(2, 1, figsize=(7, 5), layout="constrained", sharex=True, height_ratios=[3, 1])
grid = np.linspace(0, 1, 201)
for name, color in colors.items():
    ax.plot(100 * grid, grid * cost["malignant"][name] + (1 - grid) * cost["benign"][name], color=color, label=name)
ax.set(ylabel="expected cost / biopsies", ylim=(0, 4))
ax.legend(frameon=False, loc="upper center", ncols=3)
shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(p))
for name, color in colors.items():
    chosen = action == name
    below.plot(100 * p[chosen], (truth == "malignant")[chosen] + shift[chosen], ".", color=color, markersize=4)
below.set(xlabel="probability of cancer / %", yticks=[0, 1], yticklabels=["benign", "malignant"])
for axes in (ax, below):
    axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## What is it worth?
#
# The same table of costs decides with any probabilities: multiply the two. Here is what each way to decide costs in the
# end, and what the models expected it to cost.

# %%
matrix = np.array([[cost[label][name] for name in actions] for label in ("benign", "malignant")])
is_malignant = (truth == "malignant").astype(int)


def pay(name, choice, expected=None):
    paid[name] = matrix[is_malignant, choice].sum()
    missed = (is_malignant * (choice == 1)).sum()
    told = "" if expected is None else f"{expected.sum():9.0f}"
    print(f"{name:38} {told:9} {paid[name]:6d} {(choice == 2).sum():9d} {missed:7d}")


paid = {}
print(f"{'':38} {'expected':>9} {'cost':>6} {'biopsies':>9} {'missed':>7}")
best = costs.argmin(1)
pay("Gaussian process, least expected cost", best, costs.min(1))
for name, model in {
    "logistic regression, the same": make_pipeline(StandardScaler(), LogisticRegression()),
    "naive Bayes, the same": GaussianNB(),
}.items():
    other = np.concatenate([model.fit(X.iloc[train], y[train]).predict_proba(X.iloc[test]) for train, test in folds])
    pay(name, (other @ matrix).argmin(1), (other @ matrix).min(1))
pay("Gaussian process, most probable label", np.where(p > 0.5, 0, 1))
pay("a biopsy for everyone", np.full(len(y), 2))

# %% [markdown]
# Acting on the most probable label costs three times as much as acting on the costs, with the same probabilities. Naive
# Bayes is overconfident: it takes too few biopsies and pays for it, far more than it expects. The Gaussian process
# misses two cancers that look like benign tumors, one more than logistic regression. Each missed cancer is a third of
# its bill, so differences of this size are chance. As on the page about [hard cases](abstain.md), the simple model is
# as good on these data.
#
# ## Fifty biopsies and no more
#
# Now assume that the clinic can take only fifty biopsies. Who should have one? `value_of_label` says how much less a
# patient would cost on average if the label were known before acting. That is not the same as being unsure of the
# label: with these costs, a patient at 5 % needs the biopsy more than one at 60 %, for whom it is clear what to do.

# %%
# alt: Cost against the number of biopsies: choosing by the value of the label is lower than choosing by uncertainty.
without = {label: {name: row[name] for name in ("operate", "send home")} for label, row in cost.items()}
two = [clf.decide(rows, without) for clf, rows in fits]
choice = np.concatenate([one.choice for one in two])
value = np.concatenate([one.value_of_label for one in two])
harm = matrix[is_malignant, choice]
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
counts = np.arange(len(y) + 1)
total = {}
ranks = {
    "value of the label": (value, "#0072B2", "-"),
    "uncertainty of the label": (1 - np.abs(2 * p - 1), "#E69F00", "--"),
}
for name, (score, color, line) in ranks.items():
    first = np.argsort(-score, kind="stable")
    total[name] = counts + harm.sum() - np.append(0, np.cumsum(harm[first]))
    ax.plot(counts, total[name], line, color=color, label=f"by {name}")
    print(f"50 biopsies by {name:25} cost {total[name][50]}")
ax.set(xlabel="biopsies", ylabel="cost of all patients / biopsies", xlim=(0, 150), ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %% [markdown]
# ## Would more data help?
#
# Part of the value of knowing the label is open to learning: with more training rows near a patient, the model itself
# would know better. `value_of_rows` is that part. Where it is small beside the value of the label, the classes overlap,
# and it takes a biopsy.

# %%
of_rows = np.concatenate([one.value_of_rows for one in two])
print(f"value of all labels {value.sum():.0f} biopsies, of more training rows {of_rows.sum():.0f}")
for label in cost:
    print(f"{label:9} {value[truth == label].mean():5.2f} {of_rows[truth == label].mean():5.2f} for each")

# %% [markdown]
# ## Why this patient?
#
# The patient whose label is worth most: which measurements speak for cancer, and which against it? All contributions
# and the interactions add up to how far the margin is from its average; the page on
# [explanations](../explanations.md) says what they are.

# %%
# alt: Contributions of the ten measurements that matter most for one patient, as bars to both sides.
fold = int(np.argmax([one.value_of_label.max() for one in two]))
clf, rows = fits[fold]
row = rows.iloc[[two[fold].value_of_label.argmax()]]
why = clf.explain(row, label="malignant")
print(f"margin {why.margin[0]:+.2f} = {why.base[0]:+.2f} on average, contributions {why.contributions.sum():+.2f}, "
      f"interactions {why.interactions[0]:+.2f}")  # fmt: skip
largest = np.argsort(-np.abs(why.contributions[0]))[:10][::-1]
by = why.contributions[0, largest]
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.barh([f"{why.columns[j]} {row.iloc[0, j]:.3g}" for j in largest], by, color=np.where(by > 0, "#D55E00", "#0072B2"))
ax.axvline(0, color="0.3", linewidth=0.8)
ax.set(xlabel="for benign  ←  contribution to the margin  →  for malignant")
ax.spines[["top", "right", "left"]].set_visible(False)
ax.tick_params(axis="y", length=0)
plt.show()
