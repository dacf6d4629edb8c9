# %% [markdown]
# # Titanic: categories and gaps, as they come
#
# Who survived the Titanic? The record of 2,201 people has no numbers at all: class, sex, and child or adult. A frame of
# such columns goes into `fit` as it is. This page looks at what the model makes of it, what happens where a value is
# missing, and what it says about a value that it has never seen.
#
# The counts are those of the British Board of Trade's inquiry of 1912, as given by R. J. M. Dawson, *The "unusual
# episode" data revisited*, Journal of Statistics Education 3 (1995).

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cavity import GPClassifier
from cavity.metrics import wilson_interval

counts = pd.DataFrame(
    [
        # class, sex, age, number who died, number who survived
        ("1st", "male", "child", 0, 5),
        ("1st", "male", "adult", 118, 57),
        ("1st", "female", "child", 0, 1),
        ("1st", "female", "adult", 4, 140),
        ("2nd", "male", "child", 0, 11),
        ("2nd", "male", "adult", 154, 14),
        ("2nd", "female", "child", 0, 13),
        ("2nd", "female", "adult", 13, 80),
        ("3rd", "male", "child", 35, 13),
        ("3rd", "male", "adult", 387, 75),
        ("3rd", "female", "child", 17, 14),
        ("3rd", "female", "adult", 89, 76),
        ("crew", "male", "adult", 670, 192),
        ("crew", "female", "adult", 3, 20),
    ],
    columns=["class", "sex", "age", "died", "survived"],
)
long = counts.melt(["class", "sex", "age"], var_name="fate", value_name="people")
people = long.loc[long.index.repeat(long["people"])].reset_index(drop=True)
X, y = people[["class", "sex", "age"]], people["fate"]
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

clf = GPClassifier(random_state=0).fit(X_train, y_train)
for column in clf.columns_:
    print(f"{column.name:6} {column.describe()}: {', '.join(column.levels)}")

# %% [markdown]
# ## Does it know the interactions?
#
# Women were saved before men, but in third class more than half of them died. The children of first and second class
# were all saved, most of those in third class were not. Logistic regression on indicators adds up the effects of the
# columns and cannot say that. Here is the share of survivors in every group of ten or more people, with its 95 %
# interval, beside both models. The models have seen one half of the people, the shares are those of the other half.

# %%
# alt: Share of survivors with intervals for nine groups of people, and the probabilities of two models.
additive = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X_train, y_train)

table = X_test.assign(n=1, k=y_test == "survived").groupby(list(X.columns), as_index=False).sum()
table = table[table["n"] >= 10].reset_index(drop=True)
group = table[list(X.columns)]
table["Gaussian process"] = clf.predict_proba(group)[:, 1]
table["logistic regression"] = additive.predict_proba(group)[:, 1]
low, high = wilson_interval(table["k"], table["n"])

fig, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
place = np.argsort(np.argsort(table["Gaussian process"]))
ax.hlines(place, low, high, color="0.8", lw=7, label="share of survivors, 95 % interval")
ax.plot(table["Gaussian process"], place, "o", color="#0072B2", label="Gaussian process")
ax.plot(table["logistic regression"], place, "x", color="#D55E00", label="logistic regression")
ax.set_yticks(place, [f"{row.n} × {', '.join(row[1:4])}" for row in table.itertuples()])
ax.set(xlabel="probability of survival", xlim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(loc="lower right", fontsize="small", frameon=False)
plt.show()

for name in ("Gaussian process", "logistic regression"):
    inside = ((low <= table[name]) & (table[name] <= high)).sum()
    nll = log_loss(y_test, (clf if name == "Gaussian process" else additive).predict_proba(X_test))
    print(f"{name:20} {inside} of {len(table)} within the interval, NLL {nll:.3f}")

# %% [markdown]
# ## Gaps
#
# Suppose that the records are incomplete: three in ten entries are lost, here and there. Dropping the incomplete rows
# would leave a third of them, and it would give no answer for an incomplete new row. The model takes them as they are:
# a missing level is none of the known levels, and what the row does say still counts.

# %%
rng = np.random.default_rng(0)
torn, torn_test = (part.mask(rng.random(part.shape) < 0.3) for part in (X_train, X_test))
is_whole = torn.notna().all(axis=1)
with_gaps = GPClassifier(random_state=0).fit(torn, y_train)
only_whole = GPClassifier(random_state=0).fit(torn[is_whole], y_train[is_whole])

scores = {
    "class frequencies": log_loss(y_test, np.tile(y_train.value_counts(normalize=True).sort_index(), (len(y_test), 1))),
    f"trained on the {is_whole.sum()} whole rows": log_loss(y_test, only_whole.predict_proba(torn_test)),
    f"trained on all {len(torn)} rows": log_loss(y_test, with_gaps.predict_proba(torn_test)),
    "no gaps anywhere": log_loss(y_test, clf.predict_proba(X_test)),
}
for what, value in scores.items():
    print(f"{what:30} NLL {value:.3f} on the other half")

# %% [markdown]
# ## What is not known
#
# Women in first and in third class, a woman whose class is missing, and one whose class is a word that no training row
# has:

# %%
women = pd.DataFrame({"class": ["1st", "3rd", None, "steerage"], "sex": "female", "age": "adult"})
survive = with_gaps.predict_proba(women)[:, 1]
for name, p in zip(women["class"].fillna("missing"), survive, strict=True):
    print(f"{name:8} {p:.0%} survive")

# %% [markdown]
# A new word is read like a missing one: it is none of the known levels. Its answer lies between those of the classes.
#
# More in [Tables with categories and gaps](../tables.md).
