"""What somebody does first: a wheel into an empty environment, quickstart, then a method of one's own, as the page on
the first ten minutes says. Nothing of the checkout is in sight but the wheel and constraints.txt.

`pytest -m slow -s tests/test_first_steps.py` prints how long everything takes.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first_ten_minutes.md"
NOT_SHIPPED = (".git", ".venv", "build", "outputs", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
MINUTES = 10


def test_what_is_no_code_is_packaged() -> None:
    """Templates and the like, which setuptools would leave out without a word."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    for package in ("mtlscale", "pipelines"):
        patterns = [*project["package-data"]["*"], *project["package-data"].get(package, [])]
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                name = path.relative_to(ROOT / package).as_posix()
                assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), f"no package-data has {name}"
    shipped = [pattern for patterns in project["data-files"].values() for pattern in patterns]
    for path in (ROOT / "experiments").rglob("*.yaml"):
        name = path.relative_to(ROOT)
        assert any(name.parent == Path(p).parent and name.match(p) for p in shipped), f"no data-files have {name}"


def run(*command: str | Path, folder: Path, path: Path | None = None) -> str:
    """What a command prints, which knows nothing of the checkout that runs the tests; `path`: where programs are."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MTLSCALE"))}
    environment |= {"COLUMNS": "160"} | ({"PATH": f"{path}:{environment['PATH']}"} if path else {})
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """An environment that has nothing but the wheel and what it needs."""

    bin: Path
    seconds: float  # from no environment to this

    def __call__(self, *command: str, folder: Path) -> str:
        return run(*command, folder=folder, path=self.bin)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy, so that nothing of an earlier build is in it; the wheel is made of the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "copy", folder=folder)
    [built] = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("empty")
    begun = time.monotonic()
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--constraint", ROOT / "constraints.txt", wheel, folder=folder)
    found = Installed(programs, time.monotonic() - begun)
    print(f"\ninstalled in {found.seconds:.0f} s")
    return found


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_the_wheel_runs_quickstart(installed: Installed, tmp_path: Path) -> None:
    where = installed("python", "-c", "import mtlscale; print(mtlscale.__file__)", folder=tmp_path)
    assert str(installed.bin.parent) in where  # not the checkout
    small = ["--set", "training.epochs=2", "--set", "seeds=[0]"]
    shown = installed("mtlscale", "run", "quickstart", *small, folder=tmp_path)
    assert "getmtl" in shown
    results = tmp_path / "outputs" / "experiments" / "quickstart"
    assert "<html" in (results / "leaderboard.html").read_text(encoding="utf-8")[:200]
    assert (results / "leaderboard.png").stat().st_size > 10_000
    assert "quickstart" in installed("mtlscale", "list", "experiments", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_ten_minutes_from_nothing_to_an_own_method_on_the_leaderboard(installed: Installed, tmp_path: Path) -> None:
    begun = time.monotonic()
    text = PAGE.read_text(encoding="utf-8")
    for name, body in re.findall(r"```\w+\n# (\w+\.(?:py|yaml))\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(body, encoding="utf-8")
    commands = re.findall(r"^mtlscale (?:run|leaderboard) ten_minutes\.yaml.*$", text, re.MULTILINE)
    assert len(commands) == 4
    *_, shown = [installed(*command.split(), folder=tmp_path) for command in commands]
    seconds = installed.seconds + time.monotonic() - begun
    print(f"\nfrom an empty environment to an own method on the leaderboard in {seconds:.0f} s")
    board = json.loads(shown)
    assert {table["dataset"] for table in board["tables"]} == {"digits", "transfer"}
    for rows in (board["overall"]["rows"], *(table["rows"] for table in board["tables"])):
        assert "harder_first" in [row["method"] for row in rows]
    assert seconds <= 60 * MINUTES
