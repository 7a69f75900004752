"""Ray on this machine: found from any folder, and at the priority of whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.execution import cluster
from mtlscale.execution.local_cluster import LocalCluster
from mtlscale.spec import UserError

NICENESS = """
import os, ray
from mtlscale.execution.cluster import session

with session():
    print("niceness", ray.get(ray.remote(lambda: os.nice(0)).remote()))
"""


def test_the_token_of_a_relative_folder_is_found_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    token = Path(LocalCluster(Path("trial")).environment()["RAY_AUTH_TOKEN_PATH"])
    assert token == tmp_path / "trial" / "token" and token.read_text()


@pytest.mark.ray
@pytest.mark.slow  # another cluster has to come up
@pytest.mark.timeout(240)
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
@pytest.mark.timeout(120)
def test_local_workers_run_at_the_users_own_priority() -> None:
    mine = {key: value for key, value in os.environ.items() if key != "RAY_worker_niceness"}
    done = subprocess.run([sys.executable, "-c", NICENESS], env=mine, capture_output=True, text=True, timeout=110)
    assert f"niceness {os.nice(0)}" in done.stdout, done.stderr[-2000:]


def test_a_machine_too_busy_for_ray_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def late(**_: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(UserError, match="Ray did not come up on this machine in time"), cluster.session():
        pass
