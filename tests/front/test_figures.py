"""Constants and figures in the documentation: those of the code and of the committed records."""

import math
import re
from pathlib import Path

import pytest

from benchmarks.records import read
from cavity import GPClassifier
from cavity.data.source import BUFFER_ROWS
from cavity.fitting import calibration, fit, settings
from cavity.runtime import memory
from cavity.runtime.memory import FitSize, bytes_needed, step_cost
from cavity.training import loop
from experiments.defaults.all_rows import table

ROOT = Path(__file__).parents[2]
GFLOPS, BYTES_PER_SECOND = 48e9, 15e9  # of the machine of docs/planning.md
STEP = re.compile(r"^\| (SEP|EP|VI) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (own|shared) \| (.*) \|$", re.MULTILINE)


def page(name):
    """The text of a page with every run of white space as one space."""
    return " ".join((ROOT / name).read_text().split())


def rows_below(name, header):
    """The cells of the table with this header."""
    lines = (ROOT / name).read_text().partition(f"| {header} |\n")[2].splitlines()[1:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in table]


def same(text, value):
    """Whether a number was rounded as it is written."""
    decimals = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-decimals * (1 + 1e-9)


def per_method(counts, *groups):
    """Such as `12.5 (SEP), 10 (EP, GFITC)`."""
    assert sorted(name.lower() for group in groups for name in group) == sorted(counts)
    assert all(len({counts[name.lower()] for name in group}) == 1 for group in groups)
    return ", ".join(f"{counts[group[0].lower()]:g} ({', '.join(group)})" for group in groups)


def test_the_model_of_memory():
    text, m = page("docs/planning.md"), memory
    heap = round(m.LARGEST_HEAP_BLOCK / 1e6)
    for part in (
        rf"${m.COPIES:g} \cdot 8 (D + 2)$ each | arrays: $N / R$ rows; files: the {BUFFER_ROWS:,} rows",
        f"$32 C N / R$ | EP and GFITC only; {1 + m.OF_MIXING:g} times as much while a fixed point is "
        f"computed on all rows, {1 + m.OF_LARGE_MIXING:g} times with more than {m.LARGE_STATE:,} numbers",
        f"$8 (k C + {m.OF_PRIOR:g} S) M^2$ | $k$ = " + per_method(m.OF_Q, ("SEP",), ("EP", "GFITC"), ("VI",)),
        f"$8 ({m.OF_ROWS:g} C + {m.OF_PRIOR_ROWS:g} S) M B + 8 k C B$ | $k$ = "
        + per_method(m.OF_FACTORS, ("SEP", "VI"), ("EP", "GFITC")),
        f"$k$ = {m.OF_THETA['sep']:g} (Adam), {m.OF_THETA['gfitc']:g} (L-BFGS)",
        f"Blocks below {heap} MB count {m.HEAP:g} times",
        f"larger ones count {m.ELSEWHERE:g} times. Libraries take {m.FIXED / 1e6:g} MB",
        f"use blocks of {m.PASS_ELEMENTS / 1e6:g} million numbers",
        f"or ${m.LEAST_BLOCK} M$ if that is more",
        f"the blocks have {m.GPU_ELEMENTS / 1e6:.0f} million numbers",
        f"{m.KEPT_BLOCKS} blocks' worth",
    ):
        assert part in text, part
    assert m.PASS_ELEMENTS == loop.PASS_ELEMENTS
    assert m.SOURCE_ROWS == BUFFER_ROWS
    assert m.BATCH == settings.BATCH_SIZE


def test_the_model_of_a_step():
    text, steps = page("docs/planning.md"), memory.STEPS
    cubes = {"16": 16.0, "12⅔": 38 / 3, "8⅔": 26 / 3}
    assert [s.flop_cubes for s in (steps["sep"], steps["ep"], steps["vi"])] == list(cubes.values())
    assert "$k$ = {} (SEP), {} (EP), {} (VI)".format(*cubes) in text
    moved = [f"{s.moved_squares:g}, {s.moved_factors:g}" for s in (steps["sep"], steps["ep"], steps["vi"])]
    assert "$k, k'$ = {} (SEP), {} (EP), {} (VI, with ${:g} M B$".format(*moved, steps["vi"].moved_rows) in text
    assert f"$C ({steps['sep'].flop_rows:g} M^2 B + k M^3)" in text
    assert f"$C ({steps['sep'].moved_rows:g} M B + k M^2 + k' B)" in text
    assert rf"$C ({steps['gfitc'].flop_rows:g} M^2 N + 16\tfrac{{2}}{{3}} M^3) / R$" in text
    assert steps["gfitc"].flop_cubes == 50 / 3


