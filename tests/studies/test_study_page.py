"""docs/study.md: every number of its answer and its tables stands in the tables of the results that it cites."""

from __future__ import annotations

import csv
import re
import statistics
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import standing_study as program

Rows = list[dict[str, str]]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/study.md").read_text(encoding="utf-8").replace("−", "-")
RESULTS = ROOT / re.findall(r"\(\.\./(results/[\d-]+)/README\.md\)", PAGE)[0]
TABLES = (RESULTS / "README.md").read_text(encoding="utf-8").replace("−", "-")
ANSWER = PAGE.partition("\n## ")[0].partition("\n\n![")[0].partition("\n\n")[2]
FLOORS = ("constant", "linear", "forest", "boosting")
FIRST = "results/2026-11-24"  # the first edition
WORDS = dict(zip(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), range(2, 11), strict=True))
# Claim of a paper -> the methods that stand for it, in the order of the cell.
CLAIMS = {
    "GetMTL is better than equal weighting": ["getmtl"],
    "GetMTL as its authors released it": ["getmtl_released"],
    "SVD re-weighting is better than equal weights (information transfer)": ["svd_reweighting"],
    "noticing conflicts decides where to share (CoNAL)": ["conflict_noticed"],
    "MGDA is better than equal weights (baseline of GetMTL and AAMTRL)": ["mgda"],
    "PCGrad, CAGrad (baselines of the thesis)": ["pcgrad", "cagrad"],
    "uncertainty weights, GradNorm (baselines of all five)": ["uncertainty", "gradnorm"],
    "tasks gain by sharing (all five)": ["stl"],
}


