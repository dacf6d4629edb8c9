# %% [markdown]
# # Streaming data: learn from rows that arrive once
#
# Rows can arrive day by day, or there can be too many to store. Stochastic EP learns from a row and then forgets it:
# what it has learned is a fixed set of numbers, however many rows have passed.
#
# Here, digits arrive a hundred at a time. Each hundred is first used as a test, and then for training.

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
first, kept = order[:200], order[-297:]  # for the start, and held out as a test set
hundreds = np.array_split(order[200:-297], 13)

clf = GPClassifier("sep", n_inducing=30, random_state=0)
clf.partial_fit(X[first], y[first], classes=range(10))

seen, wrong, error = [200], [], [1 - clf.score(X[kept], y[kept])]
for rows in hundreds:
    wrong.append((clf.predict(X[rows]) != y[rows]).mean())
    clf.partial_fit(X[rows], y[rows])
    seen.append(seen[-1] + len(rows))
    error.append(1 - clf.score(X[kept], y[kept]))
print(f"error on held-out images: {error[0]:.1%} after {seen[0]} images, {error[-1]:.1%} after {seen[-1]}")

# %% [markdown]
# The first call fixes the scaling of the inputs and the start of the inducing points, so give it a few hundred typical
# rows. It must also list all classes that will ever occur.

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(seen[:-1], 100 * np.array(wrong), "s--", color="#D55E00", markersize=4, label="the next hundred images")
ax.plot(seen, 100 * np.array(error), "o-", color="#0072B2", label="297 held-out images")
ax.set(xlabel="training images", ylabel="error / %", ylim=(0, None))
ax.grid(axis="y", color="0.92")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
# alt: The error falls with the number of training images, on both test sets.

# %% [markdown]
# The size of the model does not grow. For each class it stores the inducing points, and a mean and a covariance of the
# function at these points.

# %%
numbers = clf.posterior_.mean.size + clf.posterior_.cov.size + clf.inducing_points_.size
print(f"{numbers:,} numbers after {seen[-1]} images, and after any other number of images")

# %% [markdown]
# ## Predictions for a file of any size
#
# Predictions can be streamed, too. `predict_to` reads a source, here a Parquet file, in blocks and writes as it goes,
# so memory does not grow with the number of rows. Each part of the result is renamed to its final name when it is
# complete, so a job that was killed can continue with `resume=True`.

# %%
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
columns = {f"pixel {i}": X[kept][:, i] for i in range(64)}
pq.write_table(pa.table(columns), folder / "images.parquet", row_group_size=50)

written = clf.predict_to(Parquet(folder / "images.parquet"), folder / "predictions")
result = pq.read_table(folder / "predictions")
print(f"{written} rows written, with the columns {', '.join(result.column_names[:4])}, …")

# %% [markdown]
# ## Save the model
#
# The model is stored in one file that contains numbers but no code, so it is safe to load. The loaded model gives
# identical predictions, bit for bit.

# %%
clf.save(folder / "digits.cavity")
loaded = cavity.load(folder / "digits.cavity")
print("identical probabilities:", np.array_equal(loaded.predict_proba(X[kept]), clf.predict_proba(X[kept])))
print(f"file size: {(folder / 'digits.cavity').stat().st_size / 1e6:.1f} MB")
scratch.cleanup()
plt.show()
