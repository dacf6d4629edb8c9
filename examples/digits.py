# %% [markdown]
# # Digits: confident when right, unsure when it should be
#
# Three classifiers learn to read handwritten digits. How reliable are their probabilities, on digits and on pictures
# that are not digits at all?
#
# scikit-learn includes 1,797 images of 8 × 8 pixels. 600 of them are enough for training; the rest is the test set.

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
    print(f"{name:20} error {1 - model.score(X_test, y_test):.1%} on the test images")

# %% [markdown]
# By error rate, there is nothing to choose between them. But are their probabilities right? A reliability diagram
# groups the predictions by confidence and shows how many in each group are correct. On the diagonal, confidence equals
# accuracy. The bars are 95 % intervals, and the strip below shows how many images have which confidence.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.0), layout="constrained", sharey=True)
errors = {}
for ax, (name, model) in zip(axes, models.items(), strict=True):
    display = ReliabilityDisplay.from_estimator(model, X_test, y_test, name=name, ax=ax)
    ax.label_outer()
    errors[name] = display.curves[0].ece
# alt: Reliability diagrams: Gaussian process and logistic regression near the diagonal, the forest far above it.

# %% [markdown]
# The forest is right far more often than its confidence says: its votes are spread over ten classes, and it hardly ever
# reports more than 90 %. If you act on its numbers, you ask for help with images that it reads well. The other two are
# well calibrated. The number in brackets is the expected calibration error, the average gap between confidence and
# accuracy.
#
# ## Pictures that are not digits
#
# Now shuffle the pixels of the same test images. Each picture has as much ink as before, but means nothing.

# %%
nonsense = np.random.default_rng(0).permuted(X_test, axis=1)
sure = {name: [(m.predict_proba(Z).max(1) > 0.9).mean() for Z in (X_test, nonsense)] for name, m in models.items()}
print(f"{'confidence above 90 %':22} {'a digit':>12} {'nonsense':>12}")
for name, (of_digits, of_nonsense) in sure.items():
    print(f"{name:22} {of_digits:12.0%} {of_nonsense:12.0%}")

# %% [markdown]
# Logistic regression is nearly as confident on nonsense as on digits: its confidence grows with the distance from its
# linear boundaries, however far from the training data. The forest is unsure about nonsense, but it is unsure about
# nearly everything. Only the Gaussian process is confident about most digits and about no nonsense. It can also say
# why: `uncertainty` separates noise in the labels (*aleatoric*) from lack of data (*epistemic*).

# %%
gp = models["Gaussian process"]
unsure, lost = gp.uncertainty(X_test[:400]), gp.uncertainty(nonsense[:400])
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
bins = np.linspace(0, np.log(10), 40)
ax.hist(unsure.epistemic, bins, color="#0072B2", alpha=0.8, label="digits")
ax.hist(lost.epistemic, bins, color="#D55E00", alpha=0.8, label="shuffled pixels")
ax.axvline(np.log(10), color="0.4", linestyle="--", linewidth=1)
ax.text(np.log(10), ax.get_ylim()[1], "maximum ", ha="right", va="top", rotation=90, fontsize="small")
ax.set(xlabel="epistemic uncertainty / nats", ylabel="images", yscale="log")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper center")
# alt: Histogram of epistemic uncertainty: most digits near 0, almost all shuffled pictures near the maximum.

# %% [markdown]
# ## The digits it is least sure of
#
# Sort these test images by total uncertainty. Some would make a person hesitate, too; others are just written in a way
# that is rare among the 600 training images.

# %%
rows = np.argsort(unsure.total)[::-1][:10]
figure, axes = plt.subplots(2, 5, figsize=(8.4, 4.4), layout="constrained")
for ax, row, p in zip(axes.flat, rows, gp.predict_proba(X_test[rows]), strict=True):
    first, second = np.argsort(p)[::-1][:2]
    ax.imshow(X_test[row].reshape(8, 8), cmap="Greys")
    ax.set_title(f"{first}: {p[first]:.0%}, {second}: {p[second]:.0%}\ntrue label {y_test[row]}", fontsize="small")
    ax.axis("off")
plt.show()
# alt: Ten test images, each with its two most probable digits and its true label.
