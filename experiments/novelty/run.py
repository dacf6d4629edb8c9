"""Whether `novelty` finds rows unlike the training rows, beside other detectors, and is uniform on rows like them."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import legend, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from cavity.report.palette import BLUE, GREEN, ORANGE, VERMILION
from experiments.common import grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.novelty.problems import Problem, load_rows, make_problem
from experiments.tables.run import MISSING

Array = NDArray[np.float64]

RANK, UNIFORM = "rank", "uniform"
OURS, FOREST, NEAREST, CATBOOST, ENTROPY = "cavity", "forest", "nearest", "catboost", "entropy"
NAMES = {OURS: "cavity, `novelty`", ENTROPY: "cavity, maximum probability", NEAREST: "distance to the 5th nearest row",
         FOREST: "isolation forest", CATBOOST: "CatBoost, maximum probability"}  # fmt: skip
STYLES = {OURS: ("*", "black"), ENTROPY: ("v", ORANGE), NEAREST: ("s", BLUE), FOREST: ("D", GREEN),
          CATBOOST: ("o", VERMILION)}  # fmt: skip
KINDS = {"class": "class left out", "mixed": "cells mixed over rows", "other": "rows of another table"}
FITS: dict[str, dict[str, Any]] = {
    "full GP": {},
    "mini-batches": {"method": "sep", "batch_size": 50, "n_inducing": 20, "max_epochs": 4},
    "cross-fitting": {"n_inducing": 20, "max_epochs": 15},
    "stream": {"method": "sep", "n_inducing": 20},
}
CAUTIOUS = ("cross-fitting", "stream")  # whose folds have learned from fewer rows than the model
LEVEL, NEIGHBORS, TREES, SPLIT = 0.05, 5, 200, 4
MOST_SECONDS = 20.0  # of a fit of CatBoost
BLOCK = 50  # draws of a job


def jobs(config: Config) -> list[Job]:
    """List a problem for each table, class that is left out and seed; and the draws of the test of uniformity."""
    found: list[Job] = []
    sizes = {name: config[name] for name in ("train_rows", "test_rows")}
    cells: list[tuple[str, int | None]] = [*product(config["tables"], range(config["left_out"]))]
    cells += [(table, None) for table in config["binary"]]
    for (table, left_out), seed in product(cells, config["seeds"]):
        others = [other for other in config["others"] if other != table]
        more = {"train_rows": config["larger"][table]} if table in config["larger"] else {}
        job = {"kind": RANK, "table": table, "left_out": left_out, "other": others[(left_out or 0) % len(others)]}
        found.append(job | {"fit": None, "seed": seed} | sizes | more | {"draws": None})
    for (fit, tables), seed in product(config["uniform"].items(), range(0, config["draws"], BLOCK)):
        for table in tables:
            job = {"kind": UNIFORM, "table": table, "left_out": None, "other": None, "fit": fit, "seed": seed}
            sizes = {"train_rows": config["uniform_rows"], "test_rows": config["test_rows"]}
            found.append(job | sizes | {"draws": min(BLOCK, config["draws"])})
    return found


def cost(job: Job) -> float:
    """Estimate the cost."""
    return 10.0 * job["train_rows"] / 400 if job["kind"] == RANK else 30.0


def run(job: Job) -> Record:
    """Rank rows like the training rows and others, or test whether novelty is uniform on the former."""
    return _rank(job) if job["kind"] == RANK else _uniformity(job)


def _rank(job: Job) -> Record:
    from sklearn.metrics import roc_auc_score

    about = (job[name] for name in ("table", "left_out", "other", "train_rows", "test_rows", "seed"))
    problem = make_problem(*about)
    known, novel = problem.known, problem.novel
    found: Record = {}
    for name, scores in _scores(problem, job["seed"]).items():
        usual = scores(known)
        for kind, rows in novel.items():
            unusual = scores(rows)
            is_novel = np.repeat([0, 1], [len(usual), len(unusual)])
            found[f"{name} {kind}"] = round(float(roc_auc_score(is_novel, np.concatenate([usual, unusual]))), 4)
    return found


def _scores(problem: Problem, seed: int) -> dict[str, Any]:
    """Return what scores the rows of a frame, larger for stranger ones, by the name of the detector."""
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import NearestNeighbors

    X, y = problem.X, problem.y
    texts = [name for name in X if name not in X.select_dtypes("number")]
    encode = _one_hot(X, texts)
    model = GPClassifier(random_state=seed, device="cpu").fit(X, y)
    forest = IsolationForest(n_estimators=TREES, random_state=seed).fit(encode(X))
    nearest = NearestNeighbors(n_neighbors=NEIGHBORS).fit(encode(X))
    found = {
        OURS: lambda rows: -model.novelty(rows),
        ENTROPY: lambda rows: -model.predict_proba(rows).max(1),
        FOREST: lambda rows: -forest.score_samples(encode(rows)),
        NEAREST: lambda rows: nearest.kneighbors(encode(rows))[0][:, -1],
    }
    try:
        from catboost import CatBoostClassifier
    except ImportError:
        return found

    def filled(rows: Any) -> Any:
        return rows.fillna(dict.fromkeys(texts, MISSING))

    class Limit:
        def __init__(self) -> None:
            self.end = time.perf_counter() + MOST_SECONDS

        def after_iteration(self, info: Any) -> bool:
            return time.perf_counter() < self.end

    about = {"iterations": TREES, "random_seed": seed, "cat_features": texts, "verbose": False, "thread_count": 1}
    boosted = CatBoostClassifier(**about, allow_writing_files=False).fit(filled(X), y, callbacks=[Limit()])
    return found | {CATBOOST: lambda rows: -boosted.predict_proba(filled(rows)).max(1)}


def _one_hot(X: Any, texts: list[str]) -> Any:
    """Return what makes standardized numbers, gaps filled with the mean, and indicators of levels."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in X if name not in texts]
    indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (indicators, texts)
    return make_column_transformer(*parts).fit(X).transform


