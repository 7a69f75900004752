"""A local Ray on machines of others: folders that are too long, no home folder, addresses of another kind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import ResourceSpec, UserError
from mtlscale.execution.cluster import cluster, local_ray, token

LONG = "scratch/cluster/users/first.last/slurm_jobdir/13557001/tmp.node0016.partition-long"


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_a_folder_that_sockets_cannot_lie_in_is_replaced(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert local_ray.session_folder() == (Path("/tmp/ray"), "")

    monkeypatch.setenv(variable, f"{tmp_path}/{LONG}")
    folder, remark = local_ray.session_folder()
    session = folder / "session_2026-01-31_23-59-59_123456_4194304" / "sockets" / "plasma_store"
    assert len(os.fsencode(session)) <= 107
    assert remark == (
        f"{variable} = {tmp_path}/{LONG} is too long for Ray's sockets (of 107 bytes at most); Ray's files are in "
        f"{folder}"
    )

    (tmp_path / "file").write_text("")
    monkeypatch.setenv(variable, "/proc/none")
    assert local_ray.session_folder()[1].startswith(f"{variable} = /proc/none cannot be written; Ray's files are in /")


def test_a_machine_without_any_folder_for_sockets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ray.os, "access", lambda *_: False)
    monkeypatch.setenv("RAY_TMPDIR", "/elsewhere")
    with pytest.raises(UserError, match="RAY_TMPDIR = /elsewhere cannot be written; set RAY_TMPDIR to a short folder"):
        local_ray.session_folder()


@pytest.mark.parametrize("home", ["file/home", "home"])
def test_a_token_is_provided_where_ray_cannot_keep_one(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # and restored afterwards
        monkeypatch.delenv(name)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / home))
    token.provide()
    assert ("RAY_AUTH_TOKEN" in os.environ) == (home == "file/home")


def test_the_address_of_a_job_server_is_told_from_that_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://me:secret@head:8265")
    with pytest.raises(UserError) as refused:
        cluster.named(None)
    assert str(refused.value) == (
        "RAY_ADDRESS http://me:***@head:8265 is the address of a job server, which `mtlscale submit` takes; to join "
        "the cluster write HOST:PORT, such as head:6379, or ray://head:10001"
    )
    with pytest.raises(UserError, match="--address https://head is the address of a job server"):
        cluster.named("https://head")


@pytest.mark.parametrize("gpus", [0, 0.0001, 0.5, 1, 2, 8])
def test_shares_of_gpus_that_ray_gives_are_taken(gpus: float) -> None:
    assert ResourceSpec(gpus_per_worker=gpus).gpus_per_worker == gpus


@pytest.mark.parametrize("resources", [{"gpus_per_worker": 1.5}, {"gpus_per_worker": 1e-6}, {"cpus_per_worker": 1e-6}])
def test_shares_that_ray_does_not_give_are_refused_with_the_file(resources: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"are no share that Ray gives|greater than or equal to 0\.0001"):
        ResourceSpec(**resources)  # type: ignore[arg-type]


@pytest.mark.slow  # a Ray has to come up
@pytest.mark.ray
def test_a_run_needs_neither_a_short_folder_nor_a_home(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment_file(methods="[equal]", seeds="[0]", tracking="{enabled: false}")
    (tmp_path / LONG).mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"TMPDIR": f"{tmp_path}/{LONG}", "HOME": "/proc/none"}
    command = [sys.executable, "-m", "mtlscale.cli", "run", str(path), "--home", str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is too long for Ray's sockets" in done.stdout + done.stderr
