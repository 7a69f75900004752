"""A user's modules in the working folder or on PYTHONPATH: whatever their names, mtlscale finds its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_sets import picture, save

from mtlscale.config.registry import import_order
from pipelines.image.celeba import NINE

ROOT = import_order.FOLDER.parent
HIDING = ("yaml", "torch", "datasets", "random", "statistics", "queue", "tempfile", "experiments")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with modules that must not be imported, and one that may."""
    folder = tmp_path / "project"
    for name in (*HIDING, "pipelines"):
        module = folder / name / "__init__.py" if name in ("datasets", "pipelines", "experiments") else None
        module = module or folder / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("raise RuntimeError('this is the user\\'s')")
    (folder / "mine.py").write_text("HERE = True")
    return folder


def python(*arguments: str | Path, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT))))}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=280)


@pytest.mark.parametrize("on_path", [False, True])
@pytest.mark.parametrize(
    "entry", [("-m", "mtlscale"), ("-m", "mtlscale.cli"), ("-c", "from mtlscale.cli import main; main()")]
)
def test_the_command_line_finds_its_own(project: Path, entry: tuple[str, str], on_path: bool) -> None:
    done = python(*entry, "list", "datasets", cwd=project, path=str(project) if on_path else "")
    assert done.returncode == 0, done.stderr
    assert "digits" in done.stdout


def test_a_process_that_the_command_line_starts_finds_them_too(project: Path) -> None:
    code = (
        "import mtlscale.cli, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import random, yaml, mine; print(mine.HERE)'], check=True)"
    )
    done = python("-c", code, cwd=project.parent, path=str(project))
    assert done.stdout.strip() == "True", done.stderr


def test_a_users_program_keeps_its_own_but_for_the_pipelines(project: Path) -> None:
    for name in ("random", "statistics", "queue", "tempfile", "yaml"):  # no program works without these
        (project / f"{name}.py").unlink()
    (project / "torch.py").write_text("MINE = True")
    code = "import mtlscale, torch; from mtlscale.config.registry.components import names"
    shown = python("-c", f"{code}; print(torch.MINE, 'digits' in names('datasets', plugins=False))", cwd=project)
    assert shown.stdout.strip() == "True True", shown.stderr
    (project / "pipelines" / "__init__.py").write_text("")
    refused = python("-c", f"import pipelines; {code}; names('datasets', plugins=False)", cwd=project)
    assert refused.stderr.splitlines()[-1].endswith(
        f"{project / 'pipelines'} hides mtlscale's package `pipelines`, which prepares data sets, in this program; "
        "rename it"
    )


def test_a_folder_that_hides_nothing_costs_workers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = filter(import_order._is_installation, sys.path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), *installed, str(ROOT)])
    monkeypatch.chdir(ROOT)
    assert import_order.worker_environment() == {}
    tmp_path = tmp_path / "mine"
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "tests").mkdir()
    assert import_order.worker_environment() == {}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pipelines.py").write_text("")
    monkeypatch.chdir(tmp_path / "other")
    assert "worker_process_setup_hook" in import_order.worker_environment()


@pytest.mark.slow  # each starts a Ray
@pytest.mark.ray
@pytest.mark.parametrize("entry", [("-m", "mtlscale"), ("program.py",)])
def test_rays_workers_find_them_too(project: Path, entry: tuple[str, ...]) -> None:
    faces = project / "faces"
    rng = np.random.default_rng(0)
    lines = []
    for number in range(60):
        save(faces / "img_align_celeba" / f"{number:06d}.jpg", picture(rng, 12, 10))
        lines.append(f"{number:06d}.jpg {' '.join(str(value) for value in rng.choice([-1, 1], len(NINE)))}")
    (faces / "list_attr_celeba.txt").write_text("\n".join(["60", " ".join(NINE), *lines]) + "\n")
    parts = [f"{number:06d}.jpg {max(0, number % 5 - 2)}" for number in range(60)]
    (faces / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    if entry == ("program.py",):
        for name in HIDING:
            (project / f"{name}.py").unlink(missing_ok=True)  # a program of the user's means them
        (project / "program.py").write_text(
            "import sys\nfrom pathlib import Path\nfrom mtlscale.execution.preparing.prepare import prepare\n"
            "prepare('celeba', {'size': 8}, Path(sys.argv[4]), Path(sys.argv[6]), engine='ray')\n"
        )
    arguments = ("prepare", "celeba", "--source", faces, "--home", project / "home", "--engine", "ray")
    more = () if entry == ("program.py",) else ("--option", "size=8")
    done = python(*entry, *arguments, *more, cwd=project, path=str(project))
    assert done.returncode == 0, done.stderr
    assert len(list((project / "home" / "data" / "celeba").glob("*/manifest.json"))) == 1
