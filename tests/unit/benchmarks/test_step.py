import numpy as np
import pytest
import torch

from benchmarks import rivals
from benchmarks.measure import operations
from benchmarks.problems import Size, Start, sparse_images
from benchmarks.step import cavity_step

SIZE = Size(3, 4, 6, 5)


@pytest.mark.parametrize("method", ["sep", "ep", "vi"])
def test_a_step_is_a_step_of_training(method):
    """The second call goes on from the first, to the next batch."""
    work = cavity_step(method, sparse_images(SIZE), SIZE, "float64", "cpu")
    assert work.steps == 1
    first, second = work.call(), work.call()
    assert torch.isfinite(second).all()
    assert not torch.equal(first, second)


def test_operations_are_counted_and_views_are_not():
    x = torch.ones(2, 3)
    assert operations(lambda: (x.mT + 1.0)[0, 0] * x) == 2


def test_the_problem_is_the_same_every_time():
    a, b = sparse_images(SIZE), sparse_images(SIZE)
    assert all(np.array_equal(x, z) for x, z in zip(a, b, strict=True))
    assert a.X.shape == (4 * SIZE.B, SIZE.D)
    assert a.Z.shape == (SIZE.C, SIZE.M, SIZE.D)
    assert ((a.X >= 0) & (a.X <= 1)).all()


def test_rivals_may_be_absent():
    assert set(rivals.available()) <= {"gpytorch", "gpflow"}
    assert "gpflow" not in rivals.available("float32")
    assert "gpflow" not in rivals.available(device="cuda")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["gpytorch", "gpflow"])
def test_a_rival_learns(name):
    """Two classes that lie apart: its steps raise the probability of the true label."""
    pytest.importorskip(name)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 2)) + 3.0 * y[:, None]
    start = Start(np.stack([X[:8], X[:8]]), 2.0, 5.0)
    rival = rivals.available()[name](X, y, start, "float64", "cpu", 0.05)
    before = rival.log_proba(X)
    for _ in range(60):
        rival.step(rival.batch(np.arange(60)))
    after = rival.log_proba(X)
    assert np.exp(after).sum(1) == pytest.approx(np.ones(60))
    assert after[np.arange(60), y].mean() > before[np.arange(60), y].mean() + 0.2
