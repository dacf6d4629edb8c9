# %% [markdown]
# # Iris: what happens far from the data
#
# Three species of iris, and two measurements of each flower: length and width of a petal, in centimetres. Two
# features fit on paper, so we can look at everything a classifier believes.

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
print(f"right on its own training rows: Gaussian process {gp.score(X, y):.0%}, linear {linear.score(X, y):.0%}")

# %% [markdown]
# Near the flowers the two agree. The color is that of the most probable species, and it fades where the classifier
# is less sure; the lines are where the answer changes.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
BoundaryDisplay.from_estimator(linear, X, y, ax=axes[0])
BoundaryDisplay.from_estimator(gp, X, y, ax=axes[1])
axes[0].set_title("logistic regression")
axes[1].set_title("Gaussian process")
# alt: Decision boundaries of both models over the flowers: much alike where there are flowers.

# %% [markdown]
# Now step back. The straight lines of logistic regression run on for ever, and the further from them, the surer it
# gets: most of the plane is deeply colored. The Gaussian process is sure where there are flowers, and pale everywhere
# else.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
BoundaryDisplay.from_estimator(linear, X, y, margin=1.2, ax=axes[0])
BoundaryDisplay.from_estimator(gp, X, y, margin=1.2, ax=axes[1])
axes[0].set_title("logistic regression")
axes[1].set_title("Gaussian process")
# alt: The same from further away: logistic regression is sure nearly everywhere, the other model only near flowers.

# %% [markdown]
# ## A number for not knowing
#
# Three flowers to name: one in the middle of *setosa*, one on the border of two species, and one like none in the
# data. The last might be a species of its own, or a slip of the ruler.

# %%
flowers = pd.DataFrame([[1.5, 0.25], [4.9, 1.65], [12.0, 3.0]], columns=X.columns)
unsure = gp.uncertainty(flowers)
answers = zip(gp.predict(flowers), gp.predict_proba(flowers), linear.predict_proba(flowers), strict=True)
print(f"{'':12} {'Gaussian process':>20} {'uncertainty':>14}   logistic regression")
for what, nats, (name, p, q) in zip(["typical", "on a border", "never seen"], unsure.total, answers, strict=True):
    print(f"{what:12} {name:>14} {p.max():5.0%} {nats:9.2f} nats   {linear.classes_[q.argmax()]} {q.max():.0%}")
print(f"knowing nothing of three species is {np.log(3):.2f} nats")

# %% [markdown]
# Logistic regression names the last flower without a doubt. The Gaussian process does give it a name, since it must
# give one, but says that it is a guess.
#
# `uncertainty` also has two parts: *aleatoric*, which stays whatever you measure, and *epistemic*, which more flowers
# near by would remove. Here is the second all over the plane, with the three flowers as stars. Dark is unsure.

# %%
display = BoundaryDisplay.from_estimator(gp, X, y, shade="epistemic", margin=1.0)
display.ax_.scatter(*flowers.to_numpy().T, marker="*", s=160, color="#E69F00", edgecolors="black", zorder=5)
plt.show()
# alt: Epistemic uncertainty: white around the flowers, dark away from them; one of three stars is far in the dark.
