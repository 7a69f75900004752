"""A leaderboard in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from mtlscale.config import load_experiment
from mtlscale.records import RunRecord
from mtlscale.report.results import Results


def test_results_are_a_table_of_what_the_leaderboard_says(record: Callable[..., RunRecord], tmp_path: Path) -> None:
    runs = [
        record(method, seed, {"a": {"accuracy": value + seed}, "b": {"accuracy": 80.0 + seed}})
        for method, value in (("stl", 60.0), ("equal", 70.0), ("<b>mine", 75.0))
        for seed in (0, 1)
    ]
    results = Results(load_experiment("quickstart"), tuple(runs), tmp_path)
    html = results._repr_html_()
    table = ElementTree.fromstring(f"<div>{html}</div>").find("table")  # well-formed: names are escaped
    assert table is not None and table.findtext("caption") == "digits"
    rows = table.findall("tbody/tr")
    assert [row.findtext("th") for row in rows][:3] == ["<b>mine", "equal", "stl"]  # then what nobody has run
    heads = [head.text for head in table.findall("thead/tr/th")]
    best = "".join(rows[0][heads.index("test accuracy")].itertext())
    assert re.match(r"78\.00", best), best
    assert all(len(row) == len(heads) for row in rows)
    assert "no runs of quickstart" in Results(load_experiment("quickstart"), (), tmp_path)._repr_html_()
