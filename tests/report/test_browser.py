"""Pages of an experiment, of several data sets and of a search in headless Chromium: at two widths, light and dark, by
keyboard, on paper, and axe-core's opinion. `npm install --prefix tests/browser` gets what drives it; screenshots go to
$MTLSCALE_SCREENSHOTS where that is set."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from report_records import page

from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sweeps.sweep_page import page as sweep_page
from tests.report.test_sweep_page import frame, searches  # noqa: F401

DRIVER = Path(__file__).parents[1] / "browser"
PAGES = ("experiment", "overall", "sweep")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def found(board_records, searches, tmp_path_factory) -> dict[str, Any]:  # noqa: F811
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or shutil.which("node") is None:
        pytest.skip("needs chromium and node")
    if not (DRIVER / "node_modules" / "axe-core").is_dir():
        pytest.skip("needs axe-core and puppeteer-core: npm install --prefix tests/browser")
    folder = tmp_path_factory.mktemp("pages")
    shots = Path(os.environ.get("MTLSCALE_SCREENSHOTS", folder))
    shots.mkdir(parents=True, exist_ok=True)
    others = [record.model_copy(update={"dataset": name}) for name in ("letters", "faces") for record in board_records]
    several = [*board_records, *others]
    texts = {
        "experiment": page(board_records, Leaderboard.from_records(board_records), "experiment"),
        "overall": page(several, Leaderboard.from_records(several), "several data sets"),
        "sweep": sweep_page("search", searches, frame(searches)),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    pages = [f"{name}={folder / name}.html" for name in texts]
    command = ["node", str(DRIVER / "check.mjs"), chromium, str(shots), *pages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_fetched_and_nothing_goes_wrong(found: dict[str, Any], name: str) -> None:
    assert found[name]["errors"] == [] and found[name]["requests"] == []


@pytest.mark.parametrize("name", PAGES)
def test_everyone_can_read_it(found: dict[str, Any], name: str) -> None:
    assert [one for one in found[name]["axe"] if one["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_its_window_or_its_paper(found: dict[str, Any], name: str) -> None:
    assert {what: excess for what, excess in found[name]["overflow"].items() if excess > 0} == {}


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_drawn_where_it_is_looked_at_and_on_paper(found: dict[str, Any], name: str) -> None:
    for drawn, places in (found[name]["drawn"], found[name]["printed"]):
        assert drawn == places > 0


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(found: dict[str, Any], name: str) -> None:
    walk = found[name]["walk"]
    kinds = [step["kind"] for step in walk["seen"]]
    assert kinds[0] == "skip" and {"sort", "summary"} <= set(kinds)
    assert all(step["outlined"] and step["visible"] for step in walk["seen"])
    assert walk["tip"] and walk["unfolded"]
    assert len(set(walk["orders"])) == 2 and walk["orders"][0] == walk["orders"][2]  # each time the other way


def test_the_filter_leaves_one_method_in_tables_and_figures(found: dict[str, Any]) -> None:
    left = found["experiment"]["filter"]
    assert left["rows"] == [left["first"]] == ["stl"] and left["told"] == "1 of 4"
    assert "stl" in left["ticks"] and "getmtl" not in left["ticks"]


def test_it_can_be_used_at_once(found: dict[str, Any]) -> None:
    assert found["overall"]["interactive"] < 2000
