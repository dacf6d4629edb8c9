"""What settings cost: memory beside what real fits hold, refusals with remedies that work, operations and messages."""

import math
import re

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.problems import Size, sparse_images
from benchmarks.step import cavity_step
from cavity import GPClassifier
from cavity.data import Arrays
from cavity.datasets import make_waveform
from cavity.gp import residual
from cavity.gp.gaussian import Whitened
from cavity.inference import ep, sep
from cavity.kernels import RBF
from cavity.numerics import linalg
from cavity.runtime import memory
from cavity.runtime.distributed import Workers
from cavity.runtime.memory import (
    FIXED,
    KEPT_BLOCKS,
    PASS_ELEMENTS,
    FitSize,
    bytes_needed,
    check_memory,
    readable,
    step_cost,
)
from cavity.training import fixed_point, loop
from tests.live import Live

LARGE = FitSize("sep", 1000, 400, 20, 500, 200_000)
GB = 10**9


def total(settings):
    return bytes_needed(settings).total


# --- Bytes ---


@pytest.mark.parametrize(
    ("method", "batch", "shared"),
    [
        ("sep", 100, True),
        ("sep", 100, False),
        ("ep", 100, True),
        ("ep", 100, False),
        ("vi", 100, True),
        ("ep", None, False),
        ("vi", None, True),
        ("gfitc", None, True),
    ],
)
def test_a_fit_holds_what_was_said(method, batch, shared):
    """Tensors alive at once, at most; the rest of the estimate is for what no tensor shows."""
    C, M, N, D = 20, 40, 300, 5
    rng = np.random.default_rng(0)
    X, y, Z = rng.standard_normal((N, D)), np.arange(N) % C, rng.standard_normal((M, D))
    model = GPClassifier(method, inducing_points=Z, share_kernel=shared, share_inducing=shared, batch_size=batch,
                         max_epochs=1, calibrate=False, tol=0.0, device="cpu", random_state=0)  # fmt: skip
    with Live() as live:
        model.fit(X, y)
    needed = bytes_needed(FitSize(method, C, M, D, batch or N, N, shared, shared, resident_rows=N)).total - FIXED
    assert live.peak <= needed <= 3 * live.peak


