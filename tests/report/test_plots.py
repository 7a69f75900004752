import pytest
from PIL import Image

from mtlscale.report.charts import plots
from mtlscale.report.charts.canvas import save
from mtlscale.report.tables.leaderboard import Leaderboard


def texts(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def test_the_leaderboards_picture_names_every_method_and_its_figure(board_records, tmp_path):
    figure = plots.leaderboard_figure(Leaderboard.from_records(board_records))
    found = texts(figure)
    assert {"getmtl", "equal", "stl", "mgda", "digits", "a", "b"} <= set(found)
    assert any("(2/4)" in text for text in found)
    with Image.open(save(figure, tmp_path / "leaderboard.png")) as image:
        assert image.format == "PNG" and image.width > 1000


def test_two_data_sets_stand_below_each_other(board_records, record):
    other = record("equal", 0, {"x": {"mIoU": 50.0}}, dataset="streets")
    figure = plots.leaderboard_figure(Leaderboard.from_records([*board_records, other]))
    assert len(figure.subfigs) == 2


def test_every_picture_can_be_written_as_svg(board_records, tmp_path):
    table = Leaderboard.from_records(board_records).tables["digits"]
    for name, figure in {
        "val": plots.curve_figure(board_records),
        "train": plots.curve_figure(board_records, "train_loss"),
        "variance": plots.loss_variance_figure(board_records),
        "weights": plots.weight_figure(board_records),
        "radar": plots.radar_figure(table),
        "trace": plots.trace_figure(board_records, "R_mean"),
        "absent": plots.trace_figure(board_records, "nobody recorded this"),
    }.items():
        assert save(figure, tmp_path / f"{name}.svg").read_text().startswith("<?xml")


def test_curves_show_what_was_recorded(board_records):
    lines = plots.trace_figure(board_records, "R_mean").axes[0].get_lines()
    assert {line.get_label() for line in lines} == {"stl", "equal", "getmtl", "mgda"}
    for line in lines:
        assert list(line.get_xdata()) == [1, 2, 3]
        assert list(line.get_ydata()) == pytest.approx([0, 0.5, 2 / 3])


def test_radar_draws_errors_around_a_closed_ring(board_records):
    table = Leaderboard.from_records(board_records).tables["digits"]
    lines = {line.get_label(): line.get_ydata() for line in plots.radar_figure(table).axes[0].get_lines()}
    means = table.rows.loc["equal", ["a.accuracy", "b.accuracy"]]
    assert list(lines["equal"]) == pytest.approx([100 - means.iloc[0], 100 - means.iloc[1], 100 - means.iloc[0]])


def test_names_are_taken_as_they_are(record, tmp_path):
    runs = [record(r"$\frac{broken", seed, {"$x": {"accuracy": 90.0}, "y^": {"accuracy": 80.0}}) for seed in range(2)]
    figure = plots.leaderboard_figure(Leaderboard.from_records(runs))
    save(figure, tmp_path / "a.png")
    save(plots.curve_figure(runs), tmp_path / "b.png")
    assert r"$\frac{broken" in texts(figure)


def test_failures_alone_are_a_picture_too(record, tmp_path):
    lost = record("lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory")
    figure = plots.leaderboard_figure(Leaderboard.from_records([lost]))
    save(figure, tmp_path / "a.png")
    assert "no finished run" in texts(figure)


def test_a_method_without_a_finished_run_has_no_share_of_them(record):
    done = [record("equal", seed, {"a": {"accuracy": 90.0}}) for seed in range(2)]
    lost = record("lost", 0, {}, main_metrics={}, metrics={}, last={}, status="failed", error="out of memory")
    found = texts(plots.leaderboard_figure(Leaderboard.from_records([*done, lost])))
    assert "no finished run" in found and not any("(0/" in text for text in found)


def test_pictures_are_of_what_there_is_and_named_by_data_set(board_records, record):
    alone = dict(plots.pictures(board_records, Leaderboard.from_records(board_records)))
    assert list(alone) == ["weights", "loss_variance", "trace_R_mean"]
    three = {task: {"accuracy": 90.0} for task in "abc"}
    bare = [record("equal", 0, three, dataset=label, epochs=[]) for label in ("a/b", "a b")]
    found = dict(plots.pictures(bare, Leaderboard.from_records(bare)))
    assert list(found) == ["radar_1_a_b", "radar_2_a_b"]
    assert {"a", "b", "c"} <= set(texts(found["radar_1_a_b"]))


def test_no_picture_is_higher_than_4000_pixels(record):
    runs = [
        record(f"method {m}", 1, {"a": {"accuracy": 90.0 + m}, "b": {"accuracy": 80.0}}, dataset=f"set {d}")
        for d in range(10)
        for m in range(33)
    ]
    figure = plots.leaderboard_figure(Leaderboard.from_records(runs))
    assert figure.get_figheight() * 150 <= 4000
    assert any("more data sets" in text for text in texts(figure)) and any("more methods" in t for t in texts(figure))
    one = [run for run in runs if run.dataset == "set 0"]
    weights = plots.weight_figure(one)
    assert len(weights.axes) == 24 and any("24 of 33 methods" in text for text in texts(weights))
    curves = plots.curve_figure(one)
    assert len(curves.axes[0].get_lines()) == 24 and "9 more methods" in curves.axes[0].get_title(loc="left")
    assert weights.get_figheight() * 150 <= 4000


def test_whatever_is_higher_is_drawn_smaller(tmp_path):
    from mtlscale.report.charts.canvas import new_figure

    with Image.open(save(new_figure(4.0, 50.0), tmp_path / "high.png")) as image:
        assert image.height == 4000 and image.width == 320
