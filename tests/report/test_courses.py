"""Δ against a number that data sets of one pipeline differ in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mtlscale.records import RunRecord
from mtlscale.report import write_report
from mtlscale.report.charts.chart import Line
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.data_settings import course as course_of
from mtlscale.report.sections.data_settings import courses
from mtlscale.report.sensitivity import Sensitivity

Make = Callable[..., RunRecord]
WithoutEpochs = Callable[[Iterable[RunRecord]], list[RunRecord]]
SIZES = (1000, 30, 300)


def gain(kind: str, size: int) -> float:
    return {"same": 1.0, "other": -1.0}[kind] * SIZES.index(size)


@pytest.fixture(scope="module")
def runs(record: Make) -> list[RunRecord]:
    """Three sizes, two kinds, two links that go together with an activation, three seeds whose data is another."""
    found = []
    for link, activation in (("linear", "identity"), ("bent", "relu")):
        for kind in ("same", "other"):
            for size in SIZES:
                for method, moved in (("stl", 0.0), ("equal", gain(kind, size))):
                    for seed in range(3):
                        options = {"name": "made", "few": len(link), "size": size, "kind": kind, "link": link}
                        encoder = {"name": "mlp", "hidden": [1], "activation": activation}
                        spec = {"dataset": {**options, "split": seed}, "encoder": encoder, "seed": seed}
                        values = {"a": {"accuracy": 50.0 + moved + seed * (method == "equal")}}
                        found.append(record(method, seed, values, dataset=f"{link} {kind} {size}", spec=spec))
    return found


def drawn(runs: list[RunRecord], **fields: Any) -> list[Sensitivity]:
    return list(courses(runs, Leaderboard.from_records(runs, **fields).tables))


@pytest.fixture(scope="module")
def course(runs: list[RunRecord]) -> Sensitivity:
    """Draw the one course of all of them, which tests only read."""
    (only,) = drawn(runs)
    return only


@pytest.fixture
def few(runs: list[RunRecord]) -> list[RunRecord]:
    """Copy the runs of one link and one kind: they are a course, too, and a table takes time for each data set."""
    return [run.model_copy(deep=True) for run in runs if run.dataset.startswith("linear same")]


def test_the_number_is_the_axis_methods_and_kinds_are_lines_and_the_last_option_panels(course: Sensitivity) -> None:
    assert (course.over, course.measured, course.file) == ("size", "Δ over stl, %", "by_size_made") and course.log
    assert list(course.panels) == ["link: linear", "link: bent"]
    for lines in course.panels.values():
        assert list(lines) == ["equal, kind: same", "equal, kind: other"]
        for kind in ("same", "other"):
            rows = lines[f"equal, kind: {kind}"]
            assert list(rows["x"]) == sorted(SIZES)
            # Accuracies 50 and 50 become 50, 51 and 52 + gain: in percent of 50, and 2 more in the mean.
            assert list(rows["value"]) == pytest.approx([2 * gain(kind, size) + 2 for size in sorted(SIZES)])
            assert (rows["ci"] > 0).all()


def test_shares_that_are_far_apart_have_a_logarithmic_axis_and_0_has_none(course: Sensitivity) -> None:
    for share, logarithmic in ((lambda x: x / 1000, True), (lambda x: x - 30, False)):
        panels = {
            panel: {line: rows.assign(x=share(rows["x"])) for line, rows in lines.items()}
            for panel, lines in course.panels.items()
        }
        assert course_of("made", "stl", "size", panels).log == logarithmic


def test_the_table_has_a_row_for_each_line_and_a_column_for_each_value(course: Sensitivity) -> None:
    [table] = course.tables
    assert table.header == ("size", "30", "300", "1000") and len(table.texts) == 4
    assert table.texts[0][0] == "equal, kind: same, link: linear" and table.texts[0][1].startswith("+4.0 ± ")


def test_it_says_where_intervals_lie_on_one_side_of_zero() -> None:
    rows = pd.DataFrame(
        {"x": [1.0, 2.0, 3.0, 4.0], "value": [-3.0, -1.0, 1.5, 4.0], "ci": [1.0, 2.0, 1.0, float("nan")]}
    )
    course = course_of("made", "stl", "size", {"link: bent": {"equal": rows, "mgda": rows.iloc[1:2]}})
    assert course.sentences == [
        "equal, link: bent: better than stl at 3 and worse than stl at 1.",
        "mgda, link: bent: no interval lies on one side of 0.",
    ]


def test_pictures_and_page_show_every_line_once(
    course: Sensitivity, few: list[RunRecord], without_epochs: WithoutEpochs, tmp_path: Path
) -> None:
    chart = course.chart({})
    assert len(chart.panels) == 2 and all(panel.x.log and len(panel.of(Line)) == 2 for panel in chart.panels)
    assert chart.legend_names == ["equal, kind: same", "equal, kind: other"]
    files = write_report(without_epochs(few), tmp_path, "made")
    assert files["by_size_made"] == tmp_path / "pictures" / "by_size_made.png" and files["by_size_made"].exists()
    text = files["markdown"].read_text()
    assert "## Δ over stl, %, by size" in text and "- equal: better than stl at 300.\n" in text
    page = files["html"].read_text()
    assert 'id="figure-3-0"' in page and 'data-for="figure-3-0"' in page


def test_the_width_of_the_encoder_is_such_a_number(record: Make) -> None:
    runs = [
        record(
            method,
            seed,
            {"a": {"accuracy": 50.0 + width}},
            dataset=f"width {width}",
            spec={"dataset": {"name": "made"}, "encoder": {"hidden": [width]}, "seed": seed},
        )
        for width in (1, 2, 4)
        for method in ("stl", "equal")
        for seed in range(2)
    ]
    (course,) = drawn(runs)
    assert course.over == "hidden" and not course.log and list(course.panels) == [""]


@pytest.mark.parametrize("without", ["third value", "baseline", "numbers", "options"])
def test_there_is_none_without(without: str, few: list[RunRecord]) -> None:
    if without == "third value":
        few = [run for run in few if run.spec["dataset"]["size"] != 300]
    elif without == "baseline":
        few = [run for run in few if run.method != "stl"]
    else:
        for run in few:
            options = run.spec["dataset"]
            run.spec["dataset"] = {} if without == "options" else {**options, "size": f"size {options['size']}"}
    assert not drawn(few)


def test_draws_of_the_same_data_are_no_course(few: list[RunRecord]) -> None:
    assert len(drawn(few)) == 1
    for run in few:
        run.spec["dataset"]["seed"] = run.spec["dataset"].pop("size")
    assert not drawn(few)
