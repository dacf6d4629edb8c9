"""What settings cost, before anything is trained: bytes to hold, and operations and messages of a step.

Memory is a count of tensors alive at once, each a block of one of a few shapes. The counts were measured: peak resident
memory of some sixty fits of all methods, 0.1 to 2 GB. Above 200 MB the sum is mostly 0 to 30 % above the truth, and
never more than a tenth below it; settings that fit by this count should fit. docs/planning.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

FLOAT = 8  # bytes; factors, sites and q are double whatever the rows are
FIXED = 30_000_000  # of libraries, when first used
OF_Q = {"sep": 12.5, "ep": 10.0, "gfitc": 10.0, "vi": 8.0}  # blocks C × M × M: the state, the one before, factors of q
OF_PRIOR = 5.5  # blocks M × M of the prior, for each class or once: K, L and its inverse
OF_ROWS, OF_PRIOR_ROWS = 2.3, 3.3  # blocks C × M × B of a step, and M × B of the prior
OF_FACTORS = {"sep": 20.0, "ep": 60.0, "gfitc": 60.0, "vi": 20.0}  # blocks C × B
OF_MIXING = 34.0  # states kept by the search for a fixed point on all rows
OF_THETA = {"sep": 7.0, "ep": 7.0, "vi": 7.0, "gfitc": 50.0}  # vectors like θ: moments of Adam, or L-BFGS's past steps
COPIES = 3.5  # of rows in memory: as given, chosen, scaled
LARGEST_HEAP_BLOCK, HEAP, ELSEWHERE = 2**25, 1.4, 1.05  # what smaller blocks take with the gaps between them
PASS_ELEMENTS = 1_000_000  # of a block of a pass that only adds up
BUFFER = 65_536  # rows of a source that are in memory
ROUND = (8, 6, 5, 4, 3, 2.5, 2, 1.5, 1)
BATCH = 500
LEAST = 10  # of inducing points or rows of a batch that are worth proposing


class _Step(NamedTuple):
    """Counts of a step for one class: M²B and M³ of operations; MB, M² and B of numbers read and written."""

    flop_rows: float
    flop_cubes: float
    moved_rows: float
    moved_squares: float
    moved_factors: float


STEPS = {
    "sep": _Step(8, 16, 21, 71, 250),
    "ep": _Step(8, 38 / 3, 21, 58, 555),
    "vi": _Step(8, 26 / 3, 28, 63, 4850),  # with the quadrature of some fifty nodes
    "gfitc": _Step(46, 50 / 3, 87, 159, 2575),
}


class Settings(NamedTuple):
    """What memory depends on.

    Attributes:
        method: "ep", "sep", "gfitc" or "vi".
        n_classes, n_inducing, n_features: C, M and D.
        batch_rows: rows of a step in this process; all of them where there are no batches.
        n_rows: training rows of this process.
        share_kernel, share_inducing: as for `GPClassifier`.
        dtype: of the rows.
        resident_rows: rows held in memory: those of arrays, or of the buffer of a source.
        workers: processes that train together.
    """

    method: str
    n_classes: int
    n_inducing: int
    n_features: int
    batch_rows: int
    n_rows: int
    share_kernel: bool = False
    share_inducing: bool = False
    dtype: str = "float64"
    resident_rows: int = 0
    workers: int = 1


class Bytes(NamedTuple):
    """Memory by what takes it: rows, sites of EP and GFITC, q(u) with its factors, blocks of a batch, θ."""

    rows: int
    sites: int
    q: int
    blocks: int
    theta: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self) + FIXED


def bytes_needed(
    method: str,
    n_classes: int,
    n_inducing: int,
    n_features: int,
    batch_rows: int,
    n_rows: int,
    share_kernel: bool = False,
    share_inducing: bool = False,
    dtype: str = "float64",
    resident_rows: int = 0,
    workers: int = 1,
) -> Bytes:
    """The most memory that training takes at one moment; the arguments are the fields of `Settings`.

    >>> readable(bytes_needed("sep", 1000, 100, 20, 500, 200_000, True, True).total)
    '2.2 GB'
    """
    C, M, D, is_full = n_classes, n_inducing, n_features, batch_rows >= n_rows
    B = min(n_rows, max(batch_rows, PASS_ELEMENTS // (C * M)))
    own = 1 if share_kernel and share_inducing else C  # priors
    of_site = 4 * FLOAT * C * n_rows if method in ("ep", "gfitc") else 0
    mixed = is_full * OF_MIXING
    states = OF_Q[method] + (mixed if method == "vi" else 0) + (1 if workers > 1 else 0)  # the message
    theta = _theta_size(C, M, D, share_kernel, share_inducing)
    return Bytes(
        rows=int(COPIES * resident_rows * (D + 2) * (4 if dtype == "float32" else FLOAT)),
        sites=of_site + _held(mixed, of_site),
        q=_held(states, FLOAT * C * M * M) + _held(OF_PRIOR, FLOAT * own * M * M),
        blocks=_held(OF_ROWS, FLOAT * C * M * B) + _held(OF_PRIOR_ROWS, FLOAT * own * M * B)
        + _held(OF_FACTORS[method], FLOAT * C * B),
        theta=int(OF_THETA[method] * FLOAT * theta),
    )  # fmt: skip


def _held(count: float, size: int) -> int:
    """So many blocks of one size. Freed small ones stay with the process, in pieces that not every other block fits."""
    return int(count * size * (HEAP if size < LARGEST_HEAP_BLOCK else ELSEWHERE))


def _theta_size(C: int, M: int, D: int, share_kernel: bool, share_inducing: bool) -> int:
    """P: inducing points; length-scales, variance and noise of each kernel."""
    return (1 if share_inducing else C) * M * D + (1 if share_kernel else C) * (D + 2)


def readable(size: float) -> str:
    """A number of bytes for people.

    >>> readable(61.3e9), readable(4_200_000)
    ('61 GB', '4.2 MB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:.0f} {units[0]}"


def check_budget(needed: Bytes, available: int | None, settings: Settings) -> None:
    """Refuse settings that need more memory than there is, naming changes that would fit.

    Args:
        needed: `bytes_needed(*settings)`.
        available: as `cavity.runtime.memory.available_bytes` says; None for unknown, which passes.
        settings: what `needed` was computed from.
    """
    if available is None or needed.total <= available:
        return
    fits = [f"{what} would need {readable(_total(changed))}" for what, changed in _changes(settings, available)]
    raise ValueError(
        f"these settings need about {readable(needed.total)} of memory ({_breakdown(needed, settings)}) but "
        f"{readable(available)} are free; {'; '.join(fits) or _together(settings, available)}"
    )


def _breakdown(needed: Bytes, s: Settings) -> str:
    """What takes a tenth or more, the largest first."""
    blocks = f"{s.n_classes} classes × {s.n_inducing}"
    parts = [
        (needed.rows, f"{s.resident_rows:,} rows × {s.n_features} features"),
        (needed.sites, f"the sites of {s.n_rows:,} rows × {s.n_classes} classes"),
        (needed.q, f"q(u) and its factors, {blocks}²"),
        (needed.blocks, f"the blocks of a batch, {blocks} × {s.batch_rows:,} rows"),
        (needed.theta, "hyper-parameters and their optimizer"),
    ]
    large = sorted((part for part in parts if part[0] >= 0.1 * needed.total), reverse=True)
    return ", ".join(f"{readable(size)} for {what}" for size, what in large)


def _total(settings: Settings) -> int:
    return bytes_needed(*settings).total


def _switches(s: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cheaper ways to go about it, each as the argument that asks for it."""
    if not (s.share_kernel and s.share_inducing):
        yield "share_kernel=True with share_inducing=True", {"share_kernel": True, "share_inducing": True}
    if s.method == "ep":
        yield "method='sep'", {"method": "sep"}
    if s.method == "gfitc":  # which has no batches
        rows = min(s.batch_rows, BATCH)
        yield f"method='sep' with batch_size={rows * s.workers}", {"method": "sep", "batch_rows": rows}
    if s.resident_rows > BUFFER:
        yield "rows from files (cavity.data.Parquet)", {"resident_rows": BUFFER}


def _smaller(s: Settings, available: int) -> Iterator[tuple[str, Settings]]:
    """The largest round number of inducing points that fits, and of rows in a batch."""
    for field, name in (("n_inducing", "n_inducing"), ("batch_rows", "batch_size")):
        if field == "n_inducing" or s.method != "gfitc":
            changes: Iterator[dict[str, Any]] = ({field: value} for value in _round_below(getattr(s, field)))
            tries = (s._replace(**change) for change in changes)
            fits = next((t for t in tries if _total(t) <= available), None)
            if fits is not None:
                yield f"{name}={getattr(fits, field) * (s.workers if name == 'batch_size' else 1)}", fits


def _round_below(n: int) -> Iterator[int]:
    for power in range(len(str(n)) - 1, 0, -1):
        yield from (int(digit * 10**power) for digit in ROUND if LEAST <= digit * 10**power < n)


def _changes(s: Settings, available: int) -> Iterator[tuple[str, Settings]]:
    """Single changes after which the settings fit."""
    switched = ((what, s._replace(**change)) for what, change in _switches(s))
    yield from (found for found in switched if _total(found[1]) <= available)
    yield from _smaller(s, available)


def _together(s: Settings, available: int) -> str:
    """One change after another until it fits, where none is enough."""
    names = []
    for what, change in _switches(s):
        s = s._replace(**change)
        names.append(what)
        if _total(s) <= available:
            return f"{', '.join(names)} together would need {readable(_total(s))}"
    for smaller in (s, s._replace(batch_rows=min(s.batch_rows, LEAST))):
        for what, fits in _smaller(smaller, available):
            return f"{', '.join([*names, what])} together would need {readable(_total(fits))}"
    return "no smaller settings fit: fewer classes or more memory are needed"


class Cost(NamedTuple):
    """What one rank does in one step.

    Attributes:
        flop: floating-point operations of products and factors.
        bytes_moved: to and from memory, where no operation finds its input in a cache.
        message_bytes: sent to other workers, by ring all-reduces.
        messages: how many they are, one after another.
    """

    flop: float
    bytes_moved: float
    message_bytes: float
    messages: int


def step_cost(
    method: str,
    n_classes: int,
    n_inducing: int,
    n_features: int,
    batch_rows: int,
    workers: int = 1,
    share_kernel: bool = False,
    share_inducing: bool = False,
) -> Cost:
    """The cost of a step on a batch of so many rows in all workers together; for GFITC of an evaluation of ten sweeps.

    Rows are divided among workers; factors every rank makes for itself. The sums that q is made of are added up over
    workers, then the gradient.

    >>> alone, of_64 = (step_cost("sep", 10, 500, 20, 65_536, workers) for workers in (1, 64))
    >>> round(alone.flop / of_64.flop)
    35
    """
    C, M, D, B, is_shared = n_classes, n_inducing, n_features, batch_rows / workers, share_kernel and share_inducing
    own, of = (1 if is_shared else C), STEPS[method]
    flop = C * M * M * (of.flop_rows * B + of.flop_cubes * M)
    flop += own * M * (4 * M * B + 16 / 3 * M * M + 4 * D * (B + M))
    moved = C * (M * (of.moved_rows * B + of.moved_squares * M) + of.moved_factors * B)
    moved += own * M * (39 * B + 42 * M + 37 * D)
    numbers = C * (M * (M + 1) + 1) + _theta_size(C, M, D, share_kernel, share_inducing) + 1
    return Cost(flop, FLOAT * moved, 2 * (workers - 1) / workers * FLOAT * numbers, 4 * (workers - 1))