def test_steps_of_one_process():
    found = STEP.findall((ROOT / "docs/planning.md").read_text())
    assert len(found) == 12
    for method, C, M, B, D, shared, rest in found:
        gflop, _, measured, ratio, rate = rest.split(" | ")
        is_shared = (shared == "shared",) * 2
        cost = step_cost(method.lower(), int(C), int(M), int(D), int(B), 1, *is_shared)
        value, unit = measured.split()
        seconds, ideal = float(value) / {"ms": 1000, "s": 1}[unit], cost.flop / GFLOPS
        assert same(gflop, cost.flop / 1e9)
        assert same(ratio, seconds / ideal)
        assert same(rate, cost.bytes_moved / (seconds - ideal) / 1e9)


def test_steps_of_several_workers_are_those_of_the_records():
    records = {(r["C"], r["M"], r["B"], r["ranks"]): r for r in read(ROOT / "benchmarks/history.jsonl")
               if r["case"] == "ranks"}  # fmt: skip
    header = "C | M | \\|B\\| | workers | GFLOP per worker | messages per worker | model | measured | measured / model"
    rows = [row for row in rows_below("docs/planning.md", f"{header} | speedup") if row[0].isdigit()]
    assert len(rows) == len(records)
    for C, M, B, workers, gflop, _, model, measured, ratio, _ in rows:
        record = records[int(C), int(M), int(B), int(workers)]
        cost = step_cost("sep", int(C), int(M), record["D"], int(B), int(workers))
        ms = 1000 * (cost.flop / GFLOPS + cost.bytes_moved / BYTES_PER_SECOND)
        assert same(gflop, cost.flop / 1e9)
        assert same(model.removesuffix(" ms"), ms)
        assert same(measured.removesuffix(" ms"), record["ms"])
        assert same(ratio, record["ms"] / ms)


