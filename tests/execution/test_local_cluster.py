"""Ray on this machine: found from any folder, and at the priority of whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtlscale.execution.local_cluster import LocalCluster

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
@pytest.mark.timeout(120)
def test_local_workers_run_at_the_users_own_priority() -> None:
    mine = {key: value for key, value in os.environ.items() if key != "RAY_worker_niceness"}
    done = subprocess.run([sys.executable, "-c", NICENESS], env=mine, capture_output=True, text=True, timeout=110)
    assert f"niceness {os.nice(0)}" in done.stdout, done.stderr[-2000:]
