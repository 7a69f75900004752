"""The first screen fits 80 columns, whatever the records are, and has no traceback."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from mtlscale.records import RunRecord
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.first_screen import definitions
from mtlscale.report.tables.takeaway import takeaway

Record = Callable[..., RunRecord]
NOISE = np.array([0.0, 0.4, -0.3, 0.2, -0.3])


def screen(board: Leaderboard, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(board.to_rich())
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def board_of(record: Record, runs: dict[str, Sequence[float]], metric: str = "accuracy") -> Leaderboard:
    return Leaderboard.from_records(
        [
            record(method, seed, {"a": {metric: float(value)}})
            for method, of in runs.items()
            for seed, value in enumerate(of)
        ]
    )


def test_a_table_the_conclusion_and_two_lines_of_definitions(record: Record) -> None:
    equal = 80.0 + NOISE
    board = board_of(
        record, {"equal": equal, "stl": equal + 0.1 + NOISE[::-1], "good": equal + 2.0 + 0.1 * NOISE[::-1]}
    )
    lines = screen(board, 140)
    assert lines[0] == "Test accuracy in % on digits (5 seeds)"
    assert lines[1].split() == ["method", "average", "Δ", "%", "vs", "equal", "p", "runs"]
    assert [line.split()[0] for line in lines[3:6]] == ["good", "stl", "equal"]
    good, stl, reference = (line.split() for line in lines[3:6])
    assert good[1:4] == ["82.00", "±", "0.41"] and "better" in good and good[-1] == "5/5"
    assert reference[-3:] == ["–", "–", "5/5"] and stl[5:7] == ["cannot", "tell"]
    assert " ".join(line.strip() for line in lines[6:-3]).startswith(takeaway(board.tables["digits"])[:40])
    assert tuple(lines[-2:]) == definitions(board.tables.values())
    assert lines[-2] == "±: half the 95 % interval over seeds. Δ: mean gain over stl, in %."
    assert lines[-1] == "vs, p: paired t-tests, Holm-corrected, level 0.045. See docs/leaderboard.md"


def test_long_names_take_lines_of_their_own(record: Record) -> None:
    name = "a_method_whose_name_is_longer_than_all_that_a_table_of_eighty_columns_holds"
    lines = screen(board_of(record, {"equal": 80.0 + NOISE, name: 81.0 - NOISE, "short": 80.5 + NOISE[::-1]}))
    assert max(map(cell_len, lines)) <= 80 and name in lines
    assert [line.split()[0] for line in lines if line.startswith("short")] == ["short"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_metrics_that_are_all_nan(record: Record, seeds: int) -> None:
    nan = [float("nan")] * seeds
    lines = screen(board_of(record, {"stl": nan, "equal": nan, "mine": nan}))
    assert "On digits, no run has reported a metric." in lines
    assert {line.split()[0] for line in lines if line} >= {"stl", "equal", "mine"}


def test_one_seed_has_no_interval_and_no_test(record: Record) -> None:
    lines = screen(board_of(record, {"stl": [80.0], "equal": [81.0], "mine": [82.0]}))
    assert not any("±" in line for line in lines[:-2]) and "not tested against equal" in " ".join(lines)


def test_two_labels_of_one_run_are_not_told_apart(record: Record) -> None:
    equal = 80.0 + NOISE
    runs = [record("equal", seed, {"a": {"accuracy": float(value)}}) for seed, value in enumerate(equal)]
    again = [run.model_copy(update={"method": "again"}) for run in runs]
    worse = [
        record("worse", seed, {"a": {"accuracy": float(value) - 3}}) for seed, value in enumerate(equal + NOISE**3)
    ]
    board = Leaderboard.from_records([*again, *runs, *worse])
    assert board.tables["digits"].repeats == ("again",)
    text = " ".join(screen(board))
    assert "equal, which is best by average" in text and "again is best" not in text


def test_a_data_set_whose_runs_all_failed(record: Record) -> None:
    cause = "mine.py:9: ValueError: " + "no luck today, " * 20 + "\nsecond line"
    fields = {"main_metrics": {}, "higher_is_better": {}, "status": "failed", "error": cause}
    failed = [record(method, seed, {}, dataset="lost", **fields) for method in "abcde" for seed in range(3)]
    fine = [record("equal", seed, {"a": {"accuracy": 80.0 + seed}}) for seed in range(3)]
    for records in (failed, [*failed, *fine]):
        lines = screen(Leaderboard.from_records(records))
        text = " ".join(lines)
        assert max(map(cell_len, lines)) <= 80 and "second line" not in text
        assert "failed a, 3 runs: mine.py:9: ValueError: no luck today," in text and "(mtlscale show a-0)" in text
        assert "two more methods did not finish" in text and "0/3" in text
        assert "15 of 15 runs did not finish" in text


def test_a_failure_without_a_cause_says_so(record: Record) -> None:
    fine = [record("equal", seed, {"a": {"accuracy": 80.0 + seed}}) for seed in range(3)]
    fields = {"main_metrics": {}, "higher_is_better": {}}
    lost = record("mine", 0, {}, status="diverged", error=None, **fields)
    board = Leaderboard.from_records([*fine, lost, record("torn", 0, {}, status="failed", error="no luck", **fields)])
    assert any("diverged mine, seed 0: no cause recorded" in line for line in screen(board))
    assert "— no cause recorded" in board.to_markdown()


def test_unlike_metrics_have_no_average(record: Record) -> None:
    rng = np.random.default_rng(0)
    unlike = [
        record(method, seed, {"a": {"accuracy": 80.0 + rng.normal()}, "b": {"abs_err": 0.2 + 0.01 * rng.normal()}})
        for method in ("stl", "equal", "mine")
        for seed in range(3)
    ]
    with_base, without = screen(Leaderboard.from_records(unlike)), screen(Leaderboard.from_records(unlike[3:]))
    assert with_base[1].split()[:3] == ["method", "Δ", "%"] and any("±" in line for line in with_base[3:6])
    assert without[1].split()[:2] == ["method", "rank"]
