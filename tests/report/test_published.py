"""Published numbers: the shipped files, the comparison with a leaderboard, and where it is shown."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard, Published, read_published, write_report
from mtlscale.report.published import PublishedMethod, compare
from mtlscale.spec import UserError, load_experiment, shipped
from pipelines.amazon import PRODUCTS
from pipelines.newsgroups import TOPICS

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
def published() -> Published:
    methods = {
        "equal": PublishedMethod(name="Uniform", values=(90.0, 80.0), printed_average=85.4),
        "mgda": PublishedMethod(name="MGDA <b>", values=(88.0, 82.0)),
        "never run": PublishedMethod(name="Other", values=(1.0, 2.0)),
    }
    return Published(
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
    table = read_published(Path(load_experiment(f"getmtl_{dataset}").published or ""))
    assert set(table.tasks) == set(TASKS[dataset]) and len(table.tasks) == len(TASKS[dataset])
    assert [method.mean for method in table.methods.values()] == pytest.approx(MEANS[dataset], abs=0.0051)
    assert all(method.printed_average is not None for method in table.methods.values())


def test_every_published_method_is_a_row_of_the_comparisons_that_name_it() -> None:
    named = naming()
    assert {"getmtl_newsgroups", "getmtl_newsgroups_full", "getmtl_amazon", "getmtl_amazon_full"} <= set(named)
    for name, table in named.items():
        experiment = load_experiment(name)
        labels = {method.label for method in experiment.methods}
        assert table.dataset in {dataset.name for dataset in experiment.datasets}
        if re.fullmatch(r"getmtl_(newsgroups|amazon)(_full)?", name):
            assert set(table.methods) <= labels


def test_ours_stands_beside_the_mean_of_the_published_column(published: Published, records: list[RunRecord]) -> None:
    table = Leaderboard.from_records(records).tables["texts"]
    comparison = compare(table, published)
    assert comparison is not None
    # Best first, as in the leaderboard; what only one side has is left out.
    mgda, equal = comparison.rows
    assert mgda[:2] == ("mgda", "MGDA <b>") and mgda[3:6] == ("85.00", "–", "+4.00 (!)") and mgda[6] == "+5.00 a"
    assert equal[:2] == ("equal", "Uniform") and equal[3:6] == ("85.00", "85.40", "+2.00 (!)") and equal[6] == "+2.00 b"
    assert mgda[2].startswith("89.00 ± ")
    assert comparison.far == ("mgda", "equal") and "other words" in comparison.legend()


def test_reasons_are_offered_only_where_something_is_far(published: Published) -> None:
    near = Leaderboard.from_records([record("equal", 0, {"a": 81.5, "b": 91.5})]).tables["texts"]
    comparison = compare(near, published)
    assert comparison is not None and comparison.far == ()
    assert comparison.rows[0][2] == "86.50" and comparison.rows[0][5] == "+1.50"
    assert "other words" not in comparison.legend()


@pytest.mark.parametrize("change", ["tasks", "metric", "methods"])
def test_tables_about_something_else_are_not_compared(
    change: str, published: Published, records: list[RunRecord]
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
    published: Published, records: list[RunRecord], tmp_path: Path
) -> None:
    other = [record("equal", seed, {"a": 70.0, "b": 60.0}, "elsewhere", "amazon") for seed in (0, 2)]
    board = Leaderboard.from_records([*records, *other], published=published)
    assert set(board.comparisons) == {"texts"}
    text = io.StringIO()
    Console(file=text, width=120).print(board.to_rich())
    files = write_report([*records, *other], tmp_path, "with numbers", published=published)
    for shown in (text.getvalue(), board.to_markdown(), files["html"].read_text(), files["markdown"].read_text()):
        assert shown.count("eside A paper, table 1") >= 1
        assert "+4.00 (!)" in shown and "other words" in shown
    page = files["html"].read_text()
    assert "MGDA &lt;b&gt;" in page and "MGDA <b>" not in page.split("<script")[0]
    assert "A paper" not in Leaderboard.from_records(records).to_markdown()


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("source: x\n  y: [", "is not valid YAML"),
        ("source: x", "dataset: Field required"),
        (
            "{source: s, dataset: d, metric: m, tasks: [a, b], methods: {equal: {name: E, values: [1]}}}",
            "equal has 1 values for 2 tasks",
        ),
        ("{source: s, dataset: d, metric: m, tasks: [a], methods: {}, extra: 1}", "extra: Extra inputs"),
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
