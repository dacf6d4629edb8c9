"""Findings about models that do not exist, for tests of how findings are drawn."""

from dataclasses import replace

import numpy as np

from cavity.metrics import CalibrationCheck, Interval, ReliabilityCurve, ScoreIntervals
from cavity.report.analysis import COVERAGES
from cavity.report.findings import (
    Advice,
    ColumnSummary,
    Findings,
    Map,
    Relevance,
    SetSummary,
    TrainingCurve,
    TrainingEvent,
    UncertainRow,
)  # fmt: skip

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked = 2'>",
    "'; alert(1); //",
    "</svg></title><script>window.hacked = 3</script>",
    "👩‍🔬🔥 日本語のラベル",
    "\u202eright to left\u0000\ud800 and\nbroken",
    "an extremely long label " * 20,
    "W" * 300,
    "",
    "&lt;b&gt; ]]> -->",
]


def digits(n_rows=450, n_classes=10, n_features=64, seed=0, bins=15):
    """Like those of a good model of handwritten digits."""
    rng = np.random.default_rng(seed)
    p, y = _probabilities(rng, n_rows, n_classes)
    classes = [str(k) for k in range(n_classes)]
    guess, total = p.argmax(1), -(p * np.log(p)).sum(1)
    aleatoric = total * rng.uniform(0.02, 0.4, n_rows)
    return Findings(
        title="Handwritten digits",
        created="2026-01-02 03:04 UTC, cavity 0.1.0",
        n_rows=n_rows,
        classes=classes,
        counts=np.bincount(y, minlength=n_classes),
        scores=_scores(n_rows, 1 - (guess == y).mean()),
        calibration=CalibrationCheck(Interval(0.011, 0.0, 0.019), 0.96, float((guess == y).mean()), None),
        reliability=[_reliability(None, p.max(1), guess == y)]
        + [_reliability(label, p[:, k], y == k, bins) for k, label in enumerate(classes)],
        confusion=np.bincount(n_classes * y + guess, minlength=n_classes**2).reshape(n_classes, n_classes),
        relevance=_relevance(rng, classes, n_features),
        total=total,
        aleatoric=aleatoric,
        epistemic=total - aleatoric,
        is_right=guess == y,
        row_names=[str(i) for i in range(n_rows)],
        uncertain=_uncertain(p, y, classes, total, aleatoric),
        training=_training(rng),
        map=_map(rng, y, guess == y, n_classes),
        advice=_advice(),
        about=[("Method", "stochastic expectation propagation"), ("max_epochs=", "60"), ("Kernel", "RBF")],
        sets=_sets(n_rows, n_classes),
    )


def _sets(n_rows, n_classes):
    sizes = np.zeros(n_classes + 1, dtype=int)
    sizes[1], sizes[2], sizes[-1] = n_rows - n_rows // 5 - 1, n_rows // 5, 1 + (n_classes == 2)
    by_class = np.linspace(0.8, 1.0, n_classes)
    by_class[0] = np.nan
    return [SetSummary(c, Interval(c, c - 0.01, c + 0.01), sizes, by_class) for c in COVERAGES]


def small():
    """Two classes, three features, few rows."""
    found = renamed(digits(30, 2, 3, seed=1), ["no", "yes"])
    return replace(
        found, advice=[], title="Small", relevance=found.relevance._replace(values=found.relevance.values[:1])
    )


def large():
    """A hundred classes, three hundred features, many rows."""
    return replace(digits(5000, 100, 300, seed=2, bins=6), title="Large")


def hostile():
    """Text that tries to break out of the page, or that cannot be shown."""
    found = renamed(digits(), HOSTILE)
    features = HOSTILE + found.relevance.features[len(HOSTILE) :]
    values = tuple(zip(HOSTILE, HOSTILE[::-1], strict=True))
    levels = tuple((text, 1) for text in HOSTILE)
    return replace(
        found,
        columns=[ColumnSummary(text, text, text, 0.5, None, 3, levels) for text in HOSTILE],
        uncertain=[row._replace(values=values) for row in found.uncertain],
        title=HOSTILE[0] + HOSTILE[6],
        created=HOSTILE[3],
        scores=[line._replace(name=HOSTILE[i], note=HOSTILE[i + 1]) for i, line in enumerate(found.scores)],
        relevance=found.relevance._replace(features=features),
        training=found.training._replace(events=[TrainingEvent(3, HOSTILE[0]), TrainingEvent(4, HOSTILE[7])]),
        map=found.map._replace(
            axes=(HOSTILE[7], HOSTILE[0]),
            columns=tuple(features),
            points=np.resize(np.array(HOSTILE, dtype=object), (len(found.map.inducing), len(features))),
        ),
        advice=[Advice("warning", HOSTILE[1], HOSTILE[7]), Advice("unheard of", HOSTILE[5], "")],
        about=[(HOSTILE[i], HOSTILE[-i]) for i in range(len(HOSTILE))],
    )


def bare():
    """As little as findings can hold."""
    nothing, none = np.empty(0), np.empty(0, dtype=np.int64)
    return replace(
        small(),
        scores=small().scores[:1],
        relevance=None,
        map=None,
        uncertain=[],
        advice=[],
        about=[],
        training=TrainingCurve(none, nothing, nothing, []),
    )