@pytest.mark.parametrize("method", ["ep", "sep", "vi"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_fit_in_blocks_holds_what_was_said(method, kept, monkeypatch):
    C, M, N, D = 5, 40, 2000, 4
    monkeypatch.setattr(memory, "PASS_ELEMENTS", 40_000)
    monkeypatch.setattr(memory, "KEPT_BLOCKS", 10 if kept else 0)
    monkeypatch.setattr(residual, "SAMPLE_ROWS", 100)  # of a measurement after training
    for module in (memory, fixed_point):
        monkeypatch.setattr(module, "LARGE_STATE", 10_000)
    rng = np.random.default_rng(0)
    X, y, Z = rng.standard_normal((N, D)), np.arange(N) % C, rng.standard_normal((M, D))
    model = GPClassifier(method, kernel=RBF(), inducing_points=Z, batch_size=None, max_epochs=2, calibrate=False,
                         tol=0.0, device="cpu", random_state=0)  # fmt: skip
    with Live() as live:
        model.fit(X, y)
    size = FitSize(method, C, M, D, N, N, resident_rows=N)
    assert size.block_rows == 200
    assert live.peak <= bytes_needed(size).total - FIXED <= 3 * live.peak


def test_the_total_is_that_of_the_parts():
    needed = bytes_needed(FitSize("ep", 10, 100, 20, 500, 10_000, resident_rows=10_000))
    assert needed.total == needed.rows + needed.sites + needed.q + needed.blocks + needed.theta + FIXED
    assert min(needed) > 0


def test_passes_are_as_large_as_training_makes_them():
    assert PASS_ELEMENTS == loop.PASS_ELEMENTS


@pytest.mark.parametrize("method", ["sep", "ep", "vi"])
def test_memory_is_linear_in_the_classes(method):
    small, large = (total(FitSize(method, C, 200, 20, 500, 100_000, True, True)) - FIXED for C in (1000, 4000))
    assert large == pytest.approx(4 * small, rel=0.02)


@pytest.mark.parametrize("method", ["sep", "vi"])
def test_methods_that_forget_rows_need_no_more_for_more_of_them(method):
    assert total(FitSize(method, 10, 100, 20, 500, 10**5)) == total(FitSize(method, 10, 100, 20, 500, 10**9))


def test_ep_keeps_four_numbers_for_every_row_and_class():
    few, many = (bytes_needed(FitSize("ep", 10, 100, 20, 500, n)) for n in (10**5, 10**6))
    assert (many.sites, few.sites) == (32 * 10 * 10**6, 32 * 10 * 10**5)
    assert many._replace(sites=0) == few._replace(sites=0)


@pytest.mark.parametrize("method", ["sep", "ep", "gfitc", "vi"])
def test_all_rows_at_once_need_no_matrix_of_all_rows(method):
    """Ten times the rows: the blocks stay, and the sites grow with N and C but not with M."""
    few, many = (bytes_needed(FitSize(method, 10, 100, 20, n, n)) for n in (10**5, 10**6))
    assert many._replace(sites=0) == few._replace(sites=0)
    assert many.sites <= 10 * few.sites
    assert few.sites == bytes_needed(FitSize(method, 10, 400, 20, 10**5, 10**5)).sites


def test_ep_on_a_hundred_thousand_rows_is_admitted():
    check_memory(FitSize("ep", 10, 100, 20, 10**5, 10**5, resident_rows=10**5), GB)


def test_blocks_are_larger_on_a_gpu():
    cpu, gpu = (FitSize("ep", 10, 100, 20, 10**6, 10**6, device=device) for device in ("cpu", "cuda"))
    assert bytes_needed(gpu).blocks > 10 * bytes_needed(cpu).blocks


def test_kept_blocks_count():
    C, M = 10, 100
    most = KEPT_BLOCKS * PASS_ELEMENTS // (C * M)
    kept, again = (bytes_needed(FitSize("ep", C, M, 20, n, n)).blocks for n in (most, most + 1))
    assert kept > 2 * again


def test_only_rows_in_memory_count():
    here, in_files = (bytes_needed(FitSize("sep", 10, 100, 20, 500, 10**8, resident_rows=n)) for n in (10**8, 65_536))
    assert here.rows > 10**8 * 20 * 8 > 100 * in_files.rows
    single = bytes_needed(FitSize("sep", 10, 100, 20, 500, 10**8, dtype="float32", resident_rows=10**8))
    assert single.rows == here.rows // 2


def test_ranks_hold_the_message_too():
    alone, with_others = bytes_needed(LARGE), bytes_needed(LARGE._replace(workers=2))
    assert with_others.q - alone.q > 8 * 1000 * 400**2
    assert with_others._replace(q=0) == alone._replace(q=0)


def test_sharing_saves_the_priors_but_not_q():
    own, shared = bytes_needed(LARGE), bytes_needed(LARGE._replace(share_kernel=True, share_inducing=True))
    assert shared.q < own.q < 2 * shared.q
    assert shared.blocks < own.blocks
    assert shared.theta < own.theta / 100
    one = bytes_needed(LARGE._replace(share_kernel=True))
    assert one.q == own.q


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9.94e6, "9.9 MB"), (9.96e6, "10 MB"), (999.6e6, "1.0 GB"),
     (61.3e9, "61 GB"), (5e12, "5.0 TB"), (12_000e12, "12000 TB")],
)  # fmt: skip
def test_sizes_for_people(size, text):
    assert readable(size) == text


# --- Refusals ---


def refusal(settings, available):
    with pytest.raises(ValueError, match="of memory") as error:
        check_memory(settings, available)
    text, end, _ = str(error.value).partition(
        ". This is an estimate: memory_limit= (--memory-limit) sets another limit"
    )
    assert end
    return text


def test_what_fits_passes_and_so_does_what_nobody_knows():
    needed = bytes_needed(LARGE)
    check_memory(LARGE, needed.total)
    check_memory(LARGE, None)


def test_a_limit_that_is_given_is_named():
    with pytest.raises(
        ValueError, match=r"but memory_limit allows only 12 GB; .* math.inf \(inf\) turns the check off"
    ):
        check_memory(LARGE, 12e9, "memory_limit allows only")
    check_memory(LARGE, math.inf, "memory_limit allows only")


