"""The command line as a user meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command import mtlscale


def in_a_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtlscale.cli", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


@pytest.mark.parametrize("command", ["list", "prepare", "diagnose", "run", "leaderboard", "report", "doctor"])
def test_every_command_shows_an_example(command: str) -> None:
    done = mtlscale(command, "--help")
    assert done.code == 0
    assert f"Example: mtlscale {command}" in " ".join(done.stdout.split())


def test_help_and_import_touch_no_heavy_library() -> None:
    code = (
        "import sys, mtlscale, mtlscale.cli, mtlscale.config\n"
        "print([m for m in ('torch', 'ray', 'mlflow', 'torchvision', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("what", ["methods", "balancers", "architectures", "encoders", "datasets", "experiments"])
def test_everything_can_be_listed(what: str) -> None:
    done = mtlscale("list", what)
    assert done.code == 0, done.stderr
    expected = {"methods": "getmtl", "balancers": "cagrad", "architectures": "hps", "encoders": "mlp"}
    assert expected.get(what, "digits" if what == "datasets" else "quickstart") in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "quikstart"], "did you mean quickstart"),
        (["list", "balancer"], "did you mean balancers"),
        (["prepare", "newsgroup"], "did you mean newsgroups"),
        (["prepare", "newsgroups", "--source", "/nowhere"], "source /nowhere does not exist"),
        (["prepare", "digits", "--option", "negatives=many"], "negatives = 'many' should be a number"),
        (["diagnose", "digit"], "did you mean digits"),
        (["diagnose", "digits", "--encoder", "lstn"], "did you mean lstm"),
        (["leaderboard", "quickstart"], "no runs of quickstart"),
        (["report", "quickstart"], "no runs of quickstart"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_two(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = mtlscale(*arguments)
    assert done.code == 2
    assert expected in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.json*"))


def test_a_process_ends_with_that_line_and_status(tmp_path: Path) -> None:
    done = in_a_process("prepare", "newsgroup", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean newsgroups" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_dry_run_shows_the_plan_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = mtlscale("run", "quickstart", "--dry-run", "--set", "seeds=[0]", "--set", "methods=[stl, getmtl]")
    assert done.code == 0, done.stderr
    assert "8 runs: 8 new" in done.stdout and "getmtl" in done.stdout
    assert not (tmp_path / "outputs" / "runs").exists()


def test_doctor_finds_this_machine_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = mtlscale("doctor")
    assert done.code == 0, done.stdout
    for what in ("python", "torch", "ray", "mlflow", "free memory", "home folder", "GPU", "loopback sockets"):
        assert what in done.stdout
