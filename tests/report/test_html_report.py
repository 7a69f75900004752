import base64
import gzip
import json
import math
from html.parser import HTMLParser

import pytest
from report_records import page

from mtlscale.report import Leaderboard, write_report
from mtlscale.report.cells.blocks import MOST_COLUMNS, by_block, split
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.columns.shown import columns
from mtlscale.report.sections.tables import names_of

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, texts by enclosing element, scripts; fails on tags that don't match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.scripts, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def figures(self):
        sources = [attrs for tag, attrs in self.elements if tag == "script" and "data-for" in attrs]
        data = [json.loads(script) for script in self.scripts if script.startswith('{"config"')]
        return dict(zip([source["data-for"] for source in sources], data, strict=True))


@pytest.fixture(scope="module")
def written(board_records):
    return Page(page(board_records, Leaderboard.from_records(board_records), "quick <start>"))


def test_the_page_fetches_nothing(written):
    for tag, attributes in written.elements:
        for name in ("src", "href", "action", "srcset", "data"):
            assert not (attributes.get(name) or "#").startswith(("http:", "https:", "//")), (tag, attributes)
        assert tag not in ("link", "iframe", "img")
    assert "@import" not in "".join(written.words)


def test_it_holds_the_tables_the_failures_and_where_they_come_from(written):
    assert "quick <start>" in written.text
    for words in (
        "getmtl is best by Δ",
        "11 of 13 runs finished",
        "loss is NaN",
        "worker died",
        "torch 2.13.0",
        "abc1234",
    ):
        assert words in written.text
    assert "balancer: name: getmtl" in written.text  # the spec as YAML


def test_cells_carry_what_sorting_goes_by(written):
    cells = [attributes for tag, attributes in written.elements if tag == "td"]
    keys = [cell["data-key"] for cell in cells if "words" not in cell.get("class", "")]
    assert any(key == "" for key in keys)
    assert all(key == "" or math.isfinite(float(key)) for key in keys)


def test_a_first_click_shows_the_best_first(written):
    heads = {}
    for tag, attributes in written.elements:
        if tag == "th" and "data-first" in attributes:
            last = attributes
        elif tag == "button" and "data-help" in attributes:
            heads[attributes["data-help"]] = last
    first = {help: head["data-first"] for help, head in heads.items()}
    assert first["gain over stl: mean within each task, then over tasks"] == "descending"
    assert first["mean over tasks of the rank by the main metric"] == "ascending"
    assert first["two-sided p-value of that test, Holm-corrected over all methods"] == "ascending"
    assert first["training samples per second of steps"] == "descending" and first["peak memory"] == "ascending"
    now = {head["aria-sort"] for head in heads.values() if "aria-sort" in head}
    assert now == {"descending"}  # as the rows stand


def test_what_matters_stands_first_and_the_rest_is_folded(board_records):
    html = page(board_records, Leaderboard.from_records(board_records), "folded")
    folds = html.index("<details")
    assert html.index("getmtl is best by Δ") < html.index("<table") < folds
    assert html.count("<table", 0, folds) == 1 and html.count('class="plot"', 0, folds) == 2
    assert html.index("loss is NaN") > folds and html.index("torch 2.13.0") > folds
    assert "Glossary" in html


def test_every_figure_says_in_words_what_it_shows(written):
    words = {
        attributes["id"]: attributes["aria-label"]
        for _, attributes in written.elements
        if attributes.get("role") == "img"
    }
    assert words.keys() == written.figures().keys()
    assert words["figure-0-0"].startswith(
        "Test accuracy. From high to low: getmtl 89.87, equal 87.33, stl 86, mgda 84.5"
    )
    [heat] = [text for text in words.values() if text.startswith("Difference to stl by task")]
    assert "4 rows by 2 columns: highest 3.867 (getmtl, a)" in heat


def test_methods_can_be_filtered_where_there_are_several(written, record):
    options = [attributes["value"] for tag, attributes in written.elements if tag == "option"]
    assert options == ["stl", "equal", "getmtl", "mgda"]
    named = {
        attributes["data-method"] for tag, attributes in written.elements if tag == "tr" and "data-method" in attributes
    }
    assert named == set(options)
    one = [record("equal", 0, {"a": {"accuracy": 90.0}})]
    assert 'id="filter"' not in page(one, Leaderboard.from_records(one), "small").split("<script")[0]


def test_only_differences_that_the_test_finds_are_coloured(record):
    accuracy = {
        "stl": (90.0, 90.0, 90.0),  # its interval does not reach equal's, but three seeds do not tell them apart
        "equal": (91.0, 93.0, 95.0),
        "up": (96.0, 98.1, 100.0),
        "down": (80.0, 82.0, 84.1),
    }
    runs = [
        record(method, seed, {"a": {"accuracy": value}})
        for method, values in accuracy.items()
        for seed, value in enumerate(values)
    ]
    parsed = Page(page(runs, Leaderboard.from_records(runs), "colours"))
    kinds = [attributes["class"] for tag, attributes in parsed.elements if tag == "td" and "class" in attributes]
    # average, Δ, last, e_rel, a; and the first two once more in the compact table
    assert [sum(kind.endswith(tone) for kind in kinds) for tone in ("gain", "loss")] == [7, 7]
    assert "significantly better than equal in this column; red: worse" in parsed.text