def renamed(found, names):
    """With other names of the classes."""
    new = dict(zip(found.classes, names, strict=True))
    return replace(
        found,
        classes=names,
        reliability=[found.reliability[0]] + [r._replace(name=new[r.name]) for r in found.reliability[1:]],
        relevance=found.relevance._replace(classes=names),
        uncertain=[r._replace(truth=new[r.truth], top=[(new[c], p) for c, p in r.top]) for r in found.uncertain],
    )


def _probabilities(rng, n_rows, n_classes):
    """Probabilities of a model that knows what it does not know, and labels drawn from them."""
    f = rng.standard_normal((n_rows, n_classes)) * rng.gamma(1.0, 1.0, (n_rows, 1))
    f[np.arange(n_rows), rng.integers(n_classes, size=n_rows)] += rng.gamma(6.0, 2.0, n_rows) * np.log(n_classes) / 2.3
    p = np.exp(f - f.max(1, keepdims=True))
    p = np.maximum(p / p.sum(1, keepdims=True), 1e-9)
    p /= p.sum(1, keepdims=True)
    return p, np.minimum((p.cumsum(1) < rng.uniform(size=(n_rows, 1))).sum(1), n_classes - 1)


def _reliability(label, confidence, is_so, bins=15):
    groups = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(confidence)))
    count = np.array([len(g) for g in groups])
    said, is_ = (np.array([part[g].mean() for g in groups]) for part in (confidence, is_so))
    middle, half = (
        (is_ + 2 / count) / (1 + 4 / count),
        2 * np.sqrt(is_ * (1 - is_) / count + 1 / count**2) / (1 + 4 / count),
    )
    low, high = np.clip(middle - half, 0, is_), np.clip(middle + half, is_, 1)
    spread = np.histogram(confidence, bins=bins, range=(0.0, 1.0))[0]
    ece = float((count * abs(said - is_)).sum() / count.sum())
    return ReliabilityCurve(label, said, is_, low, high, count, ece, spread)


def _scores(n_rows, error):
    def line(name, e, nll, brier, ece, note=""):
        return ScoreIntervals(
            name, _around(e, n_rows), _around(nll, n_rows), _around(brier, n_rows), Interval(ece, 0.0, 1.5 * ece), note
        )

    forest = line("random forest", error + 0.008, 0.3, 0.11, 0.216)
    return [
        line("this model", error, 0.066, 0.034, 0.011),
        line("class frequencies", 0.9, 2.302, 0.9, 0.047),
        line("logistic regression", error + 0.012, 0.114, 0.055, 0.019, "learned from half of the rows"),
        forest._replace(nll=Interval(np.inf, 0.2, np.inf)),
    ]


def _around(value, n_rows):
    half = 2 * np.sqrt(max(value, 0.01) / n_rows)
    return Interval(float(value), float(max(value - half, 0.0)), float(value + half))


def _relevance(rng, classes, n_features):
    values = rng.gamma(2.0, 0.05, n_features) * rng.uniform(0.6, 1.4, (len(classes), n_features))
    return Relevance([f"pixel {d // 8},{d % 8}" for d in range(n_features)], classes, values)


def _uncertain(p, y, classes, total, aleatoric, most=20):
    rows = np.argsort(-total, kind="stable")[:most].tolist()
    best = np.argsort(-p, axis=1, kind="stable")[:, :3]
    top = [[(classes[k], float(p[i, k])) for k in best[i]] for i in rows]
    parts = np.column_stack([total, aleatoric, total - aleatoric]).tolist()
    why = "unlike the training rows: collect and label similar rows"
    speaks = (("pixel 1,2", "0.25", 1.25), ("pixel 7,0", "missing", -0.5))
    return [UncertainRow(i, classes[y[i]], said, *parts[i], why, (), speaks) for i, said in zip(rows, top, strict=True)]


def _training(rng, epochs=80):
    epoch = np.arange(1, epochs + 1)
    objective = -370.0 - 460.0 * np.exp(-epoch / 6.0) + rng.standard_normal(epochs)
    return TrainingCurve(
        epoch,
        np.cumsum(rng.uniform(0.08, 0.12, epochs)),
        objective,
        [TrainingEvent(12, "step made smaller"), TrainingEvent(80, "settled")],
    )


def _map(rng, y, is_right, n_classes):
    angle = 2 * np.pi * np.arange(n_classes) / n_classes
    centers = 6.0 * np.column_stack([np.cos(angle), 0.7 * np.sin(angle)])
    of = np.repeat(np.arange(n_classes), max(200 // n_classes, 2))
    rows, points = (centers[c] + rng.standard_normal((len(c), 2)) for c in (y, of))
    axes = ("discriminant 1 (mostly pixel 3,4)", "discriminant 2 (mostly pixel 2,1)")
    return Map(rows[:450], y[:450], is_right[:450], points, of, axes, 0.42, len(points))


def _advice():
    return [
        Advice("good", "No sign of miscalibration.", "No action needed."),
        Advice(
            "warning", "Class 7 is more frequent than its probabilities predict.", "Fit again with rows like these."
        ),
        Advice("note", "Three features are constant.", "Remove them."),
    ]
