"""Memory: how much is available, how much a fit needs, and the cost of a training step.

The need of a fit is a count of the tensors that are alive at once, each a block of one of a few shapes. The counts were
measured as the peak resident memory of some sixty fits of all methods, 0.1 to 2 GB. Above 200 MB the estimate is mostly
0 to 30 % above the truth and never more than a tenth below it. docs/planning.md has the formulas.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

FLOAT = 8  # bytes; factors, sites and q are double whatever the rows are
FIXED = 30_000_000  # allocated by libraries on first use
OF_Q = {"sep": 12.5, "ep": 10.0, "gfitc": 10.0, "vi": 8.0}  # blocks C × M × M: the state, the one before, factors of q
OF_PRIOR = 5.5  # blocks M × M of the prior, for each class or once: K, L and its inverse
OF_ROWS, OF_PRIOR_ROWS = 2.3, 3.3  # blocks C × M × B of a step, and M × B of the prior
OF_FACTORS = {"sep": 20.0, "ep": 60.0, "gfitc": 60.0, "vi": 20.0}  # blocks C × B
OF_MIXING, OF_LARGE_MIXING = 34.0, 12.0  # states kept by the search for a fixed point on all rows
LARGE_STATE = 2**18  # numbers of a state, above which its past is kept in single precision
OF_THETA = {"sep": 7.0, "ep": 7.0, "vi": 7.0, "gfitc": 50.0}  # vectors like θ: moments of Adam, or L-BFGS's past steps
COPIES = 3.5  # of rows in memory: as given, chosen, scaled
LARGEST_HEAP_BLOCK, HEAP, ELSEWHERE = 2**25, 1.4, 1.05  # what smaller blocks take with the gaps between them
PASS_ELEMENTS = 1_000_000  # of a block of a pass over all rows, or of a step on them; see docs/planning.md
GPU_ELEMENTS = 2**24  # of a block on a GPU, which small blocks leave idle
LEAST_BLOCK = 4  # rows of it for each inducing point: q is factorized again for every block
KEPT_BLOCKS = 8  # up to as many are kept between passes over all rows
SOURCE_ROWS = 65_536  # of a source that are in memory at once
ROUND = (8, 6, 5, 4, 3, 2.5, 2, 1.5, 1)
BATCH = 500
LEAST = 10  # the fewest inducing points or rows of a batch worth proposing


class _Step(NamedTuple):
    """Counts of a step for one class: M²B and M³ of operations; MB, M² and B of numbers read and written.

    Products count in full, as a GPU computes them. A CPU skips what symmetry and zeros give (`numerics.linalg`).
    """

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


class FitSize(NamedTuple):
    """The sizes that the memory of a fit depends on.

    Attributes:
        method: "ep", "sep", "gfitc" or "vi".
        n_classes, n_inducing, n_features: C, M and D.
        batch_rows: rows of a step in this process; all of them without mini-batches.
        n_rows: training rows of this process.
        share_kernel, share_inducing: as for `GPClassifier`.
        dtype: of the rows.
        resident_rows: rows held in memory: those of arrays, or of the buffer of a source.
        workers: number of processes that train together.
        device: type of the device that trains: "cpu" or another one.
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
    device: str = "cpu"

    @property
    def is_full(self) -> bool:
        """Whether a step takes all rows."""
        return self.batch_rows >= self.n_rows

    @property
    def block_rows(self) -> int:
        """The rows of a block of k(Z, X): of a batch, or of a part of all rows."""
        if self.is_full:
            return -(-self.n_rows // block_count(self.n_classes, self.n_inducing, self.n_rows, self.device))
        return min(self.n_rows, max(self.batch_rows, PASS_ELEMENTS // (self.n_classes * self.n_inducing)))


def block_count(n_classes: int, n_inducing: int, n_rows: int, device: str) -> int:
    """Return into how many blocks of k(Z, X) a step on all rows divides them."""
    size = max(_elements(device) // (n_classes * n_inducing), LEAST_BLOCK * n_inducing)
    return max(n_rows // size, 1)


def keeps_blocks(n_classes: int, n_inducing: int, n_rows: int, device: str) -> bool:
    """Return whether the blocks of all rows are kept between passes over the rows, not computed again for each."""
    return n_classes * n_inducing * n_rows <= KEPT_BLOCKS * _elements(device)


def _elements(device: str) -> int:
    return PASS_ELEMENTS if device == "cpu" else GPU_ELEMENTS


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


def bytes_needed(size: FitSize) -> Bytes:
    """Return the peak memory of training.

    >>> size = FitSize("sep", n_classes=1000, n_inducing=100, n_features=20, batch_rows=500, n_rows=200_000,
    ...                share_kernel=True, share_inducing=True)
    >>> readable(bytes_needed(size).total)
    '2.2 GB'
    """
    method, n_rows, workers = size.method, size.n_rows, size.workers
    share_kernel, share_inducing = size.share_kernel, size.share_inducing
    C, M, D, B = size.n_classes, size.n_inducing, size.n_features, size.block_rows
    kept = n_rows if size.is_full and keeps_blocks(C, M, n_rows, size.device) else B  # rows of the prior's blocks
    own = 1 if share_kernel and share_inducing else C  # priors
    of_site = 4 * FLOAT * C * n_rows if method in ("ep", "gfitc") else 0
    numbers = 4 * C * n_rows if of_site else C * M * (M + 1)  # of the state that is mixed
    mixed = size.is_full * (OF_MIXING if numbers <= LARGE_STATE else OF_LARGE_MIXING)
    states = OF_Q[method] + (mixed if method == "vi" else 0) + (1 if workers > 1 else 0)  # the message
    theta = _theta_size(C, M, D, share_kernel, share_inducing)
    return Bytes(
        rows=int(COPIES * size.resident_rows * (D + 2) * (4 if size.dtype == "float32" else FLOAT)),
        sites=of_site + _held(mixed, of_site),
        q=_held(states, FLOAT * C * M * M) + _held(OF_PRIOR, FLOAT * own * M * M),
        blocks=_held(OF_ROWS, FLOAT * C * M * B) + _held(OF_PRIOR_ROWS, FLOAT * own * M * kept)
        + _held(OF_FACTORS[method], FLOAT * C * B),
        theta=int(OF_THETA[method] * FLOAT * theta),
    )  # fmt: skip


def _held(count: float, size: int) -> int:
    """Bytes of `count` blocks. Small freed blocks stay with the process, in pieces that other blocks may not fit."""
    return int(count * size * (HEAP if size < LARGEST_HEAP_BLOCK else ELSEWHERE))


def _theta_size(C: int, M: int, D: int, share_kernel: bool, share_inducing: bool) -> int:
    """P: inducing points; length-scales, variance and noise of each kernel."""
    return (1 if share_inducing else C) * M * D + (1 if share_kernel else C) * (D + 2)


def readable(size: float) -> str:
    """Format a number of bytes for people.

    >>> readable(61.3e9), readable(4_200_000)
    ('61 GB', '4.2 MB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:.0f} {units[0]}"


def check_memory(size: FitSize, available: float | None, limit: str | None = None) -> None:
    """Raise ValueError if a fit of this size needs more memory than is available, and suggest settings that fit.

    Args:
        size: of the fit.
        available: bytes, as returned by `available_bytes`; None for unknown, which passes.
        limit: what limits them, for the message; None for the free memory.
    """
    needed = bytes_needed(size)
    if available is None or needed.total <= available:
        return
    blocks = f"{size.n_classes} classes × {size.n_inducing}"
    parts = [
        (needed.rows, f"{size.resident_rows:,} rows × {size.n_features} features"),
        (needed.sites, f"the sites of {size.n_rows:,} rows × {size.n_classes} classes"),
        (needed.q, f"q(u) and its factors, {blocks}²"),
        (needed.blocks, f"the blocks of a batch, {blocks} × {size.block_rows:,} rows"),
        (needed.theta, "hyper-parameters and their optimizer"),
    ]
    large = sorted((part for part in parts if part[0] >= 0.1 * needed.total), reverse=True)
    switched = ((what, size._replace(**change)) for what, change in _switches(size))
    changes = [found for found in switched if _total(found[1]) <= available] + list(_smaller(size, available))
    fits = [f"{what} would need {readable(_total(changed))}" for what, changed in changes]
    found = f"only {readable(available)} are available" if limit is None else f"{limit} {readable(available)}"
    raise ValueError(
        f"these settings need about {readable(needed.total)} of memory "
        f"({', '.join(f'{readable(part)} for {what}' for part, what in large)}) but {found}; "
        f"{'; '.join(fits) or _together(size, available)}. This is an estimate: memory_limit= (--memory-limit) sets "
        "another limit in bytes, and math.inf (inf) turns the check off"
    )


def _total(size: FitSize) -> int:
    return bytes_needed(size).total


def _switches(s: FitSize) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield cheaper settings, each with the argument that asks for it."""
    if not (s.share_kernel and s.share_inducing):
        yield "share_kernel=True with share_inducing=True", {"share_kernel": True, "share_inducing": True}
    if s.method == "ep":
        yield "method='sep'", {"method": "sep"}
    if s.method == "gfitc":  # which has no batches
        rows = min(s.batch_rows, BATCH)
        yield f"method='sep' with batch_size={rows * s.workers}", {"method": "sep", "batch_rows": rows}
    if s.resident_rows > SOURCE_ROWS:
        yield "rows from files (cavity.data.Parquet)", {"resident_rows": SOURCE_ROWS}


def _smaller(s: FitSize, available: float) -> Iterator[tuple[str, FitSize]]:
    """Yield the largest round number of inducing points that fits, and of rows in a batch."""
    for field, name in (("n_inducing", "n_inducing"), ("batch_rows", "batch_size")):
        if field == "n_inducing" or s.method != "gfitc":
            now = getattr(s, field)
            values = (int(digit * 10**power) for power in range(len(str(now)) - 1, 0, -1) for digit in ROUND)
            changes: Iterator[dict[str, Any]] = ({field: value} for value in values if LEAST <= value < now)
            tries = (s._replace(**change) for change in changes)
            fits = next((t for t in tries if _total(t) <= available), None)
            if fits is not None:
                yield f"{name}={getattr(fits, field) * (s.workers if name == 'batch_size' else 1)}", fits


def _together(s: FitSize, available: float) -> str:
    """Combine changes until the settings fit, where no single one is enough."""
    names = []
    for what, change in _switches(s):
        s = s._replace(**change)
        names.append(what)
        if _total(s) <= available:
            return f"{', '.join(names)} together would need {readable(_total(s))}"
    for smaller in (s, s._replace(batch_rows=min(s.batch_rows, LEAST))):
        for what, fits in _smaller(smaller, available):
            return f"{', '.join([*names, what])} together would need {readable(_total(fits))}"
    return "no smaller settings fit: use fewer classes or a machine with more memory"


class Cost(NamedTuple):
    """The cost of one training step for one worker.

    Attributes:
        flop: floating-point operations of products and factors.
        bytes_moved: to and from memory, where no operation finds its input in a cache.
        message_bytes: bytes sent to other workers by ring all-reduces.
        messages: number of messages, one after another.
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
    """Return the cost of a step on a batch of `batch_rows` rows over all workers; for GFITC, of ten sweeps.

    Workers share the rows; each computes all factorizations itself. They sum the sites first, then the gradient.

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


def available_bytes(device: torch.device) -> int | None:
    """Return the bytes available on the device; None if the system does not tell.

    On a CPU this is what the kernel reports, limited by the control groups of this process.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    if device.type != "cpu":
        return None
    found = [size for size in (_system_bytes(Path("/")), cgroup_bytes(Path("/"))) if size is not None]
    return min(found, default=None)


def _system_bytes(root: Path) -> int | None:
    """Return Linux's MemAvailable, else the free pages that POSIX reports, else all pages."""
    lines = _text(root / "proc/meminfo").splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    if kilobytes:
        return 1024 * kilobytes[0]
    known = [name for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in getattr(os, "sysconf_names", {})]
    return os.sysconf(known[0]) * os.sysconf("SC_PAGE_SIZE") if known else None


def cgroup_bytes(root: Path) -> int | None:
    """Return what the memory limits of the control groups and their parents leave; None without a limit.

    Reads both versions of control groups where systemd and containers mount them. Cached files do not count, because
    the kernel releases them.
    """
    limits = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = "memory.max", "memory.current", "inactive_file"
            limits += [_unused_bytes(group, *names) for group in _upwards(root / "sys/fs/cgroup", path)]
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            limits += [_unused_bytes(group, *names) for group in _upwards(root / "sys/fs/cgroup/memory", path)]
    return min((limit for limit in limits if limit is not None), default=None)


def _upwards(mount: Path, path: str) -> list[Path]:
    """Return the group and its parents. Inside a container the path may not exist; then only the mount counts."""
    group = mount / path.lstrip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(mount))]


def _unused_bytes(group: Path, limit_name: str, usage_name: str, cached_name: str) -> int | None:
    limit, usage = _text(group / limit_name).strip(), _text(group / usage_name).strip()
    if not (limit.isdigit() and usage.isdigit()):  # "max" is no limit
        return None
    stat = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines())
    return max(int(limit) - int(usage) + int(stat.get(cached_name, 0)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