def table_of(text: str, heading: str, number: int = 0) -> Rows:
    """Return the rows of a table below a heading, as column -> cell."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in blocks[number].splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


TREES = "Trees beside the best row"
METHODS = {row["method"]: row for row in table_of(TABLES, "Methods")}
SUITES = table_of(TABLES, "Suites")


def same(shown: str, source: str) -> bool:
    """Return whether both round the same number."""
    if not re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", source):
        return shown.replace("`", "") == source
    digits = [text.replace(",", "").partition(".")[2] for text in (shown, source)]
    room = sum(0.5 * 10.0 ** -len(decimals) for decimals in digits)
    return abs(float(shown.replace(",", "")) - float(source)) <= room * (1 + 1e-9)


def check_same(shown: Rows, source: Rows, columns: dict[str, str]) -> None:
    assert len(shown) == len(source)
    for ours, theirs in zip(shown, source, strict=True):
        for column, of in columns.items():
            assert same(ours[column], theirs[of]), (ours, column, theirs[of])


def number(pattern: str, text: str = ANSWER) -> float:
    """Return the number, or its word, in the group of a pattern that the text has once."""
    (found,) = re.findall(pattern, re.sub(r"\s+", " ", text))
    return float(WORDS.get(found, found.replace(",", "") if isinstance(found, str) else found))


def test_the_table_of_suites_is_that_of_the_results() -> None:
    columns = {name: name for name in ("suite", "tasks", "metric", "equal - stl", "linear - stl", "better", "worse")}
    renamed = {"best method": "best", "shows": "detectable", "seeds": "seeds for 1 point"}
    check_same(table_of(PAGE, "By suite"), SUITES, columns | renamed)


def test_trees_stand_beside_the_best_row_as_in_the_results() -> None:
    shown, source = (table_of(text, TREES) for text in (PAGE, TABLES))
    check_same(shown, source, {column: column for column in source[0]})


def test_both_forms_are_those_of_the_results() -> None:
    shown, source = (table_of(text, "Both forms of a gradient") for text in (PAGE, TABLES))
    check_same(shown, source, {column: column for column in source[0]})


def test_the_tables_by_kind_are_those_of_the_results() -> None:
    kinds = table_of(TABLES, "By kind of method")
    for row in table_of(PAGE, "By kind of method"):
        for kind in kinds:
            assert same(row[kind["kind (median over methods)"]], kind[row["suite"]]), (row, kind)
    names = {kind["kind (median over methods)"]: kind["kind (median over methods)"] for kind in kinds}
    shown, source = table_of(PAGE, "When balancing helps"), table_of(TABLES, "When balancing helps", 1)
    check_same(shown, source, names | {"trait of a suite": "trait of a suite"})
    p_values = [float(p) for row in source for p in re.findall(r"p ([\d.e-]+)", " ".join(row.values()))]
    low, every = sum(p < 0.05 for p in p_values), len(p_values)
    assert (number(r"p-values (\d+) are below 0.05", PAGE), number(r"of (\d+) p-values", PAGE)) == (low, every)


def test_what_the_study_says_of_a_claim_is_the_row_of_its_methods() -> None:
    shown = table_of(PAGE, "What the papers claim")
    assert {row["claim"] for row in shown} == CLAIMS.keys()
    pattern = rf"(\S+) ± (\S+) points; better on (\d+), worse on (\d+) of {len(SUITES)} suites; P same (\d+\.\d+)"
    for row in shown:
        found = re.findall(pattern, row["what the study finds"])
        columns = ("gain", "± suites", "better", "worse", "P same")
        for values, method in zip(found, CLAIMS[row["claim"]], strict=True):
            source = METHODS[method]
            assert all(map(same, values, (source[column] for column in columns))), (row, source)
            if "below 0.05" in row["how sure"]:
                assert float(source["P better"]) < 0.05


def test_the_answer_follows_from_the_tables() -> None:
    experiment = yaml.safe_load((RESULTS / "experiment.yaml").read_text(encoding="utf-8"))
    assert ANSWER.startswith("**None is shown to") and not any(row["win"] for row in METHODS.values())
    assert number(r"On (\d+) suites") == len(SUITES)
    assert number(r"with (\w+) seeds") == len(experiment["seeds"])
    assert number(r"(\w+) trials for every row") == experiment["search"]["budget"]
    assert number(r"none of (\d+) methods") == len(METHODS)
    sharing = sum(row["kind"] == "sharing" for row in METHODS.values()) - 1  # single networks share nothing
    assert number(r"(\w+) ways of sharing") == sharing
    assert number(r"\((\d+) balancers and wrappers") == len(METHODS) - sharing - 1

    cells = [cell for row in table_of(TABLES, "Gains") for name, cell in row.items() if name != "method"]
    assert number(r"Of ([\d,]+) pairs") == sum(cell != "–" for cell in cells)
    assert number(r"finds (\d+) better") == sum(int(row["better"]) for row in SUITES)
    assert number(r"better and (\d+) worse") == sum(int(row["worse"]) for row in SUITES)
    assert number(r"on (\w+) suites ten seeds can show") == sum(float(row["detectable"]) <= 1 for row in SUITES)
    hopeful = {method for method, row in METHODS.items() if float(row["P better"]) >= 0.05}
    assert number(r"For (\d+) methods the probability") == len(METHODS) - len(hopeful)
    assert number(r"the other (\w+) \(") == len(hopeful)
    (named,) = re.findall(r"the other \w+ \(([^)]*)\)", re.sub(r"\s+", " ", ANSWER))
    assert set(named.replace("single networks", "`stl`").replace("`", "").split(", ")) == hopeful

    (named,) = re.findall(r"noisy estimates of all gradients \(([^)]*)\)", re.sub(r"\s+", " ", ANSWER))
    worst = sorted(METHODS, key=lambda method: -int(METHODS[method]["worse"]))[:8]
    assert set(named.replace("`", "").split(", ")) <= set(worst)


def test_what_the_answer_says_of_floors_and_cheap_forms_follows_from_the_tables() -> None:
    trees = table_of(TABLES, TREES)
    assert number(r"of the (\d+) suites that have them") == len(trees)
    sides = [{floor: side_of(row, floor) for floor in ("forest", "boosting")} for row in trees]
    ahead = [row["suite"] for row, side in zip(trees, sides, strict=True) if 1 in side.values()]
    behind = [row["suite"] for row, side in zip(trees, sides, strict=True) if set(side.values()) <= {-1}]
    assert number(r"beat the best row on (\w+) of the") == len(ahead)
    (named,) = re.findall(r"of the \d+ suites that have them \(([^)]*)\)", re.sub(r"\s+", " ", ANSWER))
    assert named.partition(";")[0].replace("`", "").split(", ") == ahead
    assert number(r"both are behind on (\w+)") == len(behind)

    mean = table_of(TABLES, "Both forms of a gradient")[-1]
    gain, half, ratio = re.findall(
        r"differs by (\S+) ± (\S+) points from the exact one, at (\S+) of", re.sub(r"\s+", " ", ANSWER)
    )[0]
    assert same(gain, mean["cheap - exact"]) and same(half, mean["± suites"])
    assert same(ratio, mean["step, cheap / exact"])


def test_what_the_answer_says_of_linear_models_and_the_ensemble_follows_from_the_runs() -> None:
    ahead: dict[str, list[str]] = {floor: [] for floor in FLOORS}
    metrics = {row["suite"]: row["metric"] for row in SUITES}
    for suite, metric in metrics.items():
        runs = pd.read_csv(RESULTS / f"runs_{suite}.csv")
        scores = runs.set_index("method").iloc[:, list(runs.columns).index("parameters") :]
        means = scores.mean(axis=1).groupby(level=0).mean() * (-1 if metric == "rmse" else 1)
        best = means.drop(index=[floor for floor in FLOORS if floor in means]).max()
        for floor in FLOORS:
            ahead[floor] += [suite] if floor in means and means[floor] > best else []
    assert number(r"than the best row on (\w+) of") == len(ahead["linear"])
    (named,) = re.findall(r"better mean than the best row on \w+ of \d+ \(([^)]*)\)", re.sub(r"\s+", " ", ANSWER))
    assert named.replace("`", "").split(", ") == ahead["linear"] and ahead["constant"] == ["parkinsons"]
    above = sum(float(row["ensemble - stl"]) > float(row["equal - stl"]) for row in SUITES)
    assert number(r"is above `equal` on (\d+) of") == above


def test_what_the_answer_says_of_scatter_follows_from_the_tables() -> None:
    (named,) = re.findall(r"On seven suites \(([^)]*)\) gains scatter", re.sub(r"\s+", " ", ANSWER))
    spreads = {row["suite"]: float(row["σ of gains"]) for row in SUITES}
    wide = sorted((suite for suite in spreads if spreads[suite] > 3), key=lambda suite: -spreads[suite])
    assert sorted(named.replace("`", "").split(", ")) == sorted(wide) and len(wide) == 7
    assert number(r"scatter by (\d+) to") == round(min(spreads[suite] for suite in wide))
    assert number(r"scatter by \d+ to (\d+) points") == round(max(spreads.values()))
    gains = {row["method"]: row["atp7d"] for row in table_of(TABLES, "Gains") if row["atp7d"] != "–"}
    values = {method: float(cell.split()[0].rstrip("*")) for method, cell in gains.items()}
    assert number(r"On `atp7d`, (\d+) of") == sum(value > 0 for value in values.values())
    assert number(r"On `atp7d`, \d+ of (\d+) methods gain") == len(values)
    assert values["random_static"] >= statistics.median(values.values())


def side_of(row: dict[str, str], floor: str) -> int:
    """Return 1 where a floor is ahead of the best row by the wider interval that there is, −1 where behind, else 0."""
    if row[floor] == "–":
        return -1
    ahead = float(row[f"{floor} - best"])
    width = max(float(width) for name in ("seeds", "items") if (width := row[f"{floor}: ± {name}"]) != "–")
    return 0 if abs(ahead) <= width else 1 if ahead > 0 else -1


def test_the_counts_of_runs_and_trials_are_those_of_the_results() -> None:
    analysis = yaml.safe_load(program.ANALYSIS.read_text(encoding="utf-8"))
    budget = yaml.safe_load((RESULTS / "experiment.yaml").read_text(encoding="utf-8"))["search"]["budget"]
    runs = [row for path in sorted(RESULTS.glob("runs_*.csv")) for row in _rows(path)]
    trained = {(row["suite"], row["method"]) for row in runs if row["method"] not in analysis["untested"]}
    assert number(r"The ([\d,]+) runs and their searches", PAGE) == len(runs)
    assert number(r"their searches \(([\d,]+) trials\)", PAGE) == budget * len(trained)


def _rows(path: Path) -> Rows:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_levels_near_those_of_papers_stand_in_the_tables_that_are_cited() -> None:
    for row in table_of(PAGE, "How far from published levels"):
        (path,) = re.findall(r"\]\(\.\./(.*?)\)", row["table"])
        cited = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\| {re.escape(row['ours, equal'].removesuffix(' (one seed)'))} \|", cited), row


@pytest.mark.slow
def test_the_tables_of_the_results_follow_from_their_records(capsys: pytest.CaptureFixture[str]) -> None:
    analysis = yaml.safe_load(program.ANALYSIS.read_text(encoding="utf-8"))
    records = program.records_of_results(RESULTS)
    experiment = program.load_experiment(RESULTS / program.EXPERIMENT)
    study = program.study_of(records, analysis, program.planned(experiment))
    written = program.tables(study).replace("−", "-").split("\n## ")
    of_records = (TREES, "By kind of method", "Gains")  # others also need times of steps alone, and ensembles
    kept = [part for part in written if part.startswith(of_records)]
    assert len(kept) == len(of_records) and all(part.rstrip() in TABLES for part in kept)
    boards = int(number(r"Of ([\d,]+) such boards", PAGE))
    assert program.null(study, boards) == 0
    assert number(r"any ([\d.]+);", capsys.readouterr().out) * boards == number(
        r"boards of these runs, (\d+) had", PAGE
    )
