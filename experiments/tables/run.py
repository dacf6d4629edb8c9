"""Tables with categories and gaps: our defaults on the raw frame, and five other models on the same rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.figures import legend, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from cavity.metrics import scores
from cavity.report.palette import BLUE, GREEN, ORANGE, PINK, VERMILION
from experiments.common import DIGITS, Split, grouped, markdown, progress
from experiments.experiment import Config, Job, Summary, Verdict

Means = dict[tuple[str, str], float]  # by table and model

TARGET, MADE_UP = "target", "made up"
OURS, CATBOOST, FOREST, ONE_HOT, FEWER = "cavity", "catboost", "forest", "one-hot", "inducing-100"
NAMES = {OURS: "cavity", FEWER: "cavity, M = 100", CATBOOST: "CatBoost", "lightgbm": "LightGBM",
         "histgb": "HistGradientBoosting",
         "logreg": "logistic regression", FOREST: "random forest"}  # fmt: skip
TREES, SMALLEST = 500, 1e-15  # of CatBoost and the forest; the least probability that is scored
MISSING = "(missing)"
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)
HOLLOW = {"markerfacecolor": "none", "markersize": 4.0}
MARKERS: dict[str, dict[str, Any]] = {
    OURS: {"marker": "*", "color": "black", "markersize": 8.0, "zorder": 3},
    FEWER: HOLLOW | {"marker": "*", "color": "black", "markersize": 8.0},
    CATBOOST: HOLLOW | {"marker": "o", "color": VERMILION},
    "lightgbm": HOLLOW | {"marker": "s", "color": BLUE},
    "histgb": HOLLOW | {"marker": "D", "color": GREEN},
    "logreg": HOLLOW | {"marker": "v", "color": ORANGE},
    FOREST: HOLLOW | {"marker": "^", "color": PINK},
}


def jobs(config: Config) -> list[Job]:
    """List a fit for each table, split and model, and ours on a manual encoding. Only CatBoost has a time limit."""
    sizes = {name: config[name] for name in ("train_rows", "test_rows")}
    cells = [*product(config["tables"], config["splits"], config["models"])]
    cells += product(config["encoded"], config["splits"], [ONE_HOT])
    return [
        {"table": table, "split": k, "model": model, "seed": 0, **sizes,
         "max_seconds": config["max_seconds"] if model == CATBOOST else None}
        for table, k, model in cells
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the cost: our fits and those of CatBoost take seconds, the others much less."""
    return 10.0 if job["model"] in (OURS, CATBOOST) else 1.0


def run(job: Job) -> Record:
    """Fit the training rows of a split, and score the others."""
    return score_fit(job, table_split(job["table"], job["split"], job["train_rows"], job["test_rows"]))


def score_fit(job: Job, rows: Split) -> Record:
    """Fit the model of a job, and score it."""
    X, y, X_test, y_test = rows
    model, prepare = _model(job, X)
    began, cpu_began = time.perf_counter(), time.process_time()
    model.fit(prepare(X), y)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    p = np.clip(model.predict_proba(prepare(X_test)), SMALLEST, 1.0)
    return {
        **{name: round(value, DIGITS) for name, value in scores(y_test, np.log(p), model.classes_)._asdict().items()},
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "trees": model.tree_count_ if job["model"] == CATBOOST else None,
        **(progress(model) if job["model"] == OURS else {}),
    }


def table_split(table: str, number: int, train_rows: int, test_rows: int) -> Split:
    """Return the rows of a split, stratified: at most these many, and at most two thirds to train on."""
    from sklearn.model_selection import train_test_split

    frame = _load(table)
    y = frame.pop(TARGET).astype(str).to_numpy()
    n = len(frame)
    k = min(train_rows, round(2 * n / 3))
    sizes = {"train_size": k, "test_size": min(test_rows, n - k)}
    train, test = train_test_split(np.arange(n), **sizes, stratify=y, random_state=number)
    return frame.iloc[train], y[train], frame.iloc[test], y[test]


