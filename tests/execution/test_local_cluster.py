"""Ray on this machine: found from any folder, and at the priority of whoever started it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtlscale.config import UserError
from mtlscale.execution.cluster.local_cluster import LocalCluster
from mtlscale.execution.cluster.local_ray import WAIT_VARIABLE
from mtlscale.execution.cluster.token import use_token

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"

# The raylet is a program that ends, hangs, or ends the first time only: what Ray meets on a machine that is too busy.
STARTS = """
import contextlib, io, os, sys, pathlib
import ray
from ray._private import services
from mtlscale.cli import main
from mtlscale.execution.cluster import local_ray
from mtlscale.execution.cluster.cluster import session

folder, plugin, real = pathlib.Path(sys.argv[1]), sys.argv[2], services.RAYLET_EXECUTABLE

def raylet(text):
    services.RAYLET_EXECUTABLE = str(folder / "raylet")
    (folder / "raylet").write_text("#!/bin/sh\\n" + text)
    (folder / "raylet").chmod(0o755)

def prepare():
    sys.argv = ["mtlscale", "prepare", "uneven", "--plugin", plugin, "--engine", "ray", "--home", str(folder / "home")]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as end:
            print(repr(("refused", end.code, said.getvalue())))
"""
ENDS_ONCE_THEN_HANGS = """
raylet(f"test -e {folder}/tried || {{ touch {folder}/tried; exit 1; }}; exec {real} \\"$@\\"")
with session():
    print(repr(("niceness", ray.get(ray.remote(lambda: os.nice(0)).remote()))))
raylet("sleep 1000; exit")
os.environ[local_ray.WAIT_VARIABLE], local_ray.NOTE_SECONDS = "1", 0.2
prepare()
"""


def started(folder: Path, script: str, **more: str) -> tuple[list[Any], str]:
    """Return what a process printed that started Ray, and its standard error."""
    env = {k: v for k, v in os.environ.items() if k not in ("RAY_worker_niceness", WAIT_VARIABLE)}
    command = [sys.executable, "-c", STARTS + script, str(folder), str(PLUGIN)]
    done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return [ast.literal_eval(line) for line in done.stdout.splitlines()], done.stderr


def test_the_token_of_a_relative_folder_is_found_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    token = Path(LocalCluster(Path("trial")).environment()["RAY_AUTH_TOKEN_PATH"])
    assert token == tmp_path / "trial" / "token" and token.read_text()


def test_a_token_of_the_user_is_named_absolutely_and_one_without_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's processes start in other folders, where a relative path leads to nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "token")
    Path("token").write_text("secret\n")
    use_token()
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")

    for text, message in (("\n", "is empty"), (None, "cannot be read")):
        Path("token").unlink()
        if text is not None:
            Path("token").write_text(text)
        with pytest.raises(UserError, match=message):
            use_token()


@pytest.mark.ray
@pytest.mark.slow  # another cluster has to come up
def test_a_cluster_that_wants_a_token_says_so_in_one_line(
    experiment_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, with a wrong one; with its own by a path that is not absolute the cluster is joined."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong").write_text("ab" * 32)
    with LocalCluster(Path("trial"), nodes=1) as cluster:
        cluster.wait()
        names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
        env = {key: value for key, value in cluster.environment().items() if key not in names}
        command = [sys.executable, "-m", "mtlscale.cli", "run", str(experiment_file(tracking="{enabled: false}"))]

        def join(**more: str) -> subprocess.CompletedProcess[str]:
            arguments = ["--address", cluster.address, "--home", str(tmp_path / "home")]
            return subprocess.run([*command, *arguments], env={**env, **more}, capture_output=True, text=True)

        none, wrong = join(), join(RAY_AUTH_TOKEN_PATH="wrong")
        there = f"mtlscale: the Ray cluster at {cluster.address}"
        assert none.returncode == wrong.returncode == 2
        mend = "wants a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (absolute path of its file)\n"
        assert none.stderr == f"{there} {mend}"
        assert wrong.stderr.startswith(f"{there} refuses the token; ") and wrong.stderr.count("\n") == 1
        right = join(RAY_AUTH_TOKEN_PATH="trial/token")
        assert right.returncode == 0 and not right.stderr, right.stderr


@pytest.mark.ray
@pytest.mark.slow  # starts that fail, one after the other
def test_a_ray_that_does_not_start_is_tried_again_and_said_in_one_line(tmp_path: Path) -> None:
    """The second attempt may succeed, and workers then run at the user's own priority; if it fails, that is all."""
    results, first_said = started(tmp_path, ENDS_ONCE_THEN_HANGS, RAY_raylet_start_wait_time_s="1")
    niceness, (_, status, said) = results
    assert niceness == ("niceness", os.nice(0))
    assert "Ray did not start (its raylet ended); trying once more" in first_said and "Traceback" not in first_said

    still, again, still_again, error = said.splitlines()
    cause = "its raylet did not register within 1 s"
    assert status == 2 and error.startswith(f"mtlscale: Ray did not start in 2 attempts ({cause}; load ")
    assert f"{WAIT_VARIABLE}=2 for more time" in error and "Ray's logs are in " in error
    assert again == f"mtlscale: Ray did not start ({cause}); trying once more"
    assert still.startswith("mtlscale: Ray is still starting (load ") and still_again.startswith(still.split(" (")[0])
