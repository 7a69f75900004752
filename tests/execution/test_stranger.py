"""A stranger's path through the command line: own method, edited; a shipped name; the same method under two labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import mtlscale, refused

from mtlscale.records import Home, Ledger, RunRecord

METHOD = """\
from typing import ClassVar

from mtlscale.balancing import Balancer


class Mine(Balancer):
    \"\"\"The larger the loss, the larger the weight.\"\"\"

    name: ClassVar[str] = "NAME"

    def __call__(self, losses, gramian, state):
        weights = losses.detach() ** POWER
        return weights / weights.sum(), state
"""
EXPERIMENT = """\
plugins: [mine.py]
datasets: [digits]
methods: [METHODS]
floors: []
training: {epochs: 2}
tracking: {enabled: false}
"""


def written(folder: Path, methods: str, name: str = "mine", power: str = "2") -> Path:
    (folder / "mine.py").write_text(METHOD.replace("NAME", name).replace("POWER", power))
    path = folder / "own.yaml"
    path.write_text(EXPERIMENT.replace("METHODS", methods))
    return path


def trained(home: Path) -> list[RunRecord]:
    return list(Ledger(Home(home).ledger("own")))


@pytest.mark.ray
@pytest.mark.slow
def test_the_path_of_a_stranger(tmp_path: Path, local_ray: None) -> None:
    home = tmp_path / "home"

    def run(path: Path) -> str:
        done = mtlscale("run", path, "--home", home)
        assert done.code == 0, done
        return done.stdout

    path = written(tmp_path, "equal, mine")
    run(path)
    assert sorted(record.method for record in trained(home)) == ["equal", "mine"]
    assert "2 of 2 runs are done already" in run(path)

    # An edited plugin runs anew, and nothing else does.
    run(written(tmp_path, "equal, mine", power="0.5"))
    assert sorted(record.method for record in trained(home)) == ["equal", "mine", "mine"]
    first, second = (record for record in trained(home) if record.method == "mine")
    assert first.run_id != second.run_id and first.metrics != second.metrics

    # A shipped name is refused before anything starts.
    assert "equal is a shipped balancer; give yours another name" in refused(
        "run", written(tmp_path, "stl, equal", name="equal"), "--home", home
    )
    assert len(trained(home)) == 3

    # Two labels of one method: nothing to train, both shown.
    path = written(tmp_path, "equal, mine, {name: mine, label: again}", power="0.5")
    assert "2 of 2 runs are done already" in run(path)
    board = mtlscale("leaderboard", path, "--home", home, "--format", "csv").stdout.splitlines()
    rows = {line.split(",")[1]: line.split(",", 2)[2] for line in board[1:]}
    assert set(rows) == {"equal", "mine", "again"} and rows["mine"] == rows["again"] != rows["equal"]
    assert len(trained(home)) == 3
