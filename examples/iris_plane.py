# %% [markdown]
# # Iris: what happens far from the data
#
# Three species of iris, and two measurements of each flower: the length and width of a petal, in centimeters. With two
# features, a plot shows everything that a classifier predicts.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier
from cavity.plot import BoundaryDisplay

iris = load_iris(as_frame=True)
X = iris.data[["petal length (cm)", "petal width (cm)"]]
y = iris.target_names[iris.target]

gp = GPClassifier(n_inducing=20, random_state=0).fit(X, y)
linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
print(f"accuracy on the training rows: Gaussian process {gp.score(X, y):.0%}, linear {linear.score(X, y):.0%}")

# %% [markdown]
# Near the flowers, the two models agree. The color shows the most probable species and fades where the classifier is
# less confident. The lines mark where the prediction changes.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
BoundaryDisplay.from_estimator(linear, X, y, ax=axes[0])
BoundaryDisplay.from_estimator(gp, X, y, ax=axes[1])
axes[0].set_title("logistic regression")
axes[1].set_title("Gaussian process")
# alt: Decision boundaries of both models over the flowers: much alike where there are flowers.

# %% [markdown]
# Now zoom out. The straight boundaries of logistic regression continue forever, and its confidence grows with the
# distance from them: most of the plane is deeply colored. The Gaussian process is confident where there are flowers,
# and pale everywhere else.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
BoundaryDisplay.from_estimator(linear, X, y, margin=1.2, ax=axes[0])
BoundaryDisplay.from_estimator(gp, X, y, margin=1.2, ax=axes[1])
axes[0].set_title("logistic regression")
axes[1].set_title("Gaussian process")
# alt: The same from further away: logistic regression is sure nearly everywhere, the other model only near flowers.

# %% [markdown]
# ## How much the model does not know
#
# Three new flowers: one in the middle of *setosa*, one on the border of two species, and one unlike any in the data.
# The last could be another species, or a measurement error.

# %%
flowers = pd.DataFrame([[1.5, 0.25], [4.9, 1.65], [12.0, 3.0]], columns=X.columns)
unsure = gp.uncertainty(flowers)
answers = zip(gp.predict(flowers), gp.predict_proba(flowers), linear.predict_proba(flowers), strict=True)
print(f"{'':12} {'Gaussian process':>20} {'uncertainty':>14}   logistic regression")
for what, nats, (name, p, q) in zip(["typical", "on a border", "never seen"], unsure.total, answers, strict=True):
    print(f"{what:12} {name:>14} {p.max():5.0%} {nats:9.2f} nats   {linear.classes_[q.argmax()]} {q.max():.0%}")
print(f"the maximum for three species is {np.log(3):.2f} nats")

# %% [markdown]
# Logistic regression classifies the last flower with full confidence. The Gaussian process also predicts a species,
# because it must, but reports that it is a guess.
#
# `uncertainty` has two parts: *aleatoric*, which more data would not reduce, and *epistemic*, which more flowers nearby
# would reduce. The plot shows the epistemic part over the plane, with the three flowers as stars. Dark means unsure.

# %%
display = BoundaryDisplay.from_estimator(gp, X, y, shade="epistemic", margin=1.0)
display.ax_.scatter(*flowers.to_numpy().T, marker="*", s=160, color="#E69F00", edgecolors="black", zorder=5)
plt.show()
# alt: Epistemic uncertainty: white around the flowers, dark away from them; one of three stars is far in the dark.
