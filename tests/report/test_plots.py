import pytest
from PIL import Image
from report_records import pictures_of

from mtlscale.report.charts.chart import ChartText, Line
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.charts.curves import curve_chart, radar_chart, weight_chart
from mtlscale.report.charts.scores import leaderboard_charts
from mtlscale.report.charts.vega import save
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.figures import file_charts
from mtlscale.report.stats.curves import epoch_frame, over_seeds, varying_weights


def texts(chart):
    return [text.text for panel in chart.panels for text in panel.of(ChartText)]


def files(records):
    """Return the charts of one data set by the names of their files."""
    [table] = Leaderboard.from_records(records).tables.values()
    styles = line_styles(list(dict.fromkeys(record.method for record in records)), table.baseline)
    return {chart.file: chart for chart in file_charts(table, records, styles)}


def test_the_leaderboards_picture_names_every_method_and_its_figure(board_records, tmp_path):
    [chart] = leaderboard_charts(Leaderboard.from_records(board_records).tables.values())
    scores, gains = chart.panels
    assert chart.title == "digits" and list(gains.x.names) == ["a", "b"]
    assert scores.y.names == gains.y.names == ["mgda", "stl", "equal", "getmtl"]
    assert any("(2/4)" in text for text in texts(chart))
    with Image.open(save([chart], tmp_path / "leaderboard.png")) as image:
        assert image.format == "PNG" and image.width > 1000


def test_two_data_sets_stand_below_each_other(board_records, record, tmp_path):
    other = record("equal", 0, {"x": {"mIoU": 50.0}}, dataset="streets")
    charts = leaderboard_charts(Leaderboard.from_records([*board_records, other]).tables.values())
    assert [chart.title for chart in charts] == ["digits", "streets"]
    svg = save(charts, tmp_path / "both.svg").read_text()
    assert svg.index(">digits</text>") < svg.index(">streets</text>")


def test_every_picture_can_be_written_as_svg(board_records, tmp_path):
    for name, chart in files(board_records).items():
        assert save([chart], tmp_path / f"{name}.svg").read_text().startswith("<svg")


def test_curves_show_what_was_recorded(board_records):
    lines = files(board_records)["trace_R_mean"].panels[0].of(Line)
    assert {line.name for line in lines} == {"stl", "equal", "getmtl", "mgda"}
    for line in lines:
        assert list(line.x) == [1, 2, 3]
        assert list(line.y) == pytest.approx([0, 0.5, 2 / 3])
        assert list(line.low) == list(line.high) == list(line.y)  # all seeds are alike


def test_radar_draws_errors_around_a_closed_ring(board_records):
    table = Leaderboard.from_records(board_records).tables["digits"]
    [panel] = radar_chart(table, line_styles(list(table.rows.index))).panels
    [ring] = [line for line in panel.of(Line) if line.name == "equal"]
    first, second = 100 - table.rows.loc["equal", ["a.accuracy", "b.accuracy"]]
    assert list(ring.y) == pytest.approx([first, -second, first]) and list(ring.x) == pytest.approx([0, 0, 0])
    assert panel.equal and {"a", "b"} <= {text.text for text in panel.of(ChartText)}


def test_names_are_taken_as_they_are(record, tmp_path):
    runs = [record(r"$\frac{broken", seed, {"$x": {"accuracy": 90.0}, "y^": {"accuracy": 80.0}}) for seed in range(2)]
    [chart] = leaderboard_charts(Leaderboard.from_records(runs).tables.values())
    save([chart], tmp_path / "a.png")
    save([files(runs)["loss_variance"]], tmp_path / "b.png")
    assert r"$\frac{broken" in chart.panels[0].y.names


def test_failures_alone_are_a_picture_too(record, tmp_path):
    lost = record("lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory")
    [chart] = leaderboard_charts(Leaderboard.from_records([lost]).tables.values())
    save([chart], tmp_path / "a.png")
    assert "no finished run" in texts(chart)


def test_a_method_without_a_finished_run_has_no_share_of_them(record):
    done = [record("equal", seed, {"a": {"accuracy": 90.0}}) for seed in range(2)]
    lost = record("lost", 0, {}, main_metrics={}, metrics={}, last={}, status="failed", error="out of memory")
    [chart] = leaderboard_charts(Leaderboard.from_records([*done, lost]).tables.values())
    assert "no finished run" in texts(chart) and not any("(0/" in text for text in texts(chart))


def test_pictures_are_of_what_there_is_and_named_by_data_set(board_records, record):
    alone = dict(pictures_of(board_records, Leaderboard.from_records(board_records)))
    assert list(alone) == ["weights", "loss_variance", "trace_R_mean"]
    three = {task: {"accuracy": 90.0} for task in "abc"}
    bare = [record("equal", 0, three, dataset=label, epochs=[]) for label in ("a/b", "a b")]
    found = dict(pictures_of(bare, Leaderboard.from_records(bare)))
    assert list(found) == ["radar_1_a_b", "radar_2_a_b"]
    assert {"a", "b", "c"} <= set(texts(found["radar_1_a_b"][0]))


def test_no_picture_is_higher_than_4000_pixels(record):
    runs = [
        record(f"method {m}", 1, {"a": {"accuracy": 90.0 + m}, "b": {"accuracy": 80.0}}, dataset=f"set {d}")
        for d in range(10)
        for m in range(33)
    ]
    charts = leaderboard_charts(Leaderboard.from_records(runs).tables.values())
    assert sum(chart.height for chart in charts) * 150 <= 4000
    assert "more data sets" in charts[-1].title and "more methods" in charts[0].title
    one = [run for run in runs if run.dataset == "set 0"]
    epochs = epoch_frame(one, [run.method for run in one])
    weights = weight_chart(varying_weights(epochs), 24)
    assert len(weights.panels) == 24 and "24 of 33 methods" in weights.note and weights.height * 150 <= 4000
    styles = line_styles([run.method for run in one])
    curves = curve_chart({"": over_seeds(epochs, "val")}, styles, "Validation")
    assert len(curves.panels[0].of(Line)) == 24 and "9 more methods" in curves.note