def test_heat_maps_are_blank_where_the_test_finds_nothing(record):
    accuracy = {"stl": (90.0, 90.5, 91.0), "noisy": (99.0, 80.0, 95.0), "up": (96.0, 96.5, 97.1)}
    runs = [record(m, seed, {"a": {"accuracy": v}}) for m, values in accuracy.items() for seed, v in enumerate(values)]
    gains, shown = Leaderboard.from_records(runs).tables["digits"].task_gains("stl")
    assert gains["a"].round(2).to_dict() == {"stl": 0.0, "noisy": 0.83, "up": 6.03}
    assert (shown["a"] != 0).to_dict() == {"stl": False, "noisy": False, "up": True}


def test_every_figure_has_its_place(written):
    places = {attributes["id"] for tag, attributes in written.elements if attributes.get("class") == "plot"}
    figures = written.figures()
    assert places == set(figures) and len(places) >= 6
    assert all(part["layer"] for figure in figures.values() for part in figure["concat"])


def test_vega_is_there_once_and_compressed(written):
    [packed] = [script for script in written.scripts if script.startswith("H4sI")]
    assert len(packed) < 500_000
    code = gzip.decompress(base64.b64decode(packed)).decode()
    assert code.startswith("(() => {") and code.endswith("})();") and "window.vegaEmbed=" in code[-200:]


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ style }}"]
)
def test_names_stay_text(record, name):
    runs = [
        record(
            method,
            seed,
            {name: {"accuracy": 90.0 + seed}, "b": {"accuracy": 80.0}},
            dataset=name,
            spec={"note": name},
            hardware=name,
            versions={name: name},
        )
        for method in ("stl", "equal", name)
        for seed in range(2)
    ]
    runs.append(record(name, 2, {}, dataset=name, status="failed", error=name, main_metrics={}))
    plain = [record(method, seed, {"a": {"accuracy": 90.0}}) for method in ("stl", "equal") for seed in range(2)]
    parsed = Page(page(runs, Leaderboard.from_records(runs), name))
    usual = Page(page(plain, Leaderboard.from_records(plain), "plain"))
    figures = parsed.figures()
    scripts = [tag for tag, _ in parsed.elements].count("script")
    assert scripts - len(figures) == [tag for tag, _ in usual.elements].count("script") - len(usual.figures())
    assert "img" not in {tag for tag, _ in parsed.elements}
    assert " ".join(name.split()) in parsed.text


def test_tasks_in_different_units_get_a_panel_each(record):
    runs = [
        record(method, seed, {"seg": {"mIoU": 50.0 + seed}, "depth": {"abs_err": 0.1}})
        for method in ("stl", "equal")
        for seed in range(2)
    ]
    parsed = Page(page(runs, Leaderboard.from_records(runs), "units"))
    parts = [part for figure in parsed.figures().values() for part in figure["concat"]]
    titles = [part["title"]["text"] for part in parts if "title" in part]
    assert {"seg mIoU", "depth abs_err"} <= set(titles)


def test_what_objectives_traced_is_drawn_but_not_their_lists(board_records, record):
    traces = {"A": 0.25, "weights": [0.5, 0.5]}
    epochs = [epoch.model_copy(update={"traces": traces}) for epoch in board_records[0].epochs]
    runs = [*board_records, record("aamtrl", 0, {"a": {"accuracy": 91.0}, "b": {"accuracy": 80.0}}, epochs=epochs)]
    figures = Page(page(runs, Leaderboard.from_records(runs), "traced")).figures()
    [traced] = [figure for figure in figures.values() if "R_mean" in json.dumps(figure)]
    assert [part["title"]["text"] for part in traced["concat"]] == ["R_mean", "A"]
    [line] = [layer for layer in traced["concat"][1]["layer"] if layer["mark"]["type"] == "line"]
    assert [row["y"] for row in line["data"]["values"] if row["name"] == "aamtrl"] == [0.25] * 3


def test_one_seed_and_no_epochs_make_a_page_too(record):
    run = record("equal", 0, {"a": {"accuracy": 90.0}}, epochs=[])
    parsed = Page(page([run], Leaderboard.from_records([run]), "small"))
    assert "equal is best by average (90)" in parsed.text


def test_write_report_leaves_whole_files_and_pictures_of_what_there_is(board_records, tmp_path):
    files = write_report(board_records, tmp_path / "reports", "quickstart")
    assert {what: file.name for what, file in files.items()} == {
        "markdown": "leaderboard.md",
        "csv": "leaderboard.csv",
        "html": "leaderboard.html",
        "png": "leaderboard.png",
        "weights": "weights.png",
        "loss_variance": "loss_variance.png",
        "trace_R_mean": "trace_R_mean.png",
    }
    written = {path for path in (tmp_path / "reports").rglob("*") if path.is_file()}
    assert written == set(files.values())
    assert files["weights"].parent == tmp_path / "reports" / "pictures"
    assert files["markdown"].read_text().startswith("# quickstart\n\n## digits\n")
    assert files["html"].read_text().startswith("<!doctype html>")


def test_many_columns_are_cut_into_several_tables_that_have_each_once(record):
    values = {f"t{number:02d}": {"accuracy": 80.0 + number} for number in range(2 * MOST_COLUMNS + 3)}
    table = Leaderboard.from_records([record("equal", 0, values)]).tables["digits"]
    _, block, _ = by_block(columns(table))
    parts = split(Sheet(columns=[names_of(table)]), block, "By task")
    assert [part.title for part in parts] == [f"By task ({number} of 3)" for number in (1, 2, 3)]
    headers = [header for part in parts for header in part.header[1:]]
    assert len(headers) == len(block) == len(set(headers))
    assert max(len(part.columns) for part in parts) <= MOST_COLUMNS + 1
