import pytest

from benchmarks import scaling
from benchmarks.problems import Options, Size
from benchmarks.scaling import exponent


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_law(power):
    sizes = [50, 100, 200, 400]
    assert exponent(sizes, [0.3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-3)


def test_one_size_at_a_time_is_varied(monkeypatch):
    """Times made up from the size: the exponents of rows, classes and inducing points come back."""
    monkeypatch.setattr(scaling, "epoch_seconds", lambda method, size, n, *_: 0.1 * n)
    monkeypatch.setattr(scaling, "step_seconds", lambda method, size, *_: 1e-3 * size.C * size.M**2 * size.B)
    records = list(scaling.measure(Options(Size(10, 200, 200, 784))))
    assert [(r["what"], r["by"]) for r in records] == [
        ("cavity sep", "N"), ("cavity ep", "N"), ("cavity sep", "C"), ("cavity sep", "M"),
    ]  # fmt: skip
    assert [r["sizes"] for r in records[1:]] == [[1000, 2000, 4000], [5, 10, 20], [50, 100, 200, 400]]
    assert [r["exponent"] for r in records] == [1.0, 1.0, 1.0, 2.0]


def test_an_epoch_is_timed():
    assert 0 < scaling.epoch_seconds("sep", Size(2, 3, 10, 4), 5, "float64", "cpu") < 5
