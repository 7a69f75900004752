import itertools

import pytest

from mtlscale.report.charts.colors import COLORS, GREY, HUES, LineStyle, line_styles, page_looks
from mtlscale.report.leaderboard import Leaderboard

LIGHT, DARK = "#ffffff", "#1b1f26"  # what figures stand on


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", [LIGHT, DARK])
def test_every_colour_stands_out_from_the_page(paper):
    assert all(contrast(color, paper) >= 3 for color in (*COLORS, GREY))


def test_sixty_methods_look_different_each():
    found = line_styles([f"method {place}" for place in range(60)])
    assert len(set(found.values())) == 60
    for one, other in itertools.combinations(found.values(), 2):
        assert (one.color, one.symbol) != (other.color, other.symbol)
    assert len({(look.color, look.dash) for look in list(found.values())[:48]}) == 48
    assert len({look.color for look in list(found.values())[: 2 * HUES]}) == 2 * HUES


def test_the_baseline_is_grey_and_leaves_the_other_looks_as_they_are():
    with_it, without = line_styles(["stl", "a", "b"], "stl"), line_styles(["a", "b"])
    assert {method: with_it[method] for method in without} == without
    assert with_it["stl"] == LineStyle(GREY)


def test_a_method_looks_the_same_on_every_data_set(record):
    runs = [record(method, 0, {"a": {"accuracy": 90.0}}, dataset="one") for method in ("stl", "x", "y")]
    runs += [record(method, 0, {"a": {"accuracy": 90.0}}, dataset="two") for method in ("y", "z", "stl")]
    board = Leaderboard.from_records(runs)
    shown = page_looks(runs, board.tables.values())
    assert list(shown) == ["x", "y", "z", "stl"] and shown["stl"].color == GREY
    assert shown == page_looks(runs, reversed(board.tables.values()))
