"""Every example runs to its end, what its text claims is so, and its page is the script's."""

import importlib.util
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from matplotlib import pyplot

pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("gallery_make", ROOT / "docs" / "gallery" / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

NAMES = sorted(path.stem for path in make.EXAMPLES.glob("*.py"))
LARGEST = 150_000  # bytes of a picture


def script(name):
    return make.cells_of((make.EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))


# --- What the texts claim, as far as chance allows ---


def claims_of_digits(found):
    wrong = {name: 1 - model.score(found["X_test"], found["y_test"]) for name, model in found["models"].items()}
    assert max(wrong.values()) - min(wrong.values()) < 0.02
    assert found["errors"]["random forest"] > 0.15
    assert max(found["errors"]["Gaussian process"], found["errors"]["logistic regression"]) < 0.05
    of_digits, of_nonsense = np.transpose(list(found["sure"].values()))  # Gaussian process, forest, regression
    assert (of_digits > [0.6, 0.0, 0.6]).all()
    assert of_digits[1] < 0.35
    assert (of_nonsense[:2] < 0.01).all()
    assert of_nonsense[2] > 0.5
    assert np.quantile(found["lost"].epistemic, 0.02) > 0.9 * np.log(10)
    assert found["lost"].epistemic.min() > 0.7 * np.log(10)
    assert np.median(found["unsure"].epistemic) < 0.1


def claims_of_iris_plane(found):
    gp, linear, X = found["gp"], found["linear"], found["X"]
    assert (gp.predict(X) == linear.predict(X)).mean() > 0.95
    (typical, border, unseen), other = gp.predict_proba(found["flowers"]).max(1), linear.predict_proba(found["flowers"])
    assert (typical > 0.95, border < 0.8, unseen < 0.5, other[2].max() > 0.99) == (True,) * 4
    assert found["unsure"].total[2] > 0.95 * np.log(3)


def claims_of_triage(found):
    paid, p, action = found["paid"], found["p"], found["action"]
    ours = paid["Gaussian process, least expected cost"]
    assert 2.0 * ours < paid["Gaussian process, most probable label"]
    assert ours < 0.8 * paid["a biopsy for everyone"]
    assert paid["naive Bayes, the same"] > 2.0 * ours
    assert ((p > 0.01) & (p < 0.9) == (action == "biopsy")).all()
    assert found["total"]["value of the label"][50] < found["total"]["uncertainty of the label"][50]
    assert (found["value"] >= found["of_rows"]).all()
    assert abs(found["why"].contributions.sum()) > 1.0


def claims_of_drift(found):
    novel, wrong, covered = (np.array(found[name]) for name in ("novel", "wrong", "covered"))
    assert novel[:5].mean() < 0.1
    assert novel[5:].min() > 0.5
    assert wrong[5:].mean() > 5 * wrong[:5].mean()
    assert covered[:5].mean() > 0.93 > 0.7 > covered[5:].mean()
    assert len(found["before"].moved) < 3 < 30 < len(found["after"].moved)
    clf, again, later = found["clf"], found["again"], found["later"]
    X, y = found["stream"][later], found["labels"][later]
    for model in (clf, again):
        assert model.predict_set(X, 0.95)[np.arange(300), y].mean() > 0.92
    assert (again.predict(X) != y).mean() < 0.1 < (clf.predict(X) != y).mean()


def claims_of_label_next(found):
    nll = {n: value for n, value, _ in found["random"]}
    n, own, _ = found["curve"][-1]
    assert n == 100
    assert own < 0.7 * nll[100]
    assert own < 1.1 * nll[200]
    assert len(set(found["y"][found["batches"][-1]])) >= 6


def claims_of_wine_relevance(found):
    assert set(found["ranked"][:2]) == {"proline", "flavanoids"}
    assert "color_intensity" in found["ranked"][:4]
    assert found["error"]["all 13"] <= found["error"]["first four"] < 0.08 < 0.15 < found["error"]["last four"]
    assert found["is_noise"][:10].sum() == 0
    assert found["is_noise"][-10:].sum() >= 7


def claims_of_stream(found):
    assert found["error"][-1] < 0.5 * found["error"][0]
    assert found["seen"][-1] == 1500
    assert found["written"] == 297
    assert not found["folder"].exists()


def claims_of_abstain(found):
    expected, made = ({name: value.sum() for name, value in found[key].items()} for key in ("risk", "wrong"))
    assert expected["naive Bayes"] < made["naive Bayes"] / 4
    for name in ("Gaussian process", "logistic regression"):
        assert made[name] < expected[name] < made[name] + 15
        assert found["total"][name] < len(found["y"]) / 2 < found["total"]["naive Bayes"]


def claims_of_titanic(found):
    assert len(found["people"]) == 2201
    assert (found["people"]["fate"] == "survived").sum() == 711
    table, y = found["table"], found["y_test"]
    off = {name: (np.abs(table[name] - table["k"] / table["n"]) * table["n"]).sum() / table["n"].sum()
           for name in ("Gaussian process", "logistic regression")}  # fmt: skip
    assert off["Gaussian process"] < off["logistic regression"]
    frequencies, whole, every, complete = found["scores"].values()
    assert complete < every < whole < frequencies
    assert 0.2 < found["is_whole"].mean() < 0.45
    first, third, missing, unseen = found["survive"]
    assert third < missing == unseen < first
    assert len(y) > 1000


def test_the_index_has_all_examples():
    assert len(NAMES) == 9
    index = (make.GALLERY / "index.md").read_text(encoding="utf-8")
    titles = {name: script(name)[0].text.splitlines()[0].removeprefix("# ") for name in NAMES}
    assert all(f"## [{title}]({name}.md)" in index for name, title in titles.items())
    assert all((make.GALLERY / picture).is_file() for _, picture in make.PICTURE.findall(index))


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs_and_its_text_holds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it: many small fits, none checked
    cells, found = script(name), {"__name__": "__main__"}
    outputs = list(make.run([cell.text for cell in cells if cell.is_code], name, found))
    pictures = [picture for output in outputs for picture in output.pictures]
    committed = make.PICTURE.findall((make.GALLERY / f"{name}.md").read_text(encoding="utf-8"))
    assert len(make.PICTURE.findall(make.page_of(name, cells, outputs))) == len(pictures) == len(committed)
    assert any(output.text for output in outputs)
    assert all(len(picture) < LARGEST for picture in pictures)
    assert list(tmp_path.iterdir()) == []
    globals()[f"claims_of_{name}"](found)


def test_figures_that_were_open_before_are_not_taken_for_its_own():
    pyplot.figure()
    (output,) = make.run(["1 + 1"], "nothing", {})
    assert output.pictures == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_code_and_text_of_the_script(name):
    cells, page = script(name), (make.GALLERY / f"{name}.md").read_text(encoding="utf-8")
    nothing = [make.Output() for cell in cells if cell.is_code]
    assert make.without_outputs(page) == make.page_of(name, cells, nothing)


@pytest.mark.parametrize("page", [*(f"gallery/{name}.md" for name in NAMES), "plots.md"])
def test_pictures_are_there_small_and_described(page):
    path = ROOT / "docs" / page
    found = make.PICTURE.findall(path.read_text(encoding="utf-8"))
    assert found
    for alt, file in found:
        assert len(alt) > 20
        assert 1000 < (path.parent / file).stat().st_size < LARGEST


def test_no_picture_is_left_over():
    pages = "".join((make.GALLERY / f"{name}.md").read_text(encoding="utf-8") for name in NAMES)
    assert {f"img/{path.name}" for path in (make.GALLERY / "img").iterdir()} == {
        file for _, file in make.PICTURE.findall(pages)
    }


# --- The maker ---

SMALL = """# %% [markdown]
# # Title
#
# Some text.

# %%
x = 2
print("x is", x)

# %%
import matplotlib.pyplot as plt

plt.plot([x, 3])
# alt: A line.
plt.show()
"""


def test_cells_run_in_order_and_what_they_print_and_draw_follows_them():
    from matplotlib import pyplot

    show, cells = pyplot.show, make.cells_of(SMALL)
    outputs = list(make.run([cell.text for cell in cells if cell.is_code], "small", {}))
    assert [(output.text, len(output.pictures)) for output in outputs] == [("x is 2\n", 0), ("", 1)]
    assert make.page_of("small", cells, outputs) == (
        "# Title\n\nSome text.\n\n"
        '```python\nx = 2\nprint("x is", x)\n```\n\n```text\nx is 2\n```\n\n'
        "```python\nimport matplotlib.pyplot as plt\n\nplt.plot([x, 3])\nplt.show()\n```\n\n"
        "![A line.](img/small_1.png)\n\nRun it yourself: `python examples/small.py`.\n"
    )
    assert (pyplot.get_fignums(), pyplot.show) == ([], show)


def test_a_page_that_was_edited_is_found_out():
    cells = make.cells_of(SMALL)
    page = make.page_of("small", cells, [make.Output("x is 2\n"), make.Output()])
    assert make.without_outputs(page) == make.page_of("small", cells, [make.Output()] * 2)
    for before, after in (("x = 2", "x = 3"), ("Some", "Other"), ("A line", "A curve")):
        assert make.without_outputs(page.replace(before, after)) != make.page_of("small", cells, [make.Output()] * 2)


def test_a_figure_without_words_is_refused():
    cells = make.cells_of(SMALL.replace("# alt: A line.\n", ""))
    with pytest.raises(ValueError, match="1 figures, but 0 lines `# alt: …` in the cell at line 11"):
        make.page_of("small", cells, [make.Output(), make.Output(pictures=(b"",))])


def test_a_script_starts_with_a_cell():
    with pytest.raises(ValueError, match="must start with a cell"):
        make.cells_of("x = 1\n# %%\n")


def test_an_error_ends_the_run_and_leaves_pyplot_as_it_was():
    from matplotlib import pyplot

    show = pyplot.show
    with pytest.raises(ZeroDivisionError):
        list(make.run(["import matplotlib.pyplot as plt\nplt.figure()", "1 / 0"], "broken", {}))
    assert (pyplot.get_fignums(), pyplot.show) == ([], show)


def test_pictures_of_a_page_go_where_the_page_has_them(tmp_path):
    blocks = ["x = 3", "import matplotlib.pyplot as plt\nplt.plot([x])"]
    text = "\n\n".join(f"```python\n{block}\n```" for block in blocks) + "\n\n![A dot](img/dot.png)\n"
    (tmp_path / "img").mkdir()
    (tmp_path / "page.md").write_text(text)
    make.make_pictures(tmp_path / "page.md")
    assert (tmp_path / "img" / "dot.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "page.md").write_text(text.replace("![A dot](img/dot.png)", ""))
    with pytest.raises(ValueError, match=r"shorter|longer"):
        make.make_pictures(tmp_path / "page.md")
