"""The page of the benchmarks holds the tables of the records."""

from benchmarks import page
from tests.unit.benchmarks.test_history import point, step

MADE = [
    step("2026-01-01", "aaa", 100.0),
    step("2026-01-02", "bbb", 80.0),
    step("2026-01-02", "bbb", 120.0, what="gpytorch"),
    step("2026-01-02", "bbb", 9.0, processor="a GPU"),
    point("2026-01-02", 5.0, 0.5),
    point("2026-01-02", 9.0, 0.09),
]


def test_a_table_for_each_machine_with_the_latest_run():
    text = page.tables(MADE)
    assert "aaa" not in text
    assert "| cavity sep | float64 | 80.0 ms | 1.50 |" in text
    assert text.count("**Steps**") == 2
    assert "**Steps**, a GPU, threads: 2" in text
    assert "**Time to quality, mnist, M=200 B=200**" in text
    assert "| gpflow | 6.66 |" in text
    assert "0.0900" in text


def test_a_column_without_entries_is_left_out():
    assert "GPyTorch |" not in page.tables(MADE[:1])


def test_only_what_is_between_the_marks_changes(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    page.write(MADE, readme)
    text = readme.read_text()
    assert text == f"before\n<!-- results -->\n{page.tables(MADE)}<!-- /results -->\nafter\n"