def _uniformity(job: Job) -> Record:
    """Return the results of several draws; each is quick."""
    X, y = load_rows(job["table"])
    draws = [_draw_of(job, X, y, job["seed"] + i) for i in range(job["draws"])]
    return {name: [draw[name] for draw in draws] for name in draws[0]}


def _draw_of(job: Job, X: Any, y: NDArray[Any], seed: int) -> dict[str, float]:
    from scipy.stats import ks_2samp
    from sklearn.model_selection import train_test_split

    n = len(y)
    n_train = min(job["train_rows"], n * 2 // 3)
    sizes = {"train_size": n_train, "test_size": min(job["test_rows"], n - n_train)}
    train, test = train_test_split(np.arange(n), **sizes, random_state=seed)
    model = GPClassifier(random_state=seed, device="cpu", **FITS[job["fit"]])
    if job["fit"] == "stream":
        for rows in np.array_split(train, SPLIT):
            model.partial_fit(X.iloc[rows], y[rows], classes=np.unique(y))
    else:
        model.fit(X.iloc[train], y[train])
    p = model.novelty(X.iloc[test])
    known = model._known_novelty()
    usual = known.p_values(known.held_out[:3])
    tests = {"both": "two-sided", "small": "greater"}  # "greater": the distribution function of p lies above
    found = {name: round(float(ks_2samp(p, usual, alternative=side).pvalue), 5) for name, side in tests.items()}
    return found | {"below": round(float((p <= LEVEL).mean()), 5), "mean": round(float(p.mean()), 5)}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the areas under the ROC curves, and count draws in which novelty is not uniform."""
    ranked = [record for record in records if record["kind"] == RANK]
    names = [name for name in NAMES if any(f"{name} mixed" in record for record in ranked)]
    text, verdicts = [f"{len(ranked)} problems of {len({r['table'] for r in ranked})} tables."], list[Verdict]()
    means = {}
    for kind, name in product(KINDS, names):
        by_table = [
            np.mean([record[f"{name} {kind}"] for record in group if f"{name} {kind}" in record])
            for group in grouped(ranked, "table").values()
            if any(f"{name} {kind}" in record for record in group)
        ]
        means[name, kind] = float(np.mean(by_table)) if by_table else np.nan
    rows = [[NAMES[name], *(f"{means[name, kind]:.3f}" for kind in KINDS)] for name in names]
    text += ["Mean area under the ROC curve over tables.", markdown(["score", *KINDS.values()], rows)]
    rivals = [name for name in names if name not in (OURS, ENTROPY)]
    for kind, title in KINDS.items():
        best = max(rivals, key=lambda name: means[name, kind])
        evidence = f"{means[OURS, kind]:.3f}, {NAMES[best]} {means[best, kind]:.3f}"
        claim = f"novelty ranks best in mean, against: {title}"
        verdicts.append(Verdict(claim, means[OURS, kind] >= means[best, kind], evidence, is_ours=True))
    cells = []
    for (fit, table), group in grouped([r for r in records if r["kind"] == UNIFORM], "fit", "table").items():
        draws = {name: np.concatenate([r[name] for r in group]) for name in ("both", "small", "below", "mean")}
        both, small = (int((draws[name] < LEVEL).sum()) for name in ("both", "small"))
        below, mean, of = float(draws["below"].mean()), float(draws["mean"].mean()), len(draws["mean"])
        cells.append([fit, table, str(of), str(both), str(small), f"{100 * below:.1f} %", f"{mean:.3f}"])
        most = 2 * LEVEL * of  # twice as many as expected
        count, what = (small, "not below") if fit in CAUTIOUS else (both, "like")
        claim = f"novelty on fresh rows is {what} that of training rows: {fit}, {table}"
        evidence = f"rejected at 5 % in {count} of {of} draws"
        verdicts.append(Verdict(claim, count <= most, evidence, is_ours=True))
    text.append(
        "Draws in which a test of Kolmogorov and Smirnov at 5 % rejects that novelty on fresh rows has the "
        "distribution that it has on training rows, or that it is not smaller. The last columns are the share of fresh "
        "rows with novelty up to 5 %, and the mean novelty."
    )
    heads = ["fit", "table", "draws", "rejected", "rejected as smaller", "rows up to 5 %", "mean"]
    text.append(markdown(heads, cells))
    return Summary("\n\n".join(text), verdicts, {"novelty": _draw(ranked, names)})


def _draw(ranked: list[Record], names: list[str]) -> Any:
    """Draw the area under the ROC curve of each table and score."""
    tables = sorted({str(record["table"]) for record in ranked})
    figure = new_figure(9.0, 0.22 * max(len(tables), 6) + 1.4)
    for axes, (kind, title) in zip(figure.subplots(1, 3, sharey=True), KINDS.items(), strict=True):
        plain(axes, "x")
        for name in names:
            marker, color = STYLES[name]
            values = [[r[f"{name} {kind}"] for r in ranked if r["table"] == t and f"{name} {kind}" in r]
                      for t in tables]  # fmt: skip
            at = [i for i, own in enumerate(values) if own]
            axes.plot([np.mean(values[i]) for i in at], at, linestyle="none", marker=marker, color=color,
                      markerfacecolor=color if name == OURS else "none", markersize=7.0 if name == OURS else 4.5,
                      label=NAMES[name].replace("`", "") if kind == "class" else "_more")  # fmt: skip
        axes.set_xlabel(f"AUROC, {title}")
        axes.set_yticks(range(len(tables)), tables)
        axes.set_ylim(len(tables) - 0.5, -0.5)
    legend(figure, 3)
    return figure
