"""Every complete example in README.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mtlscale

README = Path(__file__).parents[1] / "README.md"


def write_examples(folder: Path) -> None:
    """The fenced blocks that begin with a file name."""
    for name, body in re.findall(r"```\w+\n# (\w+\.(?:py|yaml))\n(.*?)```", README.read_text(), re.DOTALL):
        (folder / name).write_text(body)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("first.yaml", {"stl", "equal", "mgda", "getmtl", "weighted"}),
        ("tuned.yaml", {"stl", "equal", "getmtl"}),
        ("with_my_method.yaml", {"stl", "equal", "mgda", "inverse_norm"}),
        ("with_my_data.yaml", {"stl", "equal", "cagrad"}),
    ],
)
def test_the_examples_run(name: str, methods: set[str], tmp_path: Path, local_ray: None) -> None:
    write_examples(tmp_path)
    experiment = mtlscale.load_experiment(tmp_path / name, ("tracking.enabled=false",))
    results = mtlscale.run(experiment, home=tmp_path / "home")
    assert {r.method for r in results.records} == methods | {"constant", "linear"}
    assert {r.status for r in results.records} == {"finished"}, [r.error for r in results.records]
    assert all(method in results.leaderboard().to_markdown() for method in methods)
