"""The commands as people type them: from a file to a model, predictions, scores and a report."""

import csv
import errno
import gzip
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_iris

import cavity
import cavity.files.tensor_file
from cavity import GPClassifier
from cavity.cli import main
from cavity.metrics import scores

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IRIS = load_iris()
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
SPECIES = IRIS.target_names[IRIS.target]
QUICK = ["--method", "sep", "--batch-size", 40, "--epochs", 8, "--inducing", 8]


def run(*arguments, code=0):
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    return found


def fails(*arguments, code=1):
    """The one line of the error."""
    found = run(*arguments, code=code)
    assert found.stdout == ""
    lines = [line for line in found.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert "Traceback" not in found.output
    return lines[0]


def write(path, columns):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def iris(places=slice(None), **more):
    """Some of the rows by column; what is given besides comes first."""
    return more | dict(zip(NAMES, IRIS.data[places].T.tolist(), strict=True)) | {"species": SPECIES[places].tolist()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows with an id, and a model of them."""
    path = tmp_path_factory.mktemp("iris")
    write(path / "iris.csv", iris(id=[f"plant {i}" for i in range(150)]))
    write(path / "new.csv", iris(slice(0, 150, 10)))
    run("fit", path / "iris.csv", "--target", "species", "-o", path / "iris.cavity", *QUICK)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return folder / "iris.cavity"


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- fit ---


def test_a_fit_says_what_it_used_and_how_good_it_is(folder, tmp_path):
    found = run("fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "m.cavity", *QUICK)
    assert "left out: id (text with 150 different values in 150 rows)" in found.stderr
    assert "150 rows, 4 features, 3 labels in 'species'\n  4 numbers: sepal length, sepal width, " in found.stdout
    assert "120 rows to learn from, 30 held out" in found.stdout
    assert "On the 30 rows held out" in found.stdout
    assert found.stderr.startswith(f"Reading {folder / 'iris.csv'}\n")
    assert "calibration error" in found.stdout
    assert "\r" not in found.output
    assert "epoch 8 of 8" in found.stderr


def test_the_scores_kept_with_a_model_are_those_of_the_rows_held_out(folder, model):
    kept = cavity.load(model).metrics_
    assert kept["target"] == "species"
    assert kept["holdout"]["share"] == 0.2
    assert kept["holdout"]["rows"] == 30
    again = json.loads(run("evaluate", model, folder / "iris.csv", "--json").stdout)
    assert again["which"] == "held out"
    assert again["rows"] == 30
    for name, value in again["scores"].items():
        assert value == pytest.approx(kept[name], rel=1e-9)


def test_json_is_all_that_stdout_has(folder, tmp_path):
    out = tmp_path / "m.cavity"
    found = run("fit", folder / "iris.csv", "--target", "species", "-o", out, "--json", *QUICK)
    told = json.loads(found.stdout)
    assert told["model"] == str(out)
    assert (told["rows"], told["held_out"], told["dropped_rows"]) == (120, 30, 0)
    assert told["features"] == NAMES
    assert told["left_out"] == {"id": "text with 150 different values in 150 rows"}
    assert told["columns"] == [{"name": name, "kind": "number", "gaps": 0} for name in NAMES]
    assert told["classes"] == sorted(set(SPECIES))
    assert told["epochs"] == 8
    assert told["stopped"] is False
    assert 0 <= told["scores"]["error"] < 0.2
    assert any("left out" in note for note in told["notes"])


def test_quiet_prints_nothing(folder, tmp_path):
    out = tmp_path / "m.cavity"
    assert run("fit", folder / "iris.csv", "--target", "species", "-o", out, "--quiet", *QUICK).output == ""
    assert out.exists()


def test_the_options_reach_the_classifier(folder, tmp_path):
    out = tmp_path / "m.cavity"
    given = {"method": "sep", "kernel": "matern52", "scaling": "quantile", "class-weight": "balanced", "seed": 7,
             "inducing": 0.1, "epochs": 3, "batch-size": 40, "seconds": 50, "device": "cpu",
             "checkpoint": tmp_path / "kept"}  # fmt: skip
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    run(
        "fit", folder / "iris.csv", "--target", "species", "-o", out, "--features", "petal length,petal width", *options
    )
    found = cavity.load(out).get_params()
    assert (found["method"], found["scaling"], found["class_weight"]) == ("sep", "quantile", "balanced")
    assert (found["random_state"], found["n_inducing"], found["max_epochs"]) == (7, 0.1, 3)
    assert (found["batch_size"], found["max_seconds"]) == (40, 50.0)
    assert found["kernel"] == "matern52"
    assert type(cavity.load(out).kernel_).__name__ == "Matern52"
    assert list(cavity.load(out).feature_names_in_) == ["petal length", "petal width"]
    assert list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize("scaling", ["default", "standard", "common", "quantile", "auto", "none"])
def test_every_scaling_has_a_name(folder, tmp_path, scaling):
    out = tmp_path / "m.cavity"
    run("fit", folder / "iris.csv", "--target", "species", "-o", out, "--scaling", scaling, *QUICK)
    assert cavity.load(out).scaling == (None if scaling == "none" else scaling)


def test_no_holdout_learns_from_all_rows_and_evaluate_warns(folder, tmp_path):
    out = tmp_path / "m.cavity"
    found = run("fit", folder / "iris.csv", "--target", "species", "-o", out, "--holdout", 0, *QUICK)
    assert "held out" not in found.stdout
    assert sum(cavity.load(out).training_["class_counts"]) == 150
    told = run("evaluate", out, folder / "iris.csv")
    assert "was trained on these rows" in told.stderr
    assert "on 150 rows" in told.stdout
    assert "No verdict on calibration, because the model was trained on these rows." in told.stdout
    assert json.loads(run("evaluate", out, folder / "iris.csv", "--json").stdout)["calibration"] is None
    run("report", out, folder / "iris.csv", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "no verdict on calibration, because the model was trained on these rows" in page
    assert "fit with <code>--holdout</code>" in page


def test_two_fits_with_one_seed_are_the_same_model_and_another_seed_holds_out_others(folder, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run("fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / name, "--seed", seed, *QUICK)
    a, b, c = (cavity.load(tmp_path / name) for name in "abc")
    assert np.array_equal(a.predict_proba(pa.table(inputs())), b.predict_proba(pa.table(inputs())))
    assert a.training_["digest"] != c.training_["digest"]


def inputs(places=slice(None)):
    return {name: IRIS.data[places, j] for j, name in enumerate(NAMES)}


@pytest.mark.parametrize("labels", [[0, 1], [True, False], ["no", "yes, well"], [1.0, 2.0], [-1, 1]])
def test_labels_may_be_of_any_kind(labels, tmp_path):
    places = slice(50, 150)
    y = [labels[k - 1] for k in IRIS.target[places]]
    data = write(tmp_path / "two.csv", {"w": IRIS.data[places, 3].tolist(), "y": y})
    run("fit", data, "--target", "y", "-o", tmp_path / "m.cavity", *QUICK)
    run("predict", tmp_path / "m.cavity", data, "-o", tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    said = table["prediction"].to_pylist()
    assert np.mean([a == b for a, b in zip(said, y, strict=True)]) > 0.9
    assert table.column_names[1:] == [f"p_{label}" for label in cavity.load(tmp_path / "m.cavity").classes_.tolist()]
    assert json.loads(run("evaluate", tmp_path / "m.cavity", data, "--json").stdout)["scores"]["error"] < 0.2


def test_parquet_in_a_folder_by_a_pattern_and_as_several_files_is_the_same_as_one_csv(folder, tmp_path):
    table = pa.table(iris())
    (tmp_path / "parts").mkdir()
    for k in range(3):
        pq.write_table(table.slice(50 * k, 50), tmp_path / "parts" / f"part-{k}.parquet")
    ways = [[tmp_path / "parts"], [tmp_path / "parts" / "part-*.parquet"], sorted((tmp_path / "parts").iterdir())]
    for given in ways:
        run("fit", *given, "--target", "species", "-o", tmp_path / "m.cavity", *QUICK)
        assert cavity.load(tmp_path / "m.cavity").training_ == cavity.load(folder / "iris.cavity").training_


def test_a_row_counter_is_pointed_out(tmp_path):
    data = write(tmp_path / "rows.csv", iris(number=list(range(150))))
    found = run("fit", data, "--target", "species", "-o", tmp_path / "m.cavity", *QUICK)
    assert "'number' only counts the rows; ignore it with --drop" in found.stderr
    again = run("fit", data, "--target", "species", "-o", tmp_path / "m.cavity", "--drop", "number", *QUICK)
    assert "only counts" not in again.stderr
    assert list(cavity.load(tmp_path / "m.cavity").feature_names_in_) == NAMES


def test_an_identifier_is_pointed_out_in_any_order_and_can_be_dropped_without_a_name(tmp_path):
    order = np.random.default_rng(0).permutation(150)
    data = write(tmp_path / "rows.csv", {"": order.tolist()} | iris(order))  # as DataFrame.to_csv writes it
    command = ["fit", data, "--target", "species", "-o", tmp_path / "m.cavity", *QUICK]
    found = run(*command)
    assert (
        "'' only counts the rows; ignore it with --drop '', because such a column can leak the labels" in found.stderr
    )
    assert "counts the rows" not in run(*command, "--drop", "").stderr
    assert list(cavity.load(tmp_path / "m.cavity").feature_names_in_) == NAMES
    data = write(tmp_path / "ids.csv", {"a, b": (order * 7 + 1000).tolist()} | iris(order))
    told = json.loads(run("fit", data, *command[2:], "--json").stdout)
    assert any("""--drop '"a, b"'""" in note for note in told["notes"])
    assert json.loads(run("fit", data, *command[2:], "--json", "--drop", '"a, b"').stdout)["features"] == NAMES


def test_an_identifier_in_a_large_file_is_pointed_out(tmp_path, little_memory):
    pq.write_table(pa.table(iris(number=list(range(150)))), tmp_path / "i.parquet")
    found = run("fit", tmp_path / "i.parquet", "--target", "species", "-o", tmp_path / "m.cavity", *QUICK)
    assert "'number' only counts the rows" in found.stderr


@pytest.mark.parametrize(("delimiter", "decimal"), [(";", ","), (",", ","), ("\t", ","), (";", ".")])
def test_decimal_commas_are_read(delimiter, decimal, folder, tmp_path):
    data = tmp_path / "iris.csv"
    with open(data, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(iris())
        for row in zip(*iris().values(), strict=True):
            writer.writerow([str(cell).replace(".", decimal) for cell in row])
    found = run("fit", data, "--target", "species", "-o", tmp_path / "m.cavity", *QUICK)
    assert ("numbers are read with decimal commas" in found.stderr) == (decimal == ",")
    assert cavity.load(tmp_path / "m.cavity").training_ == cavity.load(folder / "iris.cavity").training_
    told = json.loads(run("evaluate", tmp_path / "m.cavity", data, "--json").stdout)
    assert (told["which"], told["rows"]) == ("held out", 30)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_a_dash_is_standard_input(form, folder, model, tmp_path):
    packed = gzip.compress((folder / "iris.csv").read_bytes())
    pq.write_table(pa.table(iris()), tmp_path / "iris.parquet")
    given = {"csv": (folder / "iris.csv").read_bytes(), "csv.gz": packed}.get(form)
    given = given or (tmp_path / "iris.parquet").read_bytes()
    commands = [
        ["fit", "-", "--target", "species", "-o", tmp_path / "m.cavity", *QUICK],
        ["evaluate", model, "-"],
        ["predict", model, "-", "-o", "-"],
    ]
    for command in commands:
        found = CliRunner().invoke(main, list(map(str, command)), input=given)
        assert found.exit_code == 0, found.output
    assert len(found.stdout.splitlines()) == 151
    assert cavity.load(tmp_path / "m.cavity").training_ == cavity.load(model).training_
    assert "must be the only file" in fails("evaluate", model, "-", folder / "iris.csv")


def test_constant_columns_are_mentioned_once(tmp_path):
    data = write(tmp_path / "rows.csv", iris(unit=[3] * 150))
    command = ["fit", data, "--target", "species", "-o", tmp_path / "m.cavity", *QUICK]
    assert run(*command).stderr.count("constant in all rows and without effect: 'unit'") == 1
    assert json.loads(run(*command, "--json").stdout)["notes"] == ["constant in all rows and without effect: 'unit'"]
    assert run(*command, "--quiet").output == ""


# --- what cannot be used ---


def test_a_missing_label_is_named_and_rows_with_gaps_can_be_left_out(tmp_path):
    columns = iris()
    columns["petal width"][16] = ""
    columns["species"][140] = ""
    data, out = write(tmp_path / "gaps.csv", columns), tmp_path / "m.cavity"
    error = fails("fit", data, "--target", "species", "-o", out)
    assert "column 'species' has no value in row 141" in error
    assert "--drop-missing" in error
    told = json.loads(run("fit", data, "--target", "species", "-o", out, "--drop-missing", "--json", *QUICK).stdout)
    assert (told["rows"] + told["held_out"], told["dropped_rows"]) == (148, 2)
    run("predict", out, data, "-o", tmp_path / "p.csv")
    assert len(read_csv(tmp_path / "p.csv")) == 150
    run("predict", out, data, "-o", tmp_path / "p.csv", "--drop-missing")
    assert len(read_csv(tmp_path / "p.csv")) == 149  # a label is not needed


WRONG = {
    "a target that is not there": (["--target", "specie"], "has no column 'specie'; did you mean 'species'?"),
    "a feature that is not there": (["--target", "species", "--features", "color"], "no column 'color'; it has 'id'"),
    "an identifier": (["--target", "species", "--features", "id"], "at least one feature is required"),
    "a kind of no feature": (["--target", "species", "--categorical", "species"], "'species' must be a feature"),
    "a kind of no column": (["--target", "species", "--numeric", "petal widht"], "did you mean 'petal width'?"),
    "numbers of text": (["--target", "species", "--numeric", "id"], "got 'plant 0' in row 1 and no number"),
    "both kinds": (["--target", "species", "--numeric", "id", "--categorical", "id"], "not in both"),
    "the target as a feature": (["--target", "species", "--features", "species"], "'species' must be used once"),
    "nothing left": (["--target", "species", "--drop", ",".join(NAMES)], "at least one feature is required"),
    "amounts": (["--target", "petal width"], "got quantities such as 0.2"),
    "a label for every row": (["--target", "id"], "150 different labels in 150 rows"),
    "a device": (["--target", "species", "--device", "abacus"], "or another torch device, got 'abacus'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_named_in_one_line(case, folder, tmp_path):
    options, message = WRONG[case]
    assert message in run_error(folder / "iris.csv", options, tmp_path / "m.cavity")
    assert not (tmp_path / "m.cavity").exists()


def run_error(data, options, out):
    found = run("fit", data, *options, "-o", out, code=1)
    assert "Traceback" not in found.output
    return found.stderr


def test_files_that_cannot_be_read_are_named(folder, model, tmp_path):
    out = ["--target", "species", "-o", tmp_path / "m.cavity"]
    assert "iris.csv?" in fails("fit", folder / "iris.cvs", *out)
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    assert "must end in .csv" in fails("fit", tmp_path / "sheet.xlsx", *out)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1....")
    assert "torn.parquet is not a Parquet file" in fails("fit", tmp_path / "torn.parquet", *out)
    (tmp_path / "empty.csv").write_text("")
    assert "empty.csv" in fails("fit", tmp_path / "empty.csv", *out)
    for text in ("a,species\n", "a,species"):
        (tmp_path / "head.csv").write_text(text)
        assert "head.csv has no rows; a header line and at least one row" in fails("fit", tmp_path / "head.csv", *out)
    (tmp_path / "ragged.csv").write_text('a,species\n1,"x"\n\n2,y,z\n')
    assert "ragged.csv, line 4: Expected 2 columns, as in the header, got 3: 2,y,z; quote values that contain ','" in (
        fails("fit", tmp_path / "ragged.csv", *out)
    )
    (tmp_path / "ragged.csv").write_text("a,species\n1,x\n2\n")
    assert "ragged.csv, line 3: Expected 2 columns, as in the header, got 1: 2; add" in fails(
        "fit", tmp_path / "ragged.csv", *out
    )
    (tmp_path / "twice.csv").write_text("a,a,b,species\n" + "1,2,3,x\n4,5,6,y\n" * 9)
    assert "twice.csv has 2 columns 'a'; column names must be unique" in fails("fit", tmp_path / "twice.csv", *out)
    run("fit", tmp_path / "twice.csv", *out, "--drop", "a", *QUICK)
    assert "none.cavity does not exist" in fails("evaluate", tmp_path / "none.cavity", folder / "iris.csv")
    (tmp_path / "torn.cavity").write_bytes(model.read_bytes()[:-100])
    assert "torn.cavity" in fails("predict", tmp_path / "torn.cavity", folder / "iris.csv", "-o", tmp_path / "p.csv")


def test_a_place_that_cannot_be_written_is_refused_before_training(folder, tmp_path):
    assert "does not exist; create it first" in fails(
        "fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "no" / "m"
    )
    assert "must be a file, got a folder" in fails("fit", folder / "iris.csv", "--target", "species", "-o", tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "x.csv"],
        ["fit", "x.csv", "--target", "y", "-o", "m", "--method", "magic"],
        ["fit", "x.csv", "--target", "y", "-o", "m", "--inducing", "many"],
        ["fit", "x.csv", "--target", "y", "-o", "m", "--batch-size", "0.5"],
        ["fit", "x.csv", "--target", "y", "-o", "m", "--resume"],
        ["fit", "x.csv", "--target", "y", "-o", "m", "--holdout", "1"],
        ["predict", "m", "x.csv", "-o", "-", "--json"],
        ["predict", "m", "x.csv", "-o", "folder/", "--keep", "id"],
        ["conjure"],
    ],
)
def test_wrong_usage_ends_with_two(arguments):
    assert "Usage" in run(*arguments, code=2).stderr


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "report", "drift"])
def test_help_has_an_example(command):
    assert f"  cavity {command} " in run(command, "--help").stdout


# --- predict ---


def test_predictions_are_those_of_the_model_in_any_order_of_columns(model, tmp_path):
    some, ids = slice(0, 150, 6), [f"0{i}" for i in range(25)]
    data = write(tmp_path / "turned.csv", dict(reversed(iris(some, id=ids).items())))
    run("predict", model, data, "-o", tmp_path / "p.csv", "--keep", "id", "--uncertainty")
    found, expected, X = read_csv(tmp_path / "p.csv"), cavity.load(model), pa.table(inputs(some))
    assert [row["id"] for row in found] == ids
    assert [row["prediction"] for row in found] == expected.predict(X).tolist()
    p = np.array([[float(row[f"p_{label}"]) for label in expected.classes_] for row in found])
    np.testing.assert_allclose(p, expected.predict_proba(X), rtol=0, atol=1e-12)
    unsure = np.array([[float(row[name]) for row in found] for name in ("total", "aleatoric", "epistemic")])
    np.testing.assert_allclose(unsure, expected.uncertainty(X), atol=1e-10)


def test_prediction_sets_are_those_of_the_model(model, tmp_path):
    some = slice(0, 150, 6)
    data = write(tmp_path / "rows.csv", iris(some))
    run("predict", model, data, "-o", tmp_path / "p.parquet", "--coverage", "0.99")
    expected = cavity.load(model)
    found = pq.read_table(tmp_path / "p.parquet").select([f"set_{label}" for label in expected.classes_])
    sets = expected.predict_set(pa.table(inputs(some)), 0.99)
    np.testing.assert_array_equal(np.column_stack(found.columns), sets)
    run("predict", model, data, "-o", f"{tmp_path}/parts/", "--coverage", "0.99")
    assert pq.read_table(tmp_path / "parts").select(found.column_names).equals(found)
    run("predict", model, data, "-o", "-", "--coverage", "1", code=2)


def test_parquet_a_folder_and_stdout_say_the_same(folder, model, tmp_path):
    run("predict", model, folder / "new.csv", "-o", tmp_path / "p.parquet")
    run("predict", model, folder / "new.csv", "-o", f"{tmp_path}/parts/")
    printed = run("predict", model, folder / "new.csv", "-o", "-").stdout
    one, parts = pq.read_table(tmp_path / "p.parquet"), pq.read_table(tmp_path / "parts")
    assert parts.drop_columns(["row"]).equals(one)
    rows = list(csv.DictReader(printed.splitlines()))
    assert list(rows[0]) == one.column_names
    assert [float(row["p_setosa"]) for row in rows] == one["p_setosa"].to_pylist()


def test_rows_in_many_blocks_come_out_in_their_order(model, tmp_path, monkeypatch):
    monkeypatch.setattr("cavity.data.csv.STREAM_BYTES", 700)
    data = write(tmp_path / "rows.csv", iris(number=list(range(150))))
    run("predict", model, data, "-o", tmp_path / "p.csv", "--keep", "number")
    found = read_csv(tmp_path / "p.csv")
    assert [row["number"] for row in found] == [str(i) for i in range(150)]
    assert [row["prediction"] for row in found] == cavity.load(model).predict(pa.table(inputs())).tolist()


def test_a_feature_that_lacks_is_named(model, tmp_path):
    columns = iris()
    del columns["petal width"]
    data = write(tmp_path / "less.csv", columns)
    assert "no column 'petal width'" in fails("predict", model, data, "-o", tmp_path / "p.csv")
    del columns["petal length"]
    data = write(tmp_path / "less.csv", columns)
    assert "2 of the 4 feature columns" in fails("predict", model, data, "-o", tmp_path / "p.csv")


def test_a_model_without_names_takes_the_columns_of_numbers(tmp_path):
    GPClassifier(max_epochs=2, n_inducing=5, calibrate=False).fit(IRIS.data, IRIS.target).save(tmp_path / "m.cavity")
    data = write(tmp_path / "iris.csv", iris(note=["x"] * 150))
    run("predict", tmp_path / "m.cavity", data, "-o", tmp_path / "p.csv")
    assert len(read_csv(tmp_path / "p.csv")) == 150
    assert "name it with --target" in fails("evaluate", tmp_path / "m.cavity", data)
    write(tmp_path / "more.csv", iris(extra=[1.5] * 150))
    assert "must have 4 numeric columns" in fails(
        "predict", tmp_path / "m.cavity", tmp_path / "more.csv", "-o", tmp_path / "q.csv"
    )


def test_data_is_not_overwritten_and_endings_are_checked(folder, model, tmp_path):
    before = (folder / "new.csv").read_bytes()
    assert "is one of the data files" in fails("predict", model, folder / "new.csv", "-o", folder / "new.csv")
    assert (folder / "new.csv").read_bytes() == before
    assert "must end in .csv or .parquet" in fails("predict", model, folder / "new.csv", "-o", tmp_path / "p.txt")
    assert list(tmp_path.iterdir()) == []
    assert "column names must be unique" in fails(
        "predict", model, folder / "new.csv", "-o", tmp_path / "p.csv", "--keep", "species,species"
    )


# --- evaluate ---


def test_scores_are_those_of_the_library_and_every_label_has_a_line(folder, model):
    told = json.loads(run("evaluate", model, folder / "new.csv", "--json").stdout)
    found = cavity.load(model)
    places = slice(0, 150, 10)
    expected = scores(SPECIES[places], found.predict_log_proba(pa.table(inputs(places))), found.classes_)
    assert told["which"] == "new"
    for name, value in expected._asdict().items():
        assert told["scores"][name] == pytest.approx(value, abs=1e-9)
    assert [one["label"] for one in told["classes"]] == found.classes_.tolist()
    assert [one["rows"] for one in told["classes"]] == [5, 5, 5]
    assert set(told["classes"][0]) == {"label", "rows", "recall", "predicted", "precision"}
    shown = run("evaluate", model, folder / "new.csv").stdout
    assert all(label in shown for label in found.classes_)


def test_the_same_rows_are_known_again_sorted_and_as_parquet(model, tmp_path):
    order = np.random.default_rng(0).permutation(150)
    pq.write_table(pa.table(iris(order)), tmp_path / "shuffled.parquet")
    told = json.loads(run("evaluate", model, tmp_path / "shuffled.parquet", "--json").stdout)
    assert (told["which"], told["rows"]) == ("held out", 30)
    kept = cavity.load(model).metrics_
    assert told["scores"]["nll"] == pytest.approx(kept["nll"], rel=1e-9)


def test_a_label_that_the_model_does_not_know_is_named(model, tmp_path):
    columns = iris(slice(0, 9))
    columns["species"][4] = "tulip"
    data = write(tmp_path / "odd.csv", columns)
    assert "row 5: label 'tulip' is not one of the classes" in fails("evaluate", model, data)


# --- report ---


def test_a_report_of_the_training_file_is_about_the_rows_held_out(folder, model, tmp_path):
    found = run("report", model, folder / "iris.csv", "-o", tmp_path / "report.html", "--title", "Three flowers")
    assert "only the 30 rows held out from training are used" in found.stderr
    assert "a report on 30 rows" in found.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Three flowers" in page


def test_a_report_of_other_rows_takes_the_training_file_for_its_baselines(folder, model, tmp_path):
    told = run("report", model, folder / "new.csv", "--train", folder / "iris.csv", "-o", tmp_path / "r.html", "--json")
    assert json.loads(told.stdout)["rows"] == 15
    assert json.loads(told.stdout)["which"] == "new"
    assert (tmp_path / "r.html").stat().st_size > 10_000


# --- tables with text, gaps, dates and ids ---


def visits(places=range(240)):
    """Some rows of a made-up table whose label follows from a category and a number."""
    rng = np.random.default_rng(1)
    age, colors = rng.integers(18, 90, 240), rng.choice(["red", "green", "blue"], 240)
    days = np.datetime64("2019-01-01") + rng.integers(0, 900, 240)
    columns = {
        "id": [f"visit {i:03d}" for i in range(240)],
        "age": [n if i % 40 else "n/a?" for i, n in enumerate(age.tolist())],
        "color": [one if i % 17 else "" for i, one in enumerate(colors.tolist())],
        "day": [str(day) if i % 50 else "" for i, day in enumerate(days)],
        "is_new": rng.choice(["true", "false"], 240).tolist(),
        "ward": rng.integers(1, 5, 240).tolist(),
        "score": [x if i % 9 else "" for i, x in enumerate(rng.normal(size=240).round(3).tolist())],
        "group": [g if i else "x" for i, g in enumerate(rng.integers(1, 4, 240).tolist())],
        "outcome": np.where((colors == "red") ^ (age > 50), "yes", "no").tolist(),
    }
    return {name: [column[i] for i in places] for name, column in columns.items()}


AS_READ = ["--target", "outcome", "--numeric", "age", "--categorical", "ward", *QUICK]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A folder with the table and a model of it."""
    path = tmp_path_factory.mktemp("visits")
    write(path / "visits.csv", visits())
    run("fit", path / "visits.csv", "-o", path / "visits.cavity", *AS_READ)
    return path


def test_a_fit_says_how_each_column_was_read(mixed, tmp_path):
    found = run("fit", mixed / "visits.csv", "-o", tmp_path / "m.cavity", *AS_READ)
    assert "left out: id (text with 240 different values in 240 rows); --categorical" in found.stderr
    assert "text that is no number counts as missing: 'age' (6 cells, such as 'n/a?' in row 1)" in found.stderr
    assert (
        "categories, though most cells are numbers: group (text: row 1 has 'x'); --numeric group reads" in found.stderr
    )
    assert found.stdout.splitlines()[:6] == [
        f"{mixed / 'visits.csv'}: 240 rows, 7 features, 2 labels in 'outcome'",
        "  2 numbers: age, score",
        "  4 categories: color (3 levels), is_new (2), ward (4), group (4)",
        "  1 date: day (time, year, week)",
        "  53 gaps in 4 columns: score (27), color (15), age (6), day (5)",
        "192 rows to learn from, 48 held out to score on",
    ]
    told = json.loads(run("fit", mixed / "visits.csv", "-o", tmp_path / "m.cavity", "--json", *AS_READ).stdout)
    facts = {one.pop("name"): one for one in told["columns"]}
    assert list(facts) == told["features"] == ["age", "color", "day", "is_new", "ward", "score", "group"]
    assert facts["age"] == {"kind": "number", "gaps": 6}
    assert facts["color"] == {"kind": "category", "gaps": 15, "levels": 3}
    assert facts["day"] == {"kind": "date", "gaps": 5, "features": ["time", "year", "week"]}
    assert told["left_out"] == {"id": "text with 240 different values in 240 rows"}
    model = cavity.load(tmp_path / "m.cavity")
    assert [what for name, what in model.groups_ if name == "day"] == ["value", "missing", "year", "week"]
    assert {column.name: column.kind for column in model.columns_}["ward"] == "category"


def test_marks_of_missing_values_among_numbers_are_gaps(mixed, tmp_path):
    """In training and, without another word, in prediction."""
    model = tmp_path / "m.cavity"
    told = json.loads(run("fit", mixed / "visits.csv", "--target", "outcome", "-o", model, *QUICK, "--json").stdout)
    age = next(one for one in told["columns"] if one["name"] == "age")
    assert age["kind"] == "number"
    assert age["gaps"] > 0
    assert any("counts as missing: 'age'" in note or "counts as missing: age" in note for note in told["notes"])
    told = json.loads(run("predict", model, mixed / "visits.csv", "-o", tmp_path / "p.csv", "--json").stdout)
    assert told["missing"]["age"] > 0


def test_mostly_numbers_with_many_values_are_left_out_and_explained(mixed, tmp_path):
    """Where the other text is more than a few marks of missing values."""
    lines = (mixed / "visits.csv").read_text().splitlines()
    place, marks = lines[0].split(",").index("age"), iter(["old", "young", "grown", "adult"])
    for i in range(20, 24):
        cells = lines[i].split(",")
        cells[place] = next(marks)
        lines[i] = ",".join(cells)
    (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
    command = ["fit", tmp_path / "visits.csv", "--target", "outcome", "-o", tmp_path / "m.cavity", *QUICK]
    told = json.loads(run(*command, "--json").stdout)
    assert told["left_out"]["age"] == "text: row 1 has 'n/a?'"
    expected = "left out, though most cells are numbers: age (text: row 1 has 'n/a?'); --numeric age reads numbers"
    assert any(note.startswith(expected) for note in told["notes"])
    assert "age" not in told["features"]
    told = json.loads(run(*command, "--json", "--categorical", "age", "--categorical", "id,group").stdout)
    assert told["left_out"] == {}
    assert [one["kind"] for one in told["columns"] if one["name"] in ("age", "id", "group")] == ["category"] * 3


def test_text_that_looks_like_numbers_is_a_category_without_many_words(tmp_path):
    columns = {f"code {k}": [str(i % (k + 2)) for i in range(60)] for k in range(15)}
    columns |= {"many": [str(i % 30) for i in range(60)], "all": [str(i * i) for i in range(60)], "y": ["a", "b"] * 30}
    pq.write_table(pa.table(columns), tmp_path / "codes.parquet")
    command = ["fit", tmp_path / "codes.parquet", "--target", "y", "-o", tmp_path / "m.cavity", "--json", *QUICK]
    told = json.loads(run(*command).stdout)
    assert [one["kind"] for one in told["columns"]] == ["category"] * 16 + ["number"]
    assert [note for note in told["notes"] if "--numeric" in note] == [
        "read as categories, though most cells are numbers: many (text that looks like numbers); --numeric many reads "
        "numbers, and other text as missing"
    ]


def test_the_rows_held_out_of_a_mixed_table_are_known_again_in_any_form(mixed, tmp_path):
    order = np.random.default_rng(0).permutation(240)
    columns = visits(order) | {"age": [None if age == "n/a?" else age for age in visits(order)["age"]]}
    columns = {name: [None if cell == "" else cell for cell in column] for name, column in columns.items()}
    columns["group"] = list(map(str, columns["group"]))
    columns["is_new"] = [cell == "true" for cell in columns["is_new"]]
    table = pa.table(columns | {"day": pa.array(columns["day"]).cast(pa.timestamp("s"))})
    pq.write_table(table, tmp_path / "visits.parquet")
    write(tmp_path / "turned.csv", visits(order))
    kept = cavity.load(mixed / "visits.cavity").metrics_
    for data in (mixed / "visits.csv", tmp_path / "visits.parquet", tmp_path / "turned.csv"):
        told = json.loads(run("evaluate", mixed / "visits.cavity", data, "--json").stdout)
        assert (told["which"], told["rows"]) == ("held out", 48)
        assert told["scores"]["nll"] == pytest.approx(kept["nll"], rel=1e-9)
    assert kept["error"] < 0.35


def test_new_levels_and_gaps_are_predicted_and_counted(mixed, tmp_path):
    columns = visits(range(1, 7))
    columns["color"] = ["teal", "red", "", "mauve", "teal", "NA"]
    columns["ward"] = ["1.0", "02", "9", "", "4", "3"]
    columns["is_new"] = ["TRUE", "False", "maybe", "true", "false", ""]
    columns["age"][3:5] = ["?", ""]
    data = write(tmp_path / "new.csv", columns)
    told = json.loads(run("predict", mixed / "visits.cavity", data, "-o", tmp_path / "p.csv", "--json").stdout)
    assert told["unseen"] == {
        "color": {"cells": 3, "levels": ["teal", "mauve"]},
        "is_new": {"cells": 1, "levels": ["maybe"]},
        "ward": {"cells": 1, "levels": ["9"]},
    }
    assert told["missing"] == {"age": 2, "color": 2, "is_new": 1, "ward": 1}
    (note,) = told["notes"]
    assert note.startswith("new.csv: 5 cells have levels that the model does not know") or str(data) in note
    assert "'color' (3 cells, such as 'teal', 'mauve')" in note
    assert "also text that is no number: 'age' (1 cell, such as '?' in row 4)" in note
    p = [float(row["p_yes"]) for row in read_csv(tmp_path / "p.csv")]
    assert len(p) == 6
    clean = {name: [None if cell == "" else cell for cell in column] for name, column in columns.items()}
    clean |= {
        "color": [None, "red", *[None] * 4],
        "ward": [1, 2, None, None, 4, 3],
        "age": [*columns["age"][:3], None, None, columns["age"][5]],
    }
    clean |= {"is_new": [True, False, None, True, False, None], "group": list(map(str, columns["group"]))}
    X = pa.table(clean | {"day": pa.array(clean["day"]).cast(pa.date32())}).select(told_features(mixed))
    np.testing.assert_allclose(p, cavity.load(mixed / "visits.cavity").predict_proba(X)[:, 1], rtol=0, atol=1e-12)
    run("predict", mixed / "visits.cavity", data, "-o", tmp_path / "q.csv", "--drop-missing")
    assert len(read_csv(tmp_path / "q.csv")) == 2


def told_features(mixed):
    return list(cavity.load(mixed / "visits.cavity").feature_names_in_)


@pytest.mark.parametrize("form", ["csv", "csv.gz"])
def test_a_mixed_table_comes_from_standard_input_too(form, mixed, tmp_path):
    text = (mixed / "visits.csv").read_bytes()
    given = gzip.compress(text) if form == "csv.gz" else text
    (tmp_path / f"visits.{form}").write_bytes(given)
    for name in ("-", str(tmp_path / f"visits.{form}")):
        command = ["fit", name, "-o", tmp_path / "m.cavity", *AS_READ]
        found = CliRunner().invoke(main, list(map(str, command)), input=given)
        assert found.exit_code == 0, found.output
        assert cavity.load(tmp_path / "m.cavity").training_ == cavity.load(mixed / "visits.cavity").training_
        told = CliRunner().invoke(main, ["evaluate", str(tmp_path / "m.cavity"), name, "--json"], input=given)
        assert json.loads(told.stdout)["which"] == "held out"
    found = CliRunner().invoke(main, ["predict", str(mixed / "visits.cavity"), "-", "-o", "-"], input=given)
    assert len(found.stdout.splitlines()) == 241


def test_rows_with_gaps_can_still_be_dropped_from_a_mixed_table(mixed, tmp_path):
    command = ["fit", mixed / "visits.csv", "-o", tmp_path / "m.cavity", "--drop-missing", "--json", *AS_READ]
    told = json.loads(run(*command).stdout)
    assert told["dropped_rows"] == sum(not (i % 40 and i % 17 and i % 50 and i % 9) for i in range(240))
    assert {one["gaps"] for one in told["columns"]} == {0}
    assert (
        json.loads(run("evaluate", tmp_path / "m.cavity", mixed / "visits.csv", "--drop-missing", "--json").stdout)[
            "which"
        ]
        == "held out"
    )


def test_a_large_file_is_scored_in_parts_with_its_text(mixed, tmp_path, little_memory):
    columns = visits(range(1, 240, 2))
    columns["color"][0] = "teal"
    data = write(tmp_path / "new.csv", columns)
    told = json.loads(run("evaluate", mixed / "visits.cavity", data, "--json").stdout)
    assert (told["which"], told["rows"]) == ("new", 120)
    assert any("such as 'teal'" in note for note in told["notes"])


# --- large files ---


@pytest.fixture
def little_memory(monkeypatch):
    for command in ("fit", "evaluate", "report"):
        monkeypatch.setattr(f"cavity.cli.{command}.is_large", lambda table, n_processes=1: True)


def test_large_files_are_read_from_disk(folder, tmp_path, little_memory):
    pq.write_table(pa.table(iris()), tmp_path / "iris.parquet")
    out = tmp_path / "m.cavity"
    found = run("fit", tmp_path / "iris.parquet", "--target", "species", "-o", out, *QUICK)
    assert "no rows are held out" in found.stderr
    assert sum(cavity.load(out).training_["class_counts"]) == 150
    told = json.loads(run("evaluate", out, tmp_path / "iris.parquet", "--json").stdout)
    assert told["which"] == "learned from"
    assert told["rows"] == 150
    told = json.loads(run("evaluate", out, folder / "iris.csv", "--json").stdout)
    assert told["which"] == "new"
    assert "are not available" in fails(
        "fit", tmp_path / "iris.parquet", "--target", "species", "-o", out, "--holdout", 0.5
    )
    assert "use a sample" in fails("report", out, tmp_path / "iris.parquet", "-o", tmp_path / "r.html")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_large_files_with_text_gaps_and_dates_are_read_from_disk(form, tmp_path, little_memory):
    columns = visits() | {"age": list(range(20, 260))}
    data = write(tmp_path / "visits.csv", columns)
    if form == "parquet":
        data = tmp_path / "visits.parquet"
        clean = {name: [None if cell == "" else cell for cell in column] for name, column in columns.items()}
        clean["group"] = list(map(str, clean["group"]))
        clean["is_new"] = [cell == "true" for cell in clean["is_new"]]
        pq.write_table(pa.table(clean | {"day": pa.array(clean["day"]).cast(pa.date32())}), data)
    command = ["fit", data, "--target", "outcome", "-o", tmp_path / "m.cavity", *QUICK]
    found = run(*command)
    assert "  3 numbers: age, ward, score\n  4 categories: id, color, is_new, group\n  1 date: day\n" in found.stdout
    assert "left out: id (text with 240 different values in 240 rows)" in found.stderr
    assert "'age' only counts the rows" in found.stderr
    told = json.loads(run(*command, "--categorical", "ward", "--drop", "id,age", "--json").stdout)
    facts = {one.pop("name"): one for one in told["columns"]}
    assert facts["color"] == {"kind": "category", "levels": 3}
    assert facts["ward"] == {"kind": "category", "levels": 4}
    assert facts["day"] == {"kind": "date", "features": ["time", "year", "week"]}
    told = json.loads(run("evaluate", tmp_path / "m.cavity", data, "--json").stdout)
    assert (told["which"], told["rows"]) == ("learned from", 240)
    told = json.loads(run("predict", tmp_path / "m.cavity", data, "-o", tmp_path / "p.parquet", "--json").stdout)
    assert told["missing"] == {"color": 15, "day": 5, "score": 27}
    run("predict", tmp_path / "m.cavity", data, "-o", f"{tmp_path}/parts/")
    one, parts = pq.read_table(tmp_path / "p.parquet"), pq.read_table(tmp_path / "parts")
    np.testing.assert_allclose(one["p_yes"], parts["p_yes"], rtol=0, atol=1e-12)
    assert "--numeric does not read text, as in 'group'" in fails(*command, "--numeric", "group")


# --- Ctrl-C ---


ENDLESS = """
from cavity.runtime import progress
from cavity.training.history import Clock, History
History.has_settled = lambda self, tol: False
progress.SECONDS_BETWEEN_LINES = 0.0  # a line an epoch
{more}
from cavity.cli import main
main()
"""


def start_endless(folder, more=""):
    """A fit that goes on until it is stopped, and has begun."""
    data = write(folder / "iris.csv", iris())
    options = ["--target", "species", "-o", folder / "m.cavity", "--epochs", 10**7, "--inducing", 5, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS.format(more=more), "fit", str(data), *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    wait_for("epoch 3 of", process)
    return process


def wait_for(text, process):
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    raise AssertionError("".join(seen))


def test_ctrl_c_stops_training_and_keeps_the_model(tmp_path):
    process = start_endless(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "stopping after this step; press Ctrl-C again to quit now" in err
    told = json.loads(out)
    assert told["stopped"] is True
    assert told["epochs"] >= 3
    assert told["scores"]["error"] < 0.5
    found = cavity.load(tmp_path / "m.cavity")
    assert found.metrics_["nll"] == told["scores"]["nll"]
    assert found.predict(pa.table(inputs())).shape == (150,)


def test_a_second_ctrl_c_leaves_at_once_and_writes_nothing(tmp_path):
    process = start_endless(tmp_path, more="Clock.is_stopped = lambda self: False  # a step that takes forever")
    process.send_signal(signal.SIGINT)
    wait_for("stopping after this step", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["iris.csv"]


def test_ctrl_c_before_there_is_anything_to_keep_ends_with_130(folder, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("cavity.cli.fit.read_rows", interrupted)
    found = run("fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "m.cavity", code=130)
    assert "Traceback" not in found.output
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_of_an_earlier_run_are_refused_and_kept(folder, tmp_path):
    command = ["fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "m.cavity", *QUICK]
    command += ["--checkpoint", tmp_path / "kept"]
    run(*command)
    before = {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*.safetensors")}
    found = run(*command, code=1)
    assert str(tmp_path / "kept") in found.stderr
    assert "--resume" in found.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "kept").rglob("*.safetensors")} != {}
    run(*command, "--resume")


def test_a_second_ctrl_c_while_the_model_is_written_says_whether_it_was(folder, tmp_path, monkeypatch):
    save = GPClassifier.save

    def press_twice(self, path, metrics=None):
        signal.raise_signal(signal.SIGINT)
        if is_written:
            save(self, path, metrics)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(GPClassifier, "save", press_twice)
    out = tmp_path / "m.cavity"
    for text in ("was not written", "was written", "was not written"):
        is_written = text == "was written"
        found = run("fit", folder / "iris.csv", "--target", "species", "-o", out, *QUICK, code=130)
        assert found.stderr.splitlines()[-1] == f"stopped; {out} {text}"
        assert "Traceback" not in found.output


STARTING = """
import builtins, runpy, signal, sys
before = builtins.__import__

def pressed(name, *rest, **named):
    if name == {name!r} and {name!r} not in pressed.seen:
        pressed.seen.append(name)
        {how}
    return before(name, *rest, **named)

pressed.seen = []
builtins.__import__ = pressed
sys.argv = ["cavity", "fit", {data!r}, "--target", "species", "-o", {out!r}]
runpy.run_module("cavity", run_name="__main__", alter_sys=True)
"""
PRESS = "signal.raise_signal(signal.SIGINT)"
FOUND = f"""
        try:
            {PRESS}
        except KeyboardInterrupt:
            raise ImportError("a module that was cut short")"""
LOST = f"""
        try:
            {PRESS}
        except KeyboardInterrupt:
            {PRESS}"""


@pytest.mark.parametrize(
    ("name", "how"), [("click", PRESS), ("numpy", FOUND), ("torch", PRESS), ("torch", FOUND), ("torch", LOST)]
)
def test_ctrl_c_while_modules_are_imported_is_one_line(name, how, tmp_path):
    data = write(tmp_path / "iris.csv", iris())
    code = STARTING.format(name=name, how=how.strip() if how == PRESS else how, data=str(data), out=str(tmp_path / "m"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("Reading", "left out"))]
    assert done.returncode == 130
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("stopped")


# --- a disk that is full ---


@pytest.fixture
def full_disk(monkeypatch):
    """A file system that takes no more after training began: that of the folders named `full`."""
    real = cavity.files.tensor_file.save_file

    def save_file(tensors, path, metadata=None):
        if "full" in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(tensors, path, metadata)

    monkeypatch.setattr("cavity.files.tensor_file.save_file", save_file)


def test_a_model_that_cannot_be_written_is_saved_elsewhere(folder, tmp_path, monkeypatch, full_disk):
    for name in ("full", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    command = ["fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "full" / "m.cavity", *QUICK]
    found = run(*command, code=1)
    assert f"saved the model to {tmp_path / 'here' / 'm.cavity'}" in found.stdout
    assert "held out" in found.stdout
    error = found.stderr.splitlines()[-1]
    assert "m.cavity cannot be written: the disk is full" in error
    assert error.endswith(f"The model is in {tmp_path / 'here' / 'm.cavity'}")
    assert cavity.load(tmp_path / "here" / "m.cavity").metrics_["target"] == "species"
    run(*command, code=1)  # what is there is not replaced
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["m-1.cavity", "m.cavity"]
    assert list((tmp_path / "full").iterdir()) == []


def test_where_nothing_can_be_written_the_first_reason_is_told(folder, tmp_path, monkeypatch, full_disk):
    (tmp_path / "full").mkdir()
    monkeypatch.chdir(tmp_path / "full")
    monkeypatch.setattr("cavity.cli.output.Path.home", lambda: tmp_path / "full" / "no")
    monkeypatch.setattr("cavity.cli.output.tempfile.gettempdir", lambda: str(tmp_path / "full" / "none"))
    found = run("fit", folder / "iris.csv", "--target", "species", "-o", "m.cavity", *QUICK, code=1)
    assert "m.cavity cannot be written: the disk is full. Free some space" in found.stderr


def test_a_report_that_cannot_be_written_is_saved_elsewhere(folder, model, tmp_path, monkeypatch):
    from cavity.report import Report

    def save(self, path):
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        path.write_text("page")

    monkeypatch.setattr(Report, "save", save)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = run("report", model, folder / "new.csv", "-o", tmp_path / "r.html", code=1)
    assert f"The report is in {tmp_path / 'here' / 'r.html'}" in found.stderr
    assert (tmp_path / "here" / "r.html").read_text() == "page"


def test_a_full_disk_is_noticed_before_training(folder, tmp_path, monkeypatch):
    def full(**settings):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("cavity.cli.output.tempfile.TemporaryFile", full)
    error = fails("fit", folder / "iris.csv", "--target", "species", "-o", tmp_path / "m.cavity")
    assert "is not writable: No space left on device" in error


# --- drift ---


def test_drift_tells_novel_rows_and_columns_that_moved(folder, model, tmp_path):
    same = json.loads(run("drift", model, folder / "new.csv", "--json").stdout)
    assert same["rows"] == same["labeled"] == 15
    assert not any(column["moved"] for column in same["columns"])
    columns = iris(slice(0, 150, 2))
    columns["petal width"] = [float(x) + 3.0 for x in columns["petal width"]]
    columns["species"] = ["tulip", *columns["species"][1:]]
    data = write(tmp_path / "moved.csv", columns)
    told = json.loads(run("drift", model, data, "-o", tmp_path / "drift.html", "--json").stdout)
    assert [column["name"] for column in told["columns"] if column["moved"]] == ["petal width"]
    assert told["novel"]["share"] > told["novel"]["expected"][1]
    assert told["unknown_labels"] == {"tulip": 1}
    assert told["labeled"] == 74
    assert "1 column has moved: petal width" in run("drift", model, data).stdout
    assert "<h1>iris on " in (tmp_path / "drift.html").read_text()
    del columns["species"]
    told = json.loads(run("drift", model, write(tmp_path / "no.csv", columns), "--json").stdout)
    assert (told["labeled"], told["scores"]) == (0, None)


def test_drift_uses_only_new_rows_of_the_file_of_the_fit(folder, model):
    found = run("drift", model, folder / "iris.csv", "--json")
    assert json.loads(found.stdout)["rows"] == 30
    assert "only the 30 rows held out from training are used" in found.stderr
