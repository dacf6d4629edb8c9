# %% [markdown]
# # A drifting stream: notice it without labels
#
# A model is right about rows like those that it has learned from. In use, rows change: a scanner moves, a sensor ages,
# customers come from elsewhere. Labels that would show the damage come late, or never. `novelty` needs no labels.
#
# Here, images of digits arrive a hundred at a time. After the fifth hundred someone pushes the scanner: all images are
# displaced by one pixel.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from cavity import GPClassifier

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
clf = GPClassifier(random_state=0).fit(X[:500], y[:500])

stream, labels = X[500:1500].copy(), y[500:1500]
moved = np.roll(stream.reshape(-1, 8, 8), 1, axis=2)
moved[:, :, 0] = 0.0
stream[500:] = moved.reshape(-1, 64)[500:]

hundreds = np.split(np.arange(1000), 10)
novel, wrong, covered = [], [], []
for rows in hundreds:
    sets = clf.predict_set(stream[rows], coverage=0.95)
    novel.append((clf.novelty(stream[rows]) <= 0.05).mean())
    wrong.append((clf.predict(stream[rows]) != labels[rows]).mean())
    covered.append(sets[np.arange(100), labels[rows]].mean())
for name, values in {"novel rows": novel, "errors": wrong, "covered by 95 % sets": covered}.items():
    print(f"{name:20}: {np.mean(values[:5]):4.0%} before, {np.mean(values[5:]):4.0%} after")

# %%
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
at = 100 * np.arange(1, 11)
ax.axvspan(500, 1000, color="0.94")
ax.axhline(5, color="0.6", linewidth=0.8)
ax.plot(at, 100 * np.array(novel), "o-", color="#0072B2", markersize=4, label="novel rows (no labels needed)")
ax.plot(at, 100 * np.array(wrong), "s--", color="#D55E00", markersize=4, label="errors (known once labels come)")
ax.set(xlabel="images", ylabel="share of the last hundred / %", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
# alt: Novel rows are near five percent until the scanner moves, and most rows are novel after it; errors rise too.

# %% [markdown]
# Five percent of the rows are expected to have a novelty of at most 0.05, the gray line. After the push most of them
# have. The errors rise too, but who has labels on that day? The guarantee of the prediction sets is gone as well: it
# holds for rows like the held-out ones, and these are not.
#
# ## What has moved?
#
# `drift` compares a whole table with the training rows: the share of novel rows beside the range that chance allows,
# each column, and scores where labels are there. `report.save("drift.html")` writes the page, and
# `cavity drift MODEL DATA -o drift.html` makes it from files.

# %%
before, after = (clf.drift(stream[part]).findings for part in (slice(0, 500), slice(500, None)))
print(f"{len(before.moved)} of 64 pixels have moved before the push, {len(after.moved)} after it")
distance = np.zeros(64)
for column in after.moved:
    distance[int(column.name.removeprefix("x"))] = column.distance
figure, axes = plt.subplots(1, 3, figsize=(7, 2.4), layout="constrained")
pictures = {"mean before": stream[:500].mean(0), "mean after": stream[500:].mean(0), "distance": distance}
for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
    ax.imshow(picture.reshape(8, 8), cmap="gray_r")
    ax.set_title(title, fontsize=10)
    ax.axis("off")
# alt: Mean images before and after, and the pixels whose distribution has moved: those at the borders of the strokes.

# %% [markdown]
# ## What to do about it
#
# Two things, with the labels of the first two hundred images after the push. `conformalize` sets the prediction sets
# right at once: they become larger, because the model is worse than it thinks, and cover again. A new fit that has
# seen such images makes the model itself right.

# %%
known, later = slice(500, 700), slice(700, 1000)
again = GPClassifier(random_state=0).fit(
    np.concatenate([X[:500], stream[known]]), np.concatenate([y[:500], labels[known]])
)
clf.conformalize(stream[known], labels[known])
for name, model in {"conformalized": clf, "fitted again": again}.items():
    sets = model.predict_set(stream[later], coverage=0.95)
    share = sets[np.arange(300), labels[later]].mean()
    error = (model.predict(stream[later]) != labels[later]).mean()
    print(f"{name:13}: error {error:4.1%}, sets cover {share:4.1%} with {sets.sum(1).mean():.1f} labels on average")
plt.show()
