"""Published numbers: the shipped files, the comparison with a leaderboard, and where it is shown."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mtlscale.config import SHIPPED, UserError, load_experiment, shipped
from mtlscale.config.registry import components
from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard, Published, read_published, write_report
from mtlscale.report.sections.comparisons import compare, compared
from mtlscale.report.tables.published import PublishedMethod, PublishedTable
from pipelines.image.celeba import NINE
from pipelines.text.amazon import PRODUCTS
from pipelines.text.newsgroups import TOPICS

# Chai et al., ACL 2023, tables 2-3: the means of the columns, recomputed from the printed entries.
MEANS = {
    "newsgroups": [90.33, 91.35, 91.35, 90.98, 91.62, 91.24, 91.45, 91.45, 92.37],
    "amazon": [87.65, 89.57, 89.74, 89.40, 89.20, 88.89, 89.62, 89.80, 90.66],
}
TASKS = {"newsgroups": tuple(TOPICS), "amazon": PRODUCTS}


def naming() -> dict[str, Published]:
    """Shipped experiments that name published numbers."""
    experiments = {name: load_experiment(path) for name, path in shipped().items()}
    return {name: read_published(found.published) for name, found in experiments.items() if found.published is not None}


def record(
    method: str, seed: int, values: dict[str, float], dataset: str = "texts", pipeline: str = "newsgroups"
) -> RunRecord:
    metrics = {task: {"accuracy": value, "loss": 1.0} for task, value in values.items()}
    return RunRecord(
        run_id=f"{method}-{seed}-{dataset}",
        experiment="test",
        dataset=dataset,
        method=method,
        seed=seed,
        status="finished",
        spec={"dataset": {"name": pipeline}},
        fingerprint="f",
        higher_is_better={"accuracy": True, "loss": False},
        main_metrics=dict.fromkeys(values, "accuracy"),
        metrics={"test": metrics},
        last={"test": metrics},
    )


@pytest.fixture
def published() -> PublishedTable:
    methods = {
        "equal": PublishedMethod(name="Uniform", values=(90.0, 80.0), printed_average=85.4),
        "mgda": PublishedMethod(name="MGDA <b>", values=(88.0, 82.0)),
        "never run": PublishedMethod(name="Other", values=(1.0, 2.0)),
    }
    return PublishedTable(
        source="A paper, table 1",
        dataset="newsgroups",
        metric="accuracy",
        tasks=("b", "a"),
        methods=methods,
        reasons="other words",
    )


@pytest.fixture
def records() -> list[RunRecord]:
    rows = {"stl": (80.0, 90.0), "equal": (81.0, 91.0), "mgda": (86.0, 90.0)}
    return [record(method, seed, {"a": a + seed, "b": b + seed}) for method, (a, b) in rows.items() for seed in (0, 2)]


@pytest.mark.parametrize("dataset", ["newsgroups", "amazon"])
def test_the_shipped_numbers_are_whole_and_their_means_are_those_computed_by_hand(dataset: str) -> None:
    [table] = read_published(Path(load_experiment(f"getmtl_{dataset}").published or "")).tables
    assert set(table.tasks) == set(TASKS[dataset]) and len(table.tasks) == len(TASKS[dataset])
    assert [table.value(label) for label in table.methods] == pytest.approx(MEANS[dataset], abs=0.0051)
    assert all(method.printed_average is not None for method in table.methods.values())


def test_every_published_method_is_a_row_of_the_comparisons_that_name_it() -> None:
    named = naming()
    assert {"getmtl_newsgroups", "getmtl_newsgroups_full", "getmtl_amazon", "getmtl_amazon_full"} <= set(named)
    for name, found in named.items():
        experiment = load_experiment(name)
        labels = {method.label for method in experiment.methods}
        assert {dataset.name for dataset in experiment.datasets} <= {table.dataset for table in found.tables}
        for table in found.tables:
            if re.fullmatch(r"getmtl_(newsgroups|amazon)(_full)?", name):
                assert set(table.methods) <= labels
            known = set(table.methods) & {"stl", *components.names("balancers"), *components.names("architectures")}
            if name.endswith("_full"):
                assert known <= labels, (name, table.source)


def test_the_nine_attributes_are_those_of_the_pipeline() -> None:
    [table] = read_published(SHIPPED / "published" / "celeba9.yaml").tables
    assert table.tasks == NINE
    runs = [
        record(method, 0, {}, "faces", "celeba").model_copy(
            update={
                "metrics": {"test": {task: {"error": error} for task in NINE}},
                "last": {"test": {task: {"error": error} for task in NINE}},
                "higher_is_better": {"error": False},
                "main_metrics": dict.fromkeys(NINE, "error"),
            }
        )
        for method, error in (("stl", 5.5), ("equal", 5.25))
    ]
    board = Leaderboard.from_records(runs, published=Published(tables=(table,)))
    [comparison] = compared(board.tables["faces"], board.published["faces"])
    assert comparison.sheet.texts[0][:5] == ("equal", "HPS", "47.25", "49.78 ± 0.26", "-2.53 (!)")
    assert comparison.opposite == (
        "equal is 2.25 better than stl here and 0.19 worse in CoNAL (Yue's thesis), table 5.8.",
    )


def test_figures_of_an_evaluation_stand_beside_the_published_ones() -> None:
    [one, on_top] = read_published(SHIPPED / "published" / "e2rnas_cifar100.yaml").tables
    runs = [
        record(label, seed, {"class": 80.0}, "pictures", "cifar100").model_copy(
            update={
                "figures": {"test": {"pgd_accuracy": 20.0 + seed}, "network": {"flops": 500.0}},
                "parameters": 10**6,
            }
        )
        for label in ("DARTS", "E2RNAS L=5")
        for seed in (0, 2)
    ]
    board = Leaderboard.from_records(runs, published=Published(tables=(one, on_top)))
    [comparison] = compared(board.tables["pictures"], board.published["pictures"])
    figures = ("ours, PGD acc", "published", "ours, FLOPs", "published")
    assert comparison.sheet.header[-6:] == (
        "ours, M parameters",
        "published",
        *figures,
    )  # none of ours told other images
    assert [row[-4:] for row in comparison.sheet.texts] == [
        ("21.00", "13.66", "500.00", "539.00"),
        ("21.00", "21.21", "500.00", "643.00"),
    ]
    with pytest.raises(ValueError, match="unknown figure 'pgd_acuracy'; did you mean pgd_accuracy"):
        PublishedTable(
            source="x", dataset="y", methods={"z": PublishedMethod(name="z", score=1, figures={"pgd_acuracy": 1.0})}
        )


def test_ours_stands_beside_the_mean_of_the_published_column(
    published: PublishedTable, records: list[RunRecord]
) -> None:
    table = Leaderboard.from_records(records).tables["texts"]
    comparison = compare(table, published)
    assert comparison is not None
    # Best first, as in the leaderboard; what only one side has is left out.
    mgda, equal = comparison.sheet.texts
    assert mgda[:2] == ("mgda", "MGDA <b>") and mgda[3:6] == ("85.00", "–", "+4.00 (!)") and mgda[6] == "+5.00 a"
    assert equal[:2] == ("equal", "Uniform") and equal[3:6] == ("85.00", "85.40", "+2.00 (!)") and equal[6] == "+2.00 b"
    assert mgda[2] == "89.00"  # two seeds have no interval
    assert comparison.far == ("mgda", "equal") and "other words" in comparison.legend()


def test_reasons_are_offered_only_where_something_is_far(published: PublishedTable) -> None:
    near = Leaderboard.from_records([record("equal", 0, {"a": 81.5, "b": 91.5})]).tables["texts"]
    comparison = compare(near, published)
    assert comparison is not None and comparison.far == ()
    assert comparison.sheet.texts[0][2] == "86.50" and comparison.sheet.texts[0][5] == "+1.50"
    assert "other words" not in comparison.legend()


@pytest.mark.parametrize("change", ["tasks", "metric", "methods"])
def test_tables_about_something_else_are_not_compared(
    change: str, published: PublishedTable, records: list[RunRecord]
) -> None:
    other = {
        "tasks": {"tasks": ("a", "c")},
        "metric": {"metric": "f1"},
        "methods": {"methods": {"never run": PublishedMethod(name="Other", values=(1.0, 2.0))}},
    }[change]
    table = Leaderboard.from_records(records).tables["texts"]
    assert compare(table, published) is not None
    assert compare(table, published.model_copy(update=other)) is None


def test_it_is_shown_for_its_data_set_wherever_a_leaderboard_is(
    published: PublishedTable, records: list[RunRecord], tmp_path: Path
) -> None:
    other = [record("equal", seed, {"a": 70.0, "b": 60.0}, "elsewhere", "amazon") for seed in (0, 2)]
    board = Leaderboard.from_records([*records, *other], published=Published(tables=(published,)))
    assert [name for name, table in board.tables.items() if compared(table, board.published[name])] == ["texts"]
    text = io.StringIO()
    Console(file=text, width=120).print(board.to_rich(wide=True))
    files = write_report([*records, *other], tmp_path, "with numbers", board=board)
    for shown in (text.getvalue(), board.to_markdown(), files["html"].read_text(), files["markdown"].read_text()):
        assert shown.count("eside A paper, table 1") >= 1
        assert "+4.00 (!)" in shown and "other words" in shown
    page = files["html"].read_text()
    assert "MGDA &lt;b&gt;" in page and "MGDA <b>" not in page.split("<script")[0]
    assert "A paper" not in Leaderboard.from_records(records).to_markdown()


def test_who_stands_on_the_other_side_of_the_baseline_than_published_is_said(published: PublishedTable) -> None:
    with_stl = {**published.methods, "stl": PublishedMethod(name="STL", values=(84.0, 84.5))}
    table = published.model_copy(update={"methods": with_stl})
    ours = {"stl": (80.0, 90.0), "equal": (79.0, 90.0), "mgda": (86.0, 90.0)}
    board = Leaderboard.from_records([record(method, 0, dict(zip("ab", v, strict=True))) for method, v in ours.items()])
    comparison = compare(board.tables["texts"], table)
    assert comparison is not None
    assert comparison.opposite == ("equal is 0.50 worse than stl here and 0.75 better in A paper, table 1.",)
    assert comparison.opposite[0] in comparison.legend()


def maps(method: str, seed: int, miou: float, accuracy: float, depth: float, **more: float) -> RunRecord:
    metrics = {"segmentation": {"miou": miou, "pixel_accuracy": accuracy}, "depth": {"abs_err": depth, "rmse": 1.0}}
    return record(method, seed, {}, "scenes", "cityscapes").model_copy(
        update={
            "metrics": {"test": metrics},
            "last": {"test": metrics},
            "higher_is_better": {"miou": True, "pixel_accuracy": True, "abs_err": False, "rmse": False},
            "main_metrics": {"segmentation": "miou", "depth": "abs_err"},
            "parameters": 12_340_000,
            **more,
        }
    )


def scenes(**changes: Any) -> PublishedTable:
    """A table with gains on its first row, in which pixel errors stand for accuracies."""
    methods = {
        "stl": PublishedMethod(name="STL", score=0.0, values=(50.0, 20.0, 0.5)),
        "equal": PublishedMethod(name="HPS", score=-0.0125, parameters=12.3, values=(1.0, -1.0, -0.01)),
    }
    told = {"source": "Table 9", "dataset": "cityscapes", "entries": "gains", "score": "delta_i", "unit": "fraction"}
    columns = ("segmentation.miou", "segmentation.pixel_error", "depth.abs_err")
    return PublishedTable(**{**told, "columns": columns, "methods": methods, **changes})


def test_delta_is_compared_over_the_published_columns_whatever_else_is_measured() -> None:
    table = scenes()
    assert table.absolute("equal") == {
        "segmentation": {"miou": 51.0, "pixel_error": 21.0},
        "depth": {"abs_err": pytest.approx(0.51)},
    }
    runs = [maps("stl", 0, 40.0, 80.0, 1.0), maps("stl", 1, 50.0, 90.0, 1.0)]
    runs += [maps("equal", 0, 42.0, 82.0, 0.9), maps("equal", 1, 55.0, 90.0, 1.2)]
    found = compare(Leaderboard.from_records(runs).tables["scenes"], table)
    assert found is not None and found.sheet.header[-2:] == ("ours, M parameters", "published")
    # Seed 0: ((5 + 10) / 2 + 10) / 2, seed 1: ((10 + 0) / 2 - 20) / 2.
    equal = next(row for row in found.sheet.texts if row[0] == "equal")
    assert equal[2] == "0.63" and equal[3:] == ("-1.25", "+1.88 (!)", "12.34", "12.30")
    assert found.opposite == ("equal is 0.63 better than stl here and 1.25 worse in Table 9.",)
    elsewhere = scenes(columns=("segmentation.miou", "segmentation.pixel_error", "depth.rel_err"))
    assert compare(Leaderboard.from_records(runs).tables["scenes"], elsewhere) is None


def test_improvements_of_errors_are_relative_to_accuracy_as_in_tomatos_table() -> None:
    methods = {
        "separate": PublishedMethod(name="Separate", score=0.0),
        "single": PublishedMethod(name="Single", score=-48.66),
    }
    table = PublishedTable(
        source="T", dataset="mnist_mtl", metric="error", baseline="separate", score="taskwise", methods=methods
    )
    runs = [
        record(method, 0, {}, "digits", "mnist_mtl").model_copy(
            update={
                "metrics": {"test": {"a": {"error": error}, "b": {"error": 10.0}}},
                "last": {"test": {"a": {"error": error}, "b": {"error": 10.0}}},
                "higher_is_better": {"error": False},
                "main_metrics": {"a": "error", "b": "error"},
            }
        )
        for method, error in (("separate", 20.0), ("single", 60.0))
    ]
    board = Leaderboard.from_records(runs, baseline="separate", published=Published(tables=(table,)))
    [comparison] = compared(board.tables["digits"], board.published["digits"])
    assert {row[0]: row[2] for row in comparison.sheet.texts} == {"separate": "0.00", "single": "-25.00"}


def test_several_tables_share_a_files_reasons(tmp_path: Path) -> None:
    path = tmp_path / "numbers.yaml"
    one = "{source: s, dataset: d, metric: error, score: total_error, methods: {equal: {name: E, score: 1}}}"
    path.write_text(f"reasons: because\ntables:\n  - {one}\n  - {one.replace('dataset: d', 'dataset: e')}\n")
    found = read_published(path)
    assert [table.reasons for table in found.tables] == ["because", "because"]
    assert [table.dataset for table in found.of("e")] == ["e"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("source: x\n  y: [", "is not valid YAML"),
        ("source: x", "dataset: Field required"),
        (
            "{source: s, dataset: d, metric: m, tasks: [a, b], methods: {equal: {name: E, values: [1]}}}",
            "equal has 1 values for 2 tasks",
        ),
        ("{source: s, dataset: d, metric: error, tasks: [a], methods: {}, extra: 1}", "extra: Extra inputs"),
        ("{source: s, dataset: d, columns: [a.eror], methods: {}}", "unknown metric 'eror': did you mean error"),
        ("{source: s, dataset: d, methods: {equal: {name: E}}}", "equal has neither values nor a score"),
        (
            "{source: s, dataset: d, columns: [a.error], entries: gains, methods: {equal: {name: E, values: [1]}}}",
            "entries: gains need the values of stl",
        ),
        ("[1, 2]", "is a mapping with `tables`"),
    ],
)
def test_a_file_that_is_no_published_table_is_named(text: str, mistake: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=mistake) as raised:
        read_published(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_an_experiment_names_the_file_relative_to_itself(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"published: .*numbers.yaml does not exist; correct or drop the key"):
        load_experiment(experiment_file(published="numbers.yaml"))
    (tmp_path / "numbers.yaml").write_text("anything")
    found = load_experiment(experiment_file(published="numbers.yaml"))
    assert found.published == tmp_path / "numbers.yaml"
    plain = load_experiment(experiment_file())
    fingerprints = {"uneven": "f"}
    assert [run.run_id for run in found.runs(fingerprints)] == [run.run_id for run in plain.runs(fingerprints)]


def test_a_table_may_be_of_one_data_set_of_its_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    table = "{source: x, dataset: e, %smetric: accuracy, tasks: [a], methods: {stl: {name: S, values: [1]}}}"
    path.write_text(f"tables:\n  - {table % 'label: one, '}\n  - {table % ''}\n", encoding="utf-8")
    found = read_published(path)
    assert [table.label for table in found.of("e", "one")] == ["one", ""]
    assert [table.label for table in found.of("e", "two")] == [""]