def test_the_plan_of_64_gpus():
    header = "\\|B\\| | rows per worker | operations per worker | rows | factors | bytes | latency | step"
    rows = rows_below("docs/planning.md", f"{header} | steps per epoch | epoch | rows per second and worker")
    assert len(rows) == 5
    for B, per_worker, gflop, *_, n_steps, _, _ in rows:
        assert int(per_worker) == int(B) // 64
        assert same(gflop.removesuffix(" GFLOP"), step_cost("sep", 10, 500, 20, int(B), 64).flop / 1e9)
        assert same(n_steps, 1e9 / int(B))
    size = FitSize("sep", 10, 500, 20, 1024, 10**9 // 64, resident_rows=BUFFER_ROWS, workers=64)
    text = page("docs/planning.md")
    assert f"Not memory: {bytes_needed(size).total / 1e9:.2f} GB per worker" in text
    assert f"sites of EP would add {bytes_needed(size._replace(method='ep')).sites / 1e9:.1f} GB" in text


def test_the_default_settings():
    text, s = page("docs/defaults.md"), settings
    lengthscale = s.PRIORS["lengthscale"]
    assert (lengthscale[0], lengthscale[2]) == (None, math.inf)
    for part in (
        f"sd {s.PRIORS['relevance']:g} below their mean over classes and features",
        f"sd {s.PRIORS['spread']:g} around the mean over classes",
        f"sd {lengthscale[1]:g} below the start value",
        f"start of length-scales | {s.START.lengthscale:g} median distance",
        f"{s.START.variance:g} and {s.START.noise:g}; priors of sd {s.PRIORS['variance'][1]:g} around them",
        f"Adam, learning rate {s.RATE:g} with cosine decay",
        f"{s.EPOCHS} epochs, or when $\\log Z_q$ per row rises by less than 1e-4 per epoch",
        f"Above {s.FULL_BATCH_ROWS:,} rows, training uses mini-batches of {s.BATCH_SIZE} rows",
        f"for about {s.STEPS:,} steps",
        f"the learning rate is {s.BATCH_RATE:g}",
        f"at least {s.LEAST_HELD_OUT} or one in five",
        f"between {s.LEAST_VI_DAMPING:g} and {s.BATCH_DAMPING['vi']:g}",
    ):
        assert part in text, part
    assert s.TOL == 1e-4
    assert s.PRIORS["noise"] == s.PRIORS["variance"]
    assert s.BATCH_START.lengthscale == 0.5
    assert (s.FOLDS, s.HELD_OUT_FRACTION, s.LARGEST_FRACTION) == (3, 20, 5)
    held_out = page("docs/calibration.md")
    assert f"at least {s.LEAST_HELD_OUT} (or one in five, if that is fewer), at most {s.MOST_HELD_OUT:,}" in held_out
    most_classes = fit.MOST_HELD_OUT_NUMBERS // s.MOST_HELD_OUT
    assert f"with more than {most_classes} classes at most {fit.MOST_HELD_OUT_NUMBERS:,} divided by" in held_out
    assert f"at most {fit.MOST_HELD_OUT_NUMBERS:,} numbers" in page("docs/planning.md")
    assert f"{s.LBFGS_EPOCHS} iterations is as good" in text


def test_the_authors_settings():
    text, s = page("docs/paper-settings.md"), settings
    assert f"starts at {s.PAPER_RATE:g}" in text
    assert f"{s.PAPER_STEPS['ep']} steps on all rows | `max_epochs={s.PAPER_STEPS['ep']}`" in text
    assert f"L-BFGS with a memory of {s.PAPER_MEMORY}" in text
    assert f"{s.PAPER_STEPS['vi']} iterations" in text
    assert GPClassifier.paper("ep").max_epochs == s.PAPER_STEPS["ep"]


@pytest.mark.parametrize("name", ["docs/calibration.md", "docs/adr/0006-calibrated-defaults.md"])
def test_the_prior_on_the_sharpness(name):
    assert re.search(rf"(?:standard deviation|sd) {calibration.LOG_SD:g}\b", page(name))


def test_the_sharpness_does_not_come_from_few_inducing_points():
    """What decision 6 says of M = N, by its records."""
    folder = ROOT / "experiments/defaults"
    text = (folder / "README.md").read_text()
    assert f"<!-- all-rows -->\n{table(folder)}<!-- /all-rows -->" in text
    for name, cells in (line.strip("| ").split(" | ", 1) for line in table(folder).splitlines()[2:]):
        few, every = (float(cell.split(" ")[0]) for cell in cells.split(" | ")[1:3])
        assert every > 1.0 + 0.8 * (few - 1.0)  # at most a fifth of the excess is due to few points
        stated = f"{every:.2f} instead of {few:.2f} on (?:two folds of )?{name.replace('_', '-')}"
        assert re.search(stated, page("docs/adr/0006-calibrated-defaults.md"), re.IGNORECASE)


def test_the_uci_table_of_the_readme():
    """Eight sets with M = 10 %: the paper's figures, ours with its settings, and our defaults."""
    cells = {}
    for line in (ROOT / "experiments/uci/results.md").read_text().partition("### Test error")[0].splitlines():
        if "| 10% |" in line:
            name, _, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            paper = [re.search(r"\((\d\.\d\d)\)", cell)[1] for cell in rest[:4]]
            cells[name] = [*paper, *(cell.split(" ")[0] for cell in (rest[1], rest[4]))]
    header = 'set | paper: GFITC | EP | SEP | VI | `paper("ep")` | `GPClassifier()`'
    rows = rows_below("README.md", header)
    assert {name: found for name, *found in rows} == cells
    assert len(cells) == 8
    agreeing = re.search(r"\| (\d+ of \d+) \|$", (ROOT / "experiments/uci/results.md").read_text(), re.MULTILINE)[1]
    assert f"{agreeing} means are within two standard errors" in (ROOT / "README.md").read_text()