@pytest.mark.parametrize("as_source", [False, True])
def test_memory_limit_overrides_what_is_free(as_source, monkeypatch):
    X, y = make_waveform(60, random_state=0)
    rows = (Arrays(X, y),) if as_source else (X, y)
    small = {"n_inducing": 5, "batch_size": 20, "max_epochs": 1, "device": "cpu"}
    monkeypatch.setattr("cavity.fitting.fit.available_bytes", lambda device: 1000)
    with pytest.raises(ValueError, match=r"but only .* are available; .*memory_limit="):
        GPClassifier(**small).fit(*rows)
    for limit in (1e9, math.inf):
        GPClassifier(**small, memory_limit=limit).fit(*rows)
    monkeypatch.setattr("cavity.fitting.fit.available_bytes", lambda device: 10**12)
    with pytest.raises(ValueError, match=r"memory_limit allows only 1.0 kB"):
        GPClassifier(**small, memory_limit=1000).fit(*rows)


def test_a_refusal_says_what_takes_the_memory():
    text = refusal(LARGE, 12 * GB)
    assert f"need about {readable(total(LARGE))} of memory" in text
    assert "for q(u) and its factors, 1000 classes × 400²" in text
    assert "for the blocks of a batch, 1000 classes × 400 × 500 rows" in text
    assert "12 GB are available" in text
    assert "sites" not in text


def with_change(settings, text):
    """The settings after the changes that a remedy names."""
    names = {"batch_size": "batch_rows"}
    for name, value in re.findall(r"(\w+)=('\w+'|\w+)", text):
        known = {"True": True, "'sep'": "sep"}
        settings = settings._replace(**{names.get(name, name): known[value] if value in known else int(value)})
    return settings._replace(resident_rows=65_536) if "files" in text else settings


@pytest.mark.parametrize(
    ("settings", "available", "expected"),
    [
        (LARGE, 12 * GB, {"n_inducing"}),
        (LARGE, 25 * GB, {"share_kernel", "n_inducing"}),
        (LARGE._replace(n_inducing=50, batch_rows=20_000), 12 * GB, {"batch_size"}),
        (FitSize("ep", 100, 100, 20, 500, 10**7), 12 * GB, {"method"}),
        (FitSize("gfitc", 10, 500, 20, 10**5, 10**5), GB, {"method", "n_inducing"}),
        (FitSize("sep", 10, 100, 50, 500, 10**8, resident_rows=10**8), 12 * GB, {"files"}),
    ],
)
def test_each_remedy_fits_and_needs_what_it_says(settings, available, expected):
    _, _, remedies = refusal(settings, available).partition("are available; ")
    found = set()
    for remedy in remedies.split("; "):
        change, _, size = remedy.partition(" would need ")
        needs = total(with_change(settings, change))
        assert needs <= available
        assert readable(needs) == size
        found |= {"files"} if "files" in change else {change.partition("=")[0]}
    assert expected <= found


def test_the_number_proposed_is_the_largest_round_one():
    (M,) = map(int, re.findall(r"n_inducing=(\d+)", refusal(LARGE, 12 * GB)))
    assert M == 200
    assert total(LARGE._replace(n_inducing=250)) > 12 * GB


def test_where_no_change_is_enough_several_together_are():
    settings = LARGE._replace(method="ep", n_rows=10**8, n_inducing=2000)
    text = refusal(settings, 20 * GB)
    _, _, remedy = text.partition("are available; ")
    change, _, size = remedy.partition(" together would need ")
    assert all(name in change for name in ("share_kernel=True", "share_inducing=True", "method='sep'", "n_inducing="))
    needs = total(with_change(settings, change))
    assert needs <= 20 * GB
    assert readable(needs) == size


def test_where_nothing_fits_it_says_so():
    assert refusal(LARGE._replace(n_classes=10**8), GB).endswith("use fewer classes or a machine with more memory")


def test_gfitc_is_offered_no_batches_of_its_own():
    assert "; batch_size" not in refusal(FitSize("gfitc", 10, 500, 20, 10**5, 10**5), GB)