def _load(table: str) -> Any:
    """Read a table; the made-up one needs no data folder."""
    import pandas as pd

    if table == MADE_UP:
        rng = np.random.default_rng(0)
        color, age = rng.choice(["red", "green", "blue"], 120), rng.normal(size=120)
        target = np.where((color == "red") ^ (age > 0.5), "yes", "no")
        age[::9] = np.nan
        return pd.DataFrame({"color": color, "age": age, TARGET: target})
    path = Path(os.environ.get("CAVITY_DATA", ".")) / "tables" / f"{table}.parquet"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Set CAVITY_DATA to a folder with tables/{table}.parquet.")
    return pd.read_parquet(path)


def _model(job: Job, X: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return a classifier, and what prepares a frame for it.

    Raises:
        ImportError: if CatBoost or LightGBM is needed but not installed.
    """
    name, seed, n_threads = job["model"], job["seed"], torch.get_num_threads()
    numbers = list(X.select_dtypes("number").columns)
    texts = [column for column in X if column not in numbers]
    if name == OURS:
        return GPClassifier(random_state=seed, device="cpu"), lambda frame: frame
    if name == FEWER:
        return GPClassifier(n_inducing=100, random_state=seed, device="cpu"), lambda frame: frame
    if name in ("logreg", FOREST, ONE_HOT):
        return _pipeline(name, numbers, texts, seed, n_threads), lambda frame: frame
    try:
        if name == CATBOOST:
            return _catboost(job, texts, n_threads), lambda frame: frame.fillna(dict.fromkeys(texts, MISSING))
        if name == "lightgbm":
            from lightgbm import LGBMClassifier

            return LGBMClassifier(random_state=seed, n_jobs=n_threads, verbose=-1), _categories(X, texts)
    except ImportError as error:
        raise ImportError(f"{NAMES[name]} is not installed: pip install '.[rivals]'") from error
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed, categorical_features="from_dtype"), _categories(X, texts)


def _categories(X: Any, texts: list[str]) -> Callable[[Any], Any]:
    """Return a function that turns text into categories, with the levels of the training rows."""
    import pandas as pd

    levels = {name: sorted(X[name].dropna().unique()) for name in texts}

    def prepare(frame: Any) -> Any:
        known = {name: frame[name].where(frame[name].isin(levels[name])) for name in texts}
        return frame.assign(**{name: pd.Categorical(known[name], levels[name]) for name in texts})

    return prepare


def _catboost(job: Job, texts: list[str], n_threads: int) -> Any:
    """Return CatBoost with its own treatment of categories, stopped by the time limit."""
    from catboost import CatBoostClassifier

    class Limited(CatBoostClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            return super().fit(X, y, callbacks=[_Deadline(time.perf_counter() + job["max_seconds"])])

    return Limited(
        iterations=TREES, cat_features=texts, random_seed=job["seed"], thread_count=n_threads,
        allow_writing_files=False, verbose=False,
    )  # fmt: skip


class _Deadline:
    """Stop CatBoost at a time of `time.perf_counter`."""

    def __init__(self, at: float) -> None:
        self.at = at

    def after_iteration(self, info: Any) -> bool:
        """Return whether to continue."""
        return time.perf_counter() < self.at


def _pipeline(name: str, numbers: list[str], texts: list[str], seed: int, n_threads: int) -> Any:
    """Return a linear model or ours on indicators of all levels, or a forest on their numbers.

    Gaps are filled and marked.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    filled: Any = SimpleImputer(strategy="median", add_indicator=True)
    if name == FOREST:
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
        classifier = RandomForestClassifier(TREES, random_state=seed, n_jobs=n_threads)
    else:
        filled = make_pipeline(filled, StandardScaler())
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        classifier = LogisticRegression(max_iter=2000) if name == "logreg" else GPClassifier(random_state=seed)
    return make_pipeline(ColumnTransformer([("numbers", filled, numbers), ("texts", encoder, texts)]), classifier)


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show means over the splits of each table; compare the models on the tables of which all fits are made."""
    models = [name for name in config["models"] if any(r["model"] == name for r in records)]
    groups = grouped(records, "table", "model")
    tables = sorted({table for table, _ in groups})
    nll, error, seconds = (_means(records, score) for score in ("nll", "error", "seconds"))
    cut = {r["table"] for r in records if r["model"] == CATBOOST and r["trees"] < TREES}
    is_whole = {key: len(group) == len(config["splits"]) for key, group in groups.items()}
    complete = [t for t in tables if all(is_whole.get((t, name)) for name in config["models"])]
    header = ["table", *(NAMES[name] for name in models)]
    parts = [
        "### NLL of the test rows\n\nMeans over the splits, the lowest in bold"
        + (f"; * where {config['max_seconds']} s were too short for CatBoost's {TREES} trees." if cut else "."),
        markdown(header, [[t + r"\*" * (t in cut), *_cells(nll, t, models, 4)] for t in tables]),
        "### Error",
        markdown(header, [[t, *_cells(error, t, models, 3)] for t in tables]),
        "### Seconds of a fit",
        markdown(header, [[t, *_cells(seconds, t, models, 2)] for t in tables]),
    ]
    verdicts = list[Verdict]()
    if complete:
        totals, verdicts = _compare([r for r in records if r["table"] in complete], config, complete, cut)
        parts = [totals, *parts]
    encoded = [t for t in config["encoded"] if is_whole.get((t, ONE_HOT)) and is_whole.get((t, OURS))]
    if encoded == config["encoded"] != []:
        ratio = float(np.exp(np.mean([np.log(nll[t, OURS] / nll[t, ONE_HOT]) for t in encoded])))
        rows = [[t, f"{nll[t, OURS]:.4f}", f"{nll[t, ONE_HOT]:.4f}"] for t in encoded]
        parts += ["### A manual encoding\n\nNLL of our defaults on the frame, and on indicators of all levels with the "
                  "median and an indicator for gaps, on the tables with text or gaps.",
                  markdown(["table", "frame", "one-hot by hand"], rows)]  # fmt: skip
        on = f"{len(encoded)} tables with text or gaps"
        claim = (
            f"frames as they come are at least as good as a careful one-hot encoding, geometric mean of the NLL on {on}"
        )
        verdicts.append(Verdict(claim, ratio <= 1.0, f"ratio {ratio:.3f}", is_ours=True))
    return Summary("\n\n".join(parts), verdicts, {"tables": draw_ratios(tables, nll, models, config["reference"])})


def _means(records: list[Record], score: str) -> Means:
    groups = grouped(records, "table", "model")
    return {(table, model): float(np.mean([r[score] for r in group])) for (table, model), group in groups.items()}


def _cells(means: Means, table: str, models: list[str], digits: int) -> list[str]:
    """Format a row; the lowest figures are bold."""
    shown = [f"{means[table, name]:.{digits}f}" if (table, name) in means else "" for name in models]
    lowest = min((text for text in shown if text), key=float)
    return [f"**{text}**" if text == lowest else text for text in shown]


def _compare(records: list[Record], config: Config, tables: list[str], cut: set[str]) -> tuple[str, list[Verdict]]:
    """Return tables that compare the models, over all splits and for each, and the verdicts."""
    models, reference = config["models"], config["reference"]
    other = NAMES[reference]
    nll = _means(records, "nll")
    ranks = {score: _mean_ranks(records, score, tables, models) for score in ("nll", "error")}
    kept = grouped(records, "model")
    seconds = {name: sum(r["seconds"] for r in kept[name,]) for name in models}
    ece = {name: float(np.mean([r["ece"] for r in kept[name,]])) for name in models}
    ratio = {name: _ratio(nll, tables, name, reference) for name in models}
    rows = [
        [NAMES[m], *(f"{x:.3f}" for x in (ratio[m], ranks["nll"][m], ranks["error"][m], ece[m])), f"{seconds[m]:.0f}"]
        for m in models
    ]
    text = (
        f"### Comparison on {len(tables)} of {len(config['tables'])} tables\n\nThe geometric mean of the ratio of NLL "
        f"to {other}'s; mean ranks of the means over the splits, where equal figures share their mean rank; the mean "
        "calibration error; the total time.\n\n"
    ) + markdown(["model", f"NLL / {other}'s", "rank by NLL", "rank by error", "ECE", "seconds of all fits"], rows)
    by_split = [
        [str(k), f"{_ratio(_means(part, 'nll'), tables, OURS, reference):.3f}",
         *(_beside_first_rival(_mean_ranks(part, score, tables, models)) for score in ("nll", "error"))]
        for (k,), part in grouped(sorted(records, key=lambda r: r["split"]), "split").items()
    ]  # fmt: skip
    text += "\n\nOurs for each split.\n\n" + markdown(
        ["split", f"NLL / {other}'s", "rank by NLL", "rank by error"], by_split
    )
    whole = [t for t in tables if t not in cut]
    evidence = _evidence(records, tables, models, reference)
    if cut and whole:
        without = _evidence([r for r in records if r["table"] in whole], whole, models, reference)
        pairs = zip(evidence, without, strict=True)
        evidence = [f"{every}; without the {len(cut)} marked *: {some}" for every, some in pairs]
    lead, lead_in_error = (ranks[score][_first_rival(ranks[score])] - ranks[score][OURS] for score in ("nll", "error"))
    n = len(config["tables"])
    on = f"(preliminary: {len(tables)} of {n} tables)" if len(tables) < n else f"on {n} tables"
    return text, [
        Verdict(f"the NLL of our defaults is at most {config['most_nll']:.2f} of {other}'s, geometric mean {on}",
                ratio[OURS] <= config["most_nll"], evidence[0], is_ours=True),
        Verdict(f"their mean rank by NLL is the best of {len(models)}, by at least {config['least_lead']:g} {on}",
                lead >= config["least_lead"], evidence[1], is_ours=True),
        Verdict(f"their mean rank by error is at least as good as that of the best rival {on}",
                lead_in_error >= 0.0, evidence[2], is_ours=True),
        Verdict(f"their fits take at most as long as {other}'s together {on}",
                seconds[OURS] <= seconds[reference], evidence[3], is_ours=True),
    ]  # fmt: skip


def _evidence(records: list[Record], tables: list[str], models: list[str], reference: str) -> list[str]:
    """Return our ratio of NLL, our ranks and our time in words."""
    spent = {name: sum(r["seconds"] for r in records if r["model"] == name) for name in (OURS, reference)}
    return [
        f"ratio {_ratio(_means(records, 'nll'), tables, OURS, reference):.3f}",
        *(_beside_first_rival(_mean_ranks(records, score, tables, models)) for score in ("nll", "error")),
        f"{spent[OURS]:.0f} s, {NAMES[reference]} {spent[reference]:.0f} s",
    ]


def _mean_ranks(records: list[Record], score: str, tables: list[str], models: list[str]) -> dict[str, float]:
    """Rank the models on each table, 1 is the lowest. Digits beyond those of the records are chance."""
    from scipy.stats import rankdata

    means = _means(records, score)
    ranks = rankdata([[round(means[t, name], DIGITS) for name in models] for t in tables], axis=1).mean(0)
    return dict(zip(models, map(float, ranks), strict=True))


def _first_rival(ranks: dict[str, float]) -> str:
    return min((name for name in ranks if name != OURS), key=lambda name: ranks[name])


def _beside_first_rival(ranks: dict[str, float]) -> str:
    first = _first_rival(ranks)
    return f"ours {ranks[OURS]:.2f}, {NAMES[first]} {ranks[first]:.2f}"


def _ratio(nll: Means, tables: list[str], model: str, reference: str) -> float:
    """Return the geometric mean over the tables of the ratio of NLL to that of the reference."""
    return float(np.exp(np.mean([np.log(nll[t, model] / nll[t, reference]) for t in tables])))


def draw_ratios(tables: list[str], nll: Means, models: list[str], reference: str) -> Any:
    """Draw the ratios of NLL to that of the reference. Tables are sorted by ours."""
    ratios = {key: value / nll[key[0], reference] for key, value in nll.items() if (key[0], reference) in nll}
    order = sorted((t for t in tables if (t, OURS) in ratios), key=lambda t: ratios[t, OURS])
    figure = new_figure(6.4, 0.24 * max(len(order), 4) + 1.2)
    axes = plain(figure.subplots())
    axes.axvline(1.0, color="0.7", linewidth=0.8, label="_reference")
    for name in (m for m in models if m != reference):
        places = [i for i, t in enumerate(order) if (t, name) in ratios]
        x = np.clip([ratios[order[i], name] for i in places], TICKS[0], TICKS[-1])
        axes.plot(x, places, label=NAMES[name], linestyle="none", **MARKERS[name])
    axes.set(xscale="log", xlabel=f"NLL relative to {NAMES[reference]}", yticks=range(len(order)), yticklabels=order)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    legend(figure, 3)
    return figure
