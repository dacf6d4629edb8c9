# %% [markdown]
# # A stream: learn from rows that come once
#
# Rows may come day by day, or be too many to keep. Stochastic EP learns from a row and forgets it: what it has learned
# is a fixed set of numbers, whatever has passed through.
#
# Here digits arrive a hundred at a time. Each hundred is first a test, and then a lesson.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

import cavity
from cavity import GPClassifier
from cavity.data import Parquet

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
first, kept = order[:200], order[-297:]  # to start with, and for a test at the end
hundreds = np.array_split(order[200:-297], 13)

clf = GPClassifier("sep", n_inducing=30, random_state=0)
clf.partial_fit(X[first], y[first], classes=range(10))

seen, wrong, error = [200], [], [1 - clf.score(X[kept], y[kept])]
for rows in hundreds:
    wrong.append((clf.predict(X[rows]) != y[rows]).mean())
    clf.partial_fit(X[rows], y[rows])
    seen.append(seen[-1] + len(rows))
    error.append(1 - clf.score(X[kept], y[kept]))
print(f"wrong on images it never sees: {error[0]:.1%} after {seen[0]} images, {error[-1]:.1%} after {seen[-1]}")

# %% [markdown]
# The first call fixes the scale of the inputs and where inducing points start, so it should hold a few hundred typical
# rows. It must also name all the classes that will ever come.

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(seen[:-1], 100 * np.array(wrong), "s--", color="#D55E00", markersize=4, label="the hundred to come")
ax.plot(seen, 100 * np.array(error), "o-", color="#0072B2", label="297 images kept apart")
ax.set(xlabel="images learned from", ylabel="wrong / %", ylim=(0, None))
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
# alt: The share of wrong answers falls as more images are learned from, on both kinds of test.

# %% [markdown]
# What it keeps does not grow: for each class the inducing points, with a mean and a covariance of the function there.

# %%
numbers = clf.posterior_.mean.size + clf.posterior_.cov.size + clf.inducing_points_.size
print(f"{numbers:,} numbers after {seen[-1]} images, and after any number of them")

# %% [markdown]
# ## Predictions for a file of any size
#
# Predictions can flow, too. A source, here a Parquet file, is read in blocks, and `predict_to` writes as it goes:
# memory does not grow with the rows. A part of the result gets its name only once it is whole, so a job that is killed
# can go on with `resume=True`.

# %%
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
columns = {f"pixel {i}": X[kept][:, i] for i in range(64)}
pq.write_table(pa.table(columns), folder / "images.parquet", row_group_size=50)

written = clf.predict_to(Parquet(folder / "images.parquet"), folder / "predictions")
result = pq.read_table(folder / "predictions")
print(f"{written} rows written, with the columns {', '.join(result.column_names[:4])}, …")

# %% [markdown]
# ## Take it along
#
# The model fits in one file, which holds numbers and no code, so it is safe to load. Loaded, it says the same to the
# last bit.

# %%
clf.save(folder / "digits.cavity")
loaded = cavity.load(folder / "digits.cavity")
print("the same probabilities:", np.array_equal(loaded.predict_proba(X[kept]), clf.predict_proba(X[kept])))
print(f"size of the file: {(folder / 'digits.cavity').stat().st_size / 1e6:.1f} MB")
scratch.cleanup()
plt.show()