def test_the_batch_proposed_is_that_of_all_ranks():
    alone = LARGE._replace(n_inducing=50, batch_rows=20_000)
    assert "batch_size=4000 " in refusal(alone, 12 * GB)
    assert "batch_size=12000 " in refusal(alone._replace(workers=4), 10 * GB)


# --- Operations and messages ---


def counted(method, size):
    """Operations of a step as torch counts them, factorizations and what is done in place included."""

    def cholesky(shape, *args, **kwargs):
        return np.prod(shape[:-2]) * shape[-1] ** 3 / 3

    def solve(shape, of_columns, *args, **kwargs):
        return np.prod(shape) * of_columns[-1]

    def product(into, a, b, *args, **kwargs):
        return 2 * np.prod(a) * b[-1]

    aten = torch.ops.aten
    extra = {aten.baddbmm_: product, aten.linalg_cholesky_ex: cholesky, aten.linalg_solve_triangular: solve}
    work = cavity_step(method, sparse_images(size), size, "float64", "cpu")
    work.call()
    with torch.inference_mode(), FlopCounterMode(display=False, custom_mapping=extra) as counter:
        work.call()
    return counter.get_total_flops()


@pytest.mark.parametrize("size", [Size(5, 100, 20, 3), Size(5, 40, 300, 3), Size(3, 30, 60, 400)])
@pytest.mark.parametrize("method", ["sep", "ep"])
def test_operations_are_those_that_torch_counts(monkeypatch, method, size):
    """Those of a GPU; a CPU makes fewer, but not if matrices are small."""
    C, M, B, D = size
    on_cpu = counted(method, size)
    skip_nothing(monkeypatch)
    in_full = counted(method, size)
    assert step_cost(method, C, M, D, B).flop == pytest.approx(in_full, rel=0.05)
    assert on_cpu < 0.85 * in_full if M == 100 else on_cpu == in_full


def skip_nothing(monkeypatch):
    """Compute products in full and invert all factors, as on a GPU."""
    monkeypatch.setattr(linalg, "LEAST_HALF", 10**6)
    for module in (ep, sep):
        monkeypatch.setattr(module, "project_sites", lambda n, W, keep=None: Whitened.from_sites(*n, keep).project(W))


def test_operations_of_vi_but_for_its_quadrature(monkeypatch):
    skip_nothing(monkeypatch)
    assert step_cost("vi", 5, 100, 3, 20).flop == pytest.approx(counted("vi", Size(5, 100, 20, 3)), rel=0.1)


def test_a_step_sends_what_was_said(monkeypatch):
    sent = []

    def record(self, *parts):
        sent.append(sum(part.numel() for part in parts))
        return parts

    size = Size(4, 7, 30, 5)
    work = cavity_step("sep", sparse_images(size), size, "float64", "cpu")
    monkeypatch.setattr(Workers, "sum", record)
    work.call()
    assert len(sent) == 2
    assert step_cost("sep", 4, 7, 5, 30, workers=2).message_bytes == 8 * sum(sent)


def test_a_single_process_sends_nothing():
    cost = step_cost("sep", 10, 500, 20, 8192)
    assert cost.message_bytes == cost.messages == 0


def test_ranks_divide_the_rows_and_not_the_factors():
    """With many workers what is left is the work that each does for itself; what it sends hardly grows."""
    costs = [step_cost("sep", 10, 500, 20, 65_536, workers) for workers in (1, 2, 64, 10**6)]
    assert costs[0].flop > 1.9 * costs[1].flop > 30 * costs[2].flop
    alone = step_cost("sep", 10, 500, 20, 0).flop
    assert costs[3].flop == pytest.approx(alone, rel=1e-2)
    assert costs[3].message_bytes == pytest.approx(2 * costs[1].message_bytes, rel=1e-5)
    assert [cost.messages for cost in costs[:3]] == [0, 4, 252]


def test_sharing_leaves_the_work_of_q():
    own, shared = step_cost("sep", 100, 100, 20, 500), step_cost("sep", 100, 100, 20, 500, 1, True, True)
    assert own.flop / 2 < shared.flop < own.flop
    assert shared.bytes_moved < own.bytes_moved
