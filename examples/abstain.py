# %% [markdown]
# # Breast cancer: leave the hard cases to a person
#
# 569 tumors, benign or malignant, are described by 30 numbers from images of their cells. No classifier is right on all
# of them. But with calibrated probabilities, a classifier can tell which cases it should not decide, and how many
# mistakes it will make on the others.
#
# For a fair comparison, each tumor is predicted by a model that has not seen it (five-fold cross-validation).

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier

data = load_breast_cancer()
X, y = data.data, data.target_names[data.target]
classes = np.unique(y)
folds = StratifiedKFold(5, shuffle=True, random_state=0)

models = {
    "Gaussian process": GPClassifier(n_inducing=15, max_epochs=40, random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "naive Bayes": GaussianNB(),
}
risk, wrong = {}, {}
for name, model in models.items():
    p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    risk[name] = 1 - p.max(1)  # the model's estimate
    wrong[name] = classes[p.argmax(1)] != y  # the outcome
    print(f"{name:20} expects {risk[name].sum():5.1f} mistakes and makes {wrong[name].sum()}")

# %% [markdown]
# One minus the largest probability is the risk of being wrong. Its sum over all tumors is the number of mistakes that
# the model expects. Naive Bayes treats every feature as independent evidence, although many carry the same information,
# and expects almost no mistakes. The other two models expect a few more mistakes than they make.
#
# ## Decide, or ask a person?
#
# Sort the tumors by risk and hand the riskiest to a person. What is the error rate among the rest?

# %%
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
looks = {
    "Gaussian process": ("#0072B2", "-"),
    "logistic regression": ("#E69F00", "-."),
    "naive Bayes": ("#7F7F7F", "--"),
}
for name, (color, line) in looks.items():
    sorted_wrong = wrong[name][np.argsort(risk[name], kind="stable")]
    kept = np.arange(1, len(y) + 1)
    ax.plot(100 * (1 - kept / len(y)), 100 * np.cumsum(sorted_wrong) / kept, color=color, linestyle=line, label=name)
ax.set(xlabel="handed to a person / %", ylabel="error among the others / %", xlim=(0, 40), ylim=(0, None))
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
# alt: Error among the tumors decided by the model, against the share handed over: it falls fast for all three.

# %% [markdown]
# ## The cost of a mistake sets the threshold
#
# Assume that a mistake costs as much as twenty reviews by a person. Then a case is worth a review if its risk is above
# 1/20. There is nothing to tune. The rule is as good as the probabilities.

# %%
cost_of_mistake = 20
total = {}
print(f"{'':20} {'handed over':>12} {'mistakes left':>14} {'expected':>9} {'cost':>6}")
for name in models:
    ask = risk[name] > 1 / cost_of_mistake
    left, expected = wrong[name][~ask].sum(), risk[name][~ask].sum()
    total[name] = ask.sum() + cost_of_mistake * left
    print(f"{name:20} {ask.mean():12.0%} {left:14d} {expected:9.1f} {total[name]:6d}")
print(f"{'a person alone':20} {1:12.0%} {0:14d} {0:9.1f} {len(y):6d}")

# %% [markdown]
# Naive Bayes is so confident that it hands over almost nothing. It saves reviews but pays for mistakes, and costs about
# as much as reviewing every case. The two models with well-calibrated probabilities cost a fraction of that. On this
# data set, whose classes are nearly linearly separable, logistic regression is as good a choice as any: try the simple
# model first.
#
# Neither model is perfect. Occasionally a tumor looks just like the other kind, and no rule based on a model's own
# confidence will find it. And with counts this small, one mistake more or less is chance.

# %%
sure = {name: wrong[name][risk[name] < 0.01].sum() for name in models}
for name, count in sure.items():
    print(f"{name:20} {(risk[name] < 0.01).sum():4d} predictions with a risk below 1 %, {count} of them wrong")
plt.show()
