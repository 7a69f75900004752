"""Pictures and tables of what searches leave in the traces of their epochs and in a record's structure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_records import pictures_of

from mtlscale.records import Epoch, EpochFile, Home, Ledger, PhaseCost, RunRecord
from mtlscale.report import Leaderboard, write_report
from mtlscale.report.cells.number_format import count_text
from mtlscale.report.charts.chart import Bars, Dots, HeatMap, Line
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.charts.parameter_counts import parameter_chart, sized
from mtlscale.report.sections.figures import file_charts
from mtlscale.report.sections.method_tables import method_tables
from mtlscale.report.stats.curves import epoch_frame, traced
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.stats.traces import shortened, trace_values
from mtlscale.report.structures.affinities import affinities, affinity_chart
from mtlscale.report.structures.branching import branch_curves, branching_chart
from mtlscale.report.structures.conflicts import conflict_chart, conflict_ratios, conflict_texts
from mtlscale.report.structures.gates import gate_chart
from mtlscale.report.structures.searched import structure_charts
from mtlscale.report.tables.published import PublishedTable

Make = Callable[..., RunRecord]
TASKS = ("a", "b")


def epochs(phase: str, *traces: dict[str, Any]) -> list[Epoch]:
    return [
        Epoch(epoch=number, train_loss=dict.fromkeys(TASKS, 1.0), seconds=0.1, phase=phase, traces=of)
        for number, of in enumerate(traces, 1)
    ]


def run(record: Make, method: str, seed: int, done: list[Epoch], **fields: Any) -> RunRecord:
    test = {task: {"accuracy": 90.0 + seed} for task in TASKS}
    return record(method, seed, test, epochs=done, **fields)


def search(reused: bool = False) -> PhaseCost:
    return PhaseCost(name="search", phase_id="x", epochs=2, steps=4, seconds=3.0, reused=reused)


def test_epochs_count_over_all_phases_whoever_trained_them(record: Make) -> None:
    """A run that reuses a search goes on where the search ended, as the run that did it."""
    own, last = epochs("search", {"tau": 2.0}, {"tau": 1.0}), epochs("retrain", {}, {})
    runs = [
        run(record, "ltb", 0, [*own, *last], phases=[search()]),
        run(record, "ltb", 1, last, phases=[search(reused=True)]),
    ]
    losses = epoch_frame(runs, ["ltb"])
    places = losses[losses["task"] == "a"].groupby("seed")["epoch"].agg(list)
    assert places.to_dict() == {0: [1, 2, 3, 4], 1: [3, 4]}
    assert traced(runs) == ["tau"]  # though the last epochs have none
    table = Leaderboard.from_records(runs).tables["digits"]
    [chart] = [chart for chart in file_charts(table, runs, line_styles(["ltb"])) if chart.file == "trace_tau"]
    [line] = chart.panels[0].of(Line)
    assert (list(line.x), list(line.y)) == ([1, 2], [2.0, 1.0])


def test_traces_of_any_form_are_rows(record: Make) -> None:
    traces = {"list": [0.5, 0.25], "dict": {"a": 1.0}, "lists": {"b": [0.1, 0.9]}, "matrix": [[1.0]], "text": "x"}
    made = [run(record, "m", 0, epochs("", traces))]
    rows = {name: trace_values(made, name)[["task", "place", "value"]].values.tolist() for name in traces}
    assert rows == {
        "list": [["", 1, 0.5], ["", 2, 0.25]],
        "dict": [["a", 0, 1.0]],
        "lists": [["b", 1, 0.1], ["b", 2, 0.9]],
        "matrix": [],
        "text": [],
    }


def test_branch_points_have_a_panel_per_task_and_a_line_each(record: Make) -> None:
    steps = [
        {"branching": {"a": [0.5, 0.3, 0.2], "b": [0.2, 0.2, 0.6]}},
        {"branching": {"a": [0.9, 0.1, 0.0], "b": [0.0, 0.4, 0.6]}},
    ]
    moved = [
        {"branching": {"a": [0.5, 0.3, 0.2], "b": [0.2, 0.2, 0.6]}},
        {"branching": {"a": [0.7, 0.1, 0.2], "b": [0.0, 0.4, 0.6]}},
    ]
    rows = trace_values(
        [run(record, "conal", 0, epochs("search", *steps)), run(record, "conal", 1, epochs("search", *moved))],
        "branching",
    )
    np.testing.assert_allclose(branch_curves(rows)["a"], [[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]])
    chart = branching_chart(rows, "conal")
    assert [panel.title for panel in chart.panels] == ["a → 1", "b → 3"]
    assert chart.legend_names == ["branch point 1", "branch point 2", "branch point 3"]
    for panel, task in zip(chart.panels, TASKS, strict=True):
        for point, line in enumerate(panel.of(Line), 1):
            assert list(line.y) == pytest.approx(branch_curves(rows)[task][point].tolist())


def test_gates_are_bars_of_the_last_values_and_curves(record: Make) -> None:
    made = [
        run(record, "dsmtl", seed, epochs("public", {"gates": {"a": 0.5, "b": 0.5}}, {"gates": {"a": last, "b": 0.25}}))
        for seed, last in enumerate((0.75, 0.25))
    ]
    rows = trace_values(made, "gates")
    last, curves = gate_chart(rows, "gates").panels
    [bars], [dots] = last.of(Bars), last.of(Dots)
    assert (list(bars.at), list(bars.length)) == (["a", "b"], [0.5, 0.25]) and last.x.names == ["a", "b"]
    assert sorted(dots.y) == [0.25, 0.25, 0.25, 0.75]
    assert [list(line.y) for line in curves.of(Line)] == [[0.5, 0.5], [0.5, 0.25]]


def test_sharing_begins_anew_with_every_phase(record: Make) -> None:
    stages = [*epochs("stage1", {"sharing": {"a": 0.5, "b": 0.5}}, {"sharing": {"a": 0.9, "b": 0.1}})]
    stages += epochs("stage2", {"sharing": {"b": 0.5}}, {"sharing": {"b": 0.2}})
    phases = [PhaseCost(name=f"stage{n}", phase_id=str(n), epochs=2, steps=1, seconds=1.0) for n in (1, 2)]
    rows = trace_values([run(record, "conal_pro", 0, stages, phases=phases)], "sharing")
    last, curves = gate_chart(rows, "sharing").panels
    assert list(last.of(Bars)[0].length) == [0.9, 0.2]
    np.testing.assert_array_equal(curves.of(Line)[1].y, [0.5, 0.1, np.nan, 0.5, 0.2])


def conflicting(record: Make) -> list[RunRecord]:
    ratios = {("equal", 0): (0.6, 0.5), ("equal", 1): (0.4, 0.3), ("conal", 0): (0.2, 0.1)}
    return [
        run(
            record,
            method,
            seed,
            epochs("" if method == "equal" else "search", *({"conflict_ratio": [of, of / 2]} for of in pair)),
        )
        for (method, seed), pair in ratios.items()
    ]


def test_conflicts_are_means_over_the_epochs_and_the_last_one_in_percent(record: Make) -> None:
    ratios = conflict_ratios(trace_values(conflicting(record), "conflict_ratio"))
    found = ratios.set_index(["name", "when", "module"])["mean"].sort_index()
    assert found["equal", "mean"].to_dict() == pytest.approx({0: 33.75, 1: 45.0, 2: 22.5})
    assert found["equal", "last"].to_dict() == pytest.approx({0: 30.0, 1: 40.0, 2: 20.0})
    assert found["conal, search", "mean"].to_dict() == pytest.approx({0: 11.25, 1: 15.0, 2: 7.5})
    header, rows = conflict_texts(ratios)
    assert header == ["method", "over", "module 1", "module 2", "all"]
    assert rows[0] == ["equal", "mean over the epochs", "45.00", "22.50", "33.75"]  # two seeds
    assert rows[3] == ["conal, search", "last epoch", "10.00", "5.00", "7.50"]


def test_conflicts_stand_side_by_side(record: Make) -> None:
    ratios = conflict_ratios(trace_values(conflicting(record), "conflict_ratio"))
    [panel] = conflict_chart(ratios).panels
    assert [bars.name for bars in panel.of(Bars)] == ["equal", "conal, search"]
    assert [list(bars.length) for bars in panel.of(Bars)] == [pytest.approx([45.0, 22.5]), pytest.approx([15.0, 7.5])]
    _, dashes = panel.of(Dots)
    assert list(dashes.y) == pytest.approx([10.0, 5.0])
    ends = [(bars.offset, bars.offset + bars.width) for bars in panel.of(Bars)]
    assert -0.5 < ends[0][0] < ends[0][1] <= ends[1][0] < ends[1][1] < 0.5


def test_affinities_are_means_with_the_tasks_names(record: Make) -> None:
    """As they were last, for each the mean of all so far; None is one that was not measured."""
    first, last, other = [[9.0, 9.0], [9.0, 9.0]], [[0.5, -0.1], [0.2, None]], [[0.5, -0.3], [0.4, None]]
    made = [run(record, "equal", 0, epochs("", {}))]
    for seed, of in enumerate((last, other)):
        done = [*epochs("affinity", {"affinity": first}, {"affinity": of}), *epochs("train", {})]
        made.append(run(record, "tag", seed, done, structure={"tasks": ["x", "y"]}))
    made.append(run(record, "odd", 0, epochs("", {"affinity": [[0.5], [0.1, 0.2]]})))
    [found] = affinities(made)
    np.testing.assert_allclose(found.values, [[0.5, -0.2], [0.3, np.nan]])
    assert found.tasks == ("x", "y") and found.scale == pytest.approx(0.3)
    [panel] = affinity_chart(found).panels
    [heat] = panel.of(HeatMap)
    np.testing.assert_allclose(heat.values, [[np.nan, -0.2], [0.3, np.nan]])
    assert panel.y.names == ("x", "y") and panel.y.reverse
    assert heat.texts == [["+5.0", "−2.0"], ["+3.0", ""]]
    board = Leaderboard.from_records(made)
    assert [name for name, _ in pictures_of(made, board)].count("affinity_tag") == 1
    assert "heatmap_affinity" not in dict(pictures_of(made, board))


def test_tables_of_tables_are_no_heat_maps(record: Make) -> None:
    """The choices of LTB, stage by stage."""
    made = [run(record, "ltb", 0, epochs("search", {"routing": [[[0.5, 0.5], [0.1, 0.9]]] * 3}))]
    assert [name for name, _ in pictures_of(made, Leaderboard.from_records(made))] == ["loss_variance"]


def test_closed_gates_are_counted_by_task(record: Make) -> None:
    """The last epoch says."""
    kept = ({"a": 0, "b": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 1})
    made = [
        run(record, "dsmtl_il", seed, epochs("public", {"kept": kept[1]}, {"kept": of})) for seed, of in enumerate(kept)
    ]
    [closed] = method_tables(made)
    assert closed.texts == (("dsmtl_il", "a (3 of 3), b (1 of 3)"),)
    opened = [run(record, "dsmtl_il", 0, epochs("public", {"kept": {"a": 1, "b": 1}}))]
    assert method_tables(opened)[0].texts == (("dsmtl_il", "none"),)


def sizes(record: Make) -> list[RunRecord]:
    methods = {
        "stl": (90.0, 4_000_000),
        "equal": (91.0, 1_000_000),
        "mgda": (89.0, 1_000_000),
        "conal": (92.0, 2_000_000),
    }
    made = [
        record(method, seed, {"a": {"accuracy": accuracy + seed}}, parameters=parameters, epochs=[])
        for method, (accuracy, parameters) in methods.items()
        for seed in range(2)
    ]
    return [*made, record("constant", 0, {"a": {"accuracy": 10.0}}, parameters=5, epochs=[])]


def test_parameters_stand_against_the_gain(record: Make) -> None:
    table = Leaderboard.from_records(sizes(record)).tables["digits"]
    points = sized(table)
    assert points["front"].to_dict() == {"conal": True, "equal": True, "stl": False, "mgda": False}
    assert points["parameters"].to_dict() == {"conal": 2e6, "equal": 1e6, "stl": 4e6, "mgda": 1e6}
    pd_gain = points["gain"].to_dict()
    assert pd_gain["conal"] == pytest.approx(100 * (2 / 90 + 2 / 91) / 2) and pd_gain["stl"] == 0.0
    [panel] = parameter_chart(table, line_styles(list(points.index))).panels
    [front], [dots] = panel.of(Line), panel.of(Dots)
    assert panel.x.log and list(front.x) == [1e6, 2e6]
    assert dict(zip(dots.names, zip(dots.x, dots.y, strict=True), strict=True))["equal"] == (1e6, pd_gain["equal"])
    assert dict(zip(dots.names, dots.size, strict=True)) == {"conal": 7, "equal": 9, "stl": 9, "mgda": 7}
    assert dict(zip(dots.names, dots.notes, strict=True)) == {
        "conal": "",
        "equal": " (reference)",
        "stl": " (baseline)",
        "mgda": "",
    }


def test_networks_of_one_size_are_not_drawn(record: Make) -> None:
    made = [record(method, 0, {"a": {"accuracy": 90.0}}, epochs=[]) for method in ("stl", "equal")]
    board = Leaderboard.from_records(made)
    assert sized(board.tables["digits"]).empty and "parameters" not in dict(pictures_of(made, board))


def test_of_many_methods_the_best_and_those_of_the_front_are_drawn(record: Make) -> None:
    made = [
        record(f"m{place}", 0, {"a": {"accuracy": 99.0 - place}}, parameters=1000 - place % 2, epochs=[])
        for place in range(50)
    ]
    made += [record("stl", 0, {"a": {"accuracy": 40.0}}, parameters=2000, epochs=[])]
    made += [record("tiny", 0, {"a": {"accuracy": 30.0}}, parameters=10, epochs=[])]
    points = sized(Leaderboard.from_records(made).tables["digits"])
    assert list(points.index) == [*(f"m{place}" for place in range(30)), "stl", "tiny"]
    assert list(points.index[points["front"]]) == ["m0", "m1", "tiny"]


def test_the_front_has_what_nothing_is_better_than() -> None:
    found = pareto(np.array([1.0, 1.0, 2.0, 3.0, 1.0]), np.array([1.0, 2.0, 2.0, 3.0, 2.0]))
    assert found.tolist() == [False, True, False, True, True]  # equals are on it together


def test_numbers_and_names_are_short() -> None:
    assert [count_text(value) for value in (12, 1_500, 12_340_000, 2e9)] == ["12", "1.5 k", "12.3 M", "2 G"]
    assert shortened("Receding_Hairline") == "Receding…airline" and shortened("Bald") == "Bald"


def test_edges_and_branch_points_are_tables_with_the_seeds_that_agree(record: Make) -> None:
    edges = [["a", 1, "b", 2, 0.9], [1, 2, 0, 3, 0.6]]
    made = [
        run(record, "mtl_nas", seed, [], structure={"edges": edges[: 2 - seed], "tasks": list(TASKS)})
        for seed in range(2)
    ]
    made += [
        run(record, "dsmtl", seed, [], structure={"points": {"a": 1, "b": point}})
        for seed, point in enumerate((3, 3, 1))
    ]
    points, kept = method_tables(made)
    assert points.texts == (("dsmtl", "2 of 3", "1: a; 3: b"), ("dsmtl", "1 of 3", "1: a, b"))
    assert kept.texts == (
        ("mtl_nas", "a, stage 1", "b, stage 2", "0.90", "2 of 2"),
        ("mtl_nas", "b, stage 2", "a, stage 3", "0.60", "1 of 2"),
    )
    assert method_tables([run(record, "equal", 0, epochs("", {}))]) == []


def test_branch_points_of_a_found_tree_stand_beside_the_published_ones(record: Make) -> None:
    structure = {"tree": [[0, 0], [0, 0], [0, 1]], "tasks": list(TASKS)}
    found = run(record, "conal", 0, [], structure=structure, phases=[search()])
    given = run(record, "branched", 0, [], structure=structure)
    printed = {"name": "C", "score": 1, "points": {"a": 2, "b": 4}}
    table = PublishedTable.model_validate({"source": "a thesis", "dataset": "d", "methods": {"conal": printed}})
    [points] = method_tables([found, given], [table])
    assert points.texts == (("conal", "1 of 1", "3: a, b"), ("conal, as published", "a thesis", "2: a; 4: b"))
    assert method_tables([given], [table]) == []


def everything(record: Make) -> list[RunRecord]:
    traces = {
        "branching": {"a": [0.5, 0.5], "b": [0.1, 0.9]},
        "gates": {"a": 0.4, "b": 0.6},
        "task_weights": {"a": 0.9, "b": 1.1},
        "sharing": {"a": 0.4, "b": 0.6},
        "conflict_ratio": [0.5],
        "affinity": [[1.0, 0.0], [0.0, 1.0]],
    }
    structure = {"tree": [[0, 1]], "tasks": list(TASKS), "edges": [["a", 1, "b", 2, 0.9]], "points": {"a": 1, "b": 2}}
    made = [run(record, "stl", 0, [], parameters=500)]
    made.append(run(record, "all of it", 0, epochs("search", traces), structure=structure, phases=[search()]))
    return [*made, run(record, "all/of it", 0, epochs("search", traces))]


def test_the_report_shows_all_of_it_where_it_is_and_nothing_elsewhere(record: Make, tmp_path: Path) -> None:
    """Through the ledger, whose rows have no epochs."""
    ledger, home = Ledger(tmp_path / "ledger.jsonl"), Home(tmp_path)
    for made in everything(record):
        ledger.append(made)
        EpochFile(home.run(made.run_id)).take(made.epochs)
    files = write_report(list(ledger), tmp_path, "test", epochs=home.epochs)
    new = {
        *(
            "tree_all_of_it",
            "branching_all_of_it",
            "branching_all_of_it~2",
            "affinity_all_of_it",
            "affinity_all_of_it~2",
        ),
        *("gates", "task_weights", "sharing", "conflict_ratio", "parameters"),
    }
    assert new <= set(files) and all(files[name].read_bytes().startswith(b"\x89PNG") for name in new)
    page, text = files["html"].read_text(), files["markdown"].read_text()
    for title in (
        *(
            "Learned tree, all of it",
            "Branch points, all of it",
            "Affinity, all of it",
            "Gate α",
            "Learned task weight",
        ),
        *("Probability of sharing", "Conflict ratio by module", "Quality and parameters"),
    ):
        assert f'aria-label="{title}' in page
    for heading in ("### Conflict ratio by module", "### Branch points", "### Edges between tasks"):
        assert heading in text
    assert "<b>Edges between tasks</b>" in page
    plain = [run(record, "equal", 0, epochs("", {"R_mean": 0.5}))]
    assert list(structure_charts(Leaderboard.from_records(plain).tables["digits"], plain, {})) == []
