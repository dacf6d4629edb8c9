# %% [markdown]
# # Digits: sure when it is right, unsure when it should be
#
# A classifier that says "97 %" makes a promise. Here three of them learn to read handwritten digits, and we
# look at what their promises are worth: on digits, and on pictures that are no digits at all.
#
# scikit-learn ships 1,797 images of 8 × 8 pixels. 600 of them are enough to learn from; the rest is the test.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier
from cavity.plot import ReliabilityDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=600, stratify=y, random_state=0)

models = {
    "Gaussian process": GPClassifier(n_inducing=20, max_epochs=40, random_state=0),
    "random forest": RandomForestClassifier(random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
}
for name, model in models.items():
    model.fit(X_train, y_train)
    print(f"{name:20} wrong on {1 - model.score(X_test, y_test):.1%} of the test images")

# %% [markdown]
# Nothing to choose between them, if all that counts is who is right. But do their probabilities hold?
# A reliability diagram sorts the predictions by confidence and asks how many of each group came true. On the
# diagonal confidence is honest. The bars are 95 % intervals, and the strip below shows how many images have which
# confidence.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.0), layout="constrained", sharey=True)
errors = {}
for ax, (name, model) in zip(axes, models.items(), strict=True):
    display = ReliabilityDisplay.from_estimator(model, X_test, y_test, name=name, ax=ax)
    ax.label_outer()
    errors[name] = display.curves[0].ece
# alt: Reliability diagrams: Gaussian process and logistic regression near the diagonal, the forest far above it.

# %% [markdown]
# The forest is right far more often than it says: its votes are spread over ten classes, and it hardly ever claims
# more than 90 %. Who acts on its numbers asks for help with images that it reads well. The other two keep what
# they promise; the number in brackets, the expected calibration error, is how far off they are on average.
#
# ## Pictures that are no digits
#
# Now the same test images with their pixels shuffled: each picture has as much ink as before, and means nothing.

# %%
nonsense = np.random.default_rng(0).permuted(X_test, axis=1)
sure = {name: [(m.predict_proba(Z).max(1) > 0.9).mean() for Z in (X_test, nonsense)] for name, m in models.items()}
print(f"{'more than 90 % sure of':20} {'a digit':>12} {'nonsense':>12}")
for name, (of_digits, of_nonsense) in sure.items():
    print(f"{name:22} {of_digits:12.0%} {of_nonsense:12.0%}")

# %% [markdown]
# Logistic regression is nearly as sure of nonsense as of digits: far from all it has seen, its lines just go on. The
# forest is unsure of nonsense, but then it is unsure of nearly everything. Only the Gaussian process is sure of most
# digits and of no nonsense. It can also say why: `uncertainty` splits what it does not know into noise in the labels
# (*aleatoric*) and lack of data (*epistemic*).

# %%
gp = models["Gaussian process"]
unsure, lost = gp.uncertainty(X_test[:400]), gp.uncertainty(nonsense[:400])
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
bins = np.linspace(0, np.log(10), 40)
ax.hist(unsure.epistemic, bins, color="#0072B2", alpha=0.8, label="digits")
ax.hist(lost.epistemic, bins, color="#D55E00", alpha=0.8, label="shuffled pixels")
ax.axvline(np.log(10), color="0.4", linestyle="--", linewidth=1)
ax.text(np.log(10), ax.get_ylim()[1], "knows nothing ", ha="right", va="top", rotation=90, fontsize="small")
ax.set(xlabel="epistemic uncertainty / nats", ylabel="images", yscale="log")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper center")
# alt: Histogram of epistemic uncertainty: most digits near 0, all shuffled pictures near the largest possible value.

# %% [markdown]
# ## The digits it is least sure of
#
# Sort these test images by total uncertainty. Some would make a person stop, too; others are just written in a way that
# is rare among the 600 it has learned from.

# %%
rows = np.argsort(unsure.total)[::-1][:10]
figure, axes = plt.subplots(2, 5, figsize=(8.4, 4.4), layout="constrained")
for ax, row, p in zip(axes.flat, rows, gp.predict_proba(X_test[rows]), strict=True):
    first, second = np.argsort(p)[::-1][:2]
    ax.imshow(X_test[row].reshape(8, 8), cmap="Greys")
    ax.set_title(f"{first}: {p[first]:.0%}, {second}: {p[second]:.0%}\nit is a {y_test[row]}", fontsize="small")
    ax.axis("off")
plt.show()
# alt: Ten test images, each with the two digits that are most probable and the one that it is.
