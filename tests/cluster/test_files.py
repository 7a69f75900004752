"""The files in cluster/: parsed, and checked against the schemas and rules of what reads them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
VERSION = "2.60.0"


def read(name: str) -> dict[str, Any]:
    content = yaml.safe_load((FOLDER / name).read_text())
    assert isinstance(content, dict)
    return content


def launcher_schema() -> dict[str, Any]:
    """Ray's own schema of cluster launcher files, without importing Ray."""
    spec = importlib.util.find_spec("ray")
    assert spec is not None and spec.submodule_search_locations is not None
    return json.loads((Path(spec.submodule_search_locations[0]) / "autoscaler" / "ray-schema.json").read_text())


@pytest.mark.parametrize("name", ["aws", "gcp", "onprem"])
def test_launcher_files_fit_rays_schema(name: str) -> None:
    content = read(f"{name}.yaml")
    jsonschema.validate(content, launcher_schema())
    if name == "onprem":
        assert len(set(content["provider"]["worker_ips"])) == 2 and content["provider"]["head_ip"]
    else:
        types = content["available_node_types"]
        assert content["head_node_type"] in types
        assert all(kind.get("max_workers", 0) <= content["max_workers"] for kind in types.values())
        assert types["head"]["resources"]["CPU"] == 0  # the driver's alone
    for place in ("head", "worker"):
        commands = " ".join(content[f"{place}_start_ray_commands"])
        assert "RAY_AUTH_MODE=token" in commands and "MTLSCALE_HOME=/shared" in commands
    assert "--dashboard-host=127.0.0.1" in " ".join(content["head_start_ray_commands"])
    assert any(path.endswith(".ray/auth_token") for path in content["file_mounts"])


def test_a_wrong_launcher_file_does_not_fit() -> None:
    content = read("aws.yaml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "max_wokers": 3}, launcher_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "upscaling_speed": "fast"}, launcher_schema())


def check_ray_cluster(spec: dict[str, Any]) -> None:
    """What KubeRay's documentation asks of a cluster, and what mtlscale needs of one."""
    assert spec["rayVersion"] == VERSION
    assert spec["enableInTreeAutoscaling"] is True
    groups = spec["workerGroupSpecs"]
    assert {group["groupName"] for group in groups} == {"cpu", "gpu"}
    for group in [spec["headGroupSpec"], *groups]:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # KubeRay takes strings alone
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert "/shared" in {mount["mountPath"] for mount in container["volumeMounts"]}
            env = {entry["name"]: entry for entry in container["env"]}
            assert env["RAY_AUTH_MODE"]["value"] == "token"
            assert set(env["RAY_AUTH_TOKEN"]) == {"name", "valueFrom"}  # from a secret, never in the file
    for group in groups:
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    gpu = next(group for group in groups if group["groupName"] == "gpu")["template"]["spec"]
    assert gpu["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert any(toleration["key"] == "nvidia.com/gpu" for toleration in gpu["tolerations"])


def test_the_kuberay_cluster() -> None:
    content = read("raycluster.yaml")
    assert (content["apiVersion"], content["kind"]) == ("ray.io/v1", "RayCluster")
    check_ray_cluster(content["spec"])


def test_the_kuberay_job() -> None:
    content = read("rayjob.yaml")
    assert (content["apiVersion"], content["kind"]) == ("ray.io/v1", "RayJob")
    spec = content["spec"]
    assert spec["entrypoint"].startswith("mtlscale run ") and spec["shutdownAfterJobFinishes"] is True
    check_ray_cluster(spec["rayClusterSpec"])
    # Without what the job adds, its cluster is that of raycluster.yaml: the two files are changed together.
    text = re.sub(r"\n.*name: experiment, .*", "", (FOLDER / "rayjob.yaml").read_text())
    assert yaml.safe_load(text)["spec"]["rayClusterSpec"] == read("raycluster.yaml")["spec"]


def test_the_compose_file() -> None:
    content = read("compose.yaml")
    assert set(content) - {"name", "services", "volumes"} == {"x-ray"}
    services = content["services"]
    assert {"head", "worker", "mlflow", "database", "store"} <= set(services)
    for name, service in services.items():
        assert "image" in service, name
        needed = service.get("depends_on", {})
        assert set(needed) <= set(services)
        if isinstance(needed, dict):
            for other, how in needed.items():
                if how["condition"] == "service_healthy":
                    assert "healthcheck" in services[other], f"{name} waits for the health of {other}"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "published to this machine alone"
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in content["volumes"]
        for key, value in (service.get("environment") or {}).items():
            if any(word in key for word in ("PASSWORD", "TOKEN", "SECRET")):
                assert value.startswith("${") and ":?" in value, f"{key} of {name} comes from the environment"


def test_the_container_file_names_files_that_exist() -> None:
    text = (FOLDER / "Containerfile").read_text()
    assert "dist/*.whl" in text  # of `make dist`
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources if source != "dist/*.whl"), line
    assert "cluster = [" in (ROOT / "pyproject.toml").read_text() and "mtlscale[cluster]" in text
    assert re.search(r"^USER [1-9]", text, re.MULTILINE) and "HEALTHCHECK" in text


@pytest.mark.parametrize("name", ["slurm.sh", "slurm_array.sh"])
def test_the_slurm_scripts_are_bash(name: str) -> None:
    """`make lint` has shellcheck look at them, and test_slurm.py runs them."""
    script = FOLDER / name
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = script.read_text()
    assert "set -euo pipefail" in text
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            assert re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line), line
    # Outside SLURM and without an experiment it says how it is used, and starts nothing.
    used = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert used.returncode != 0 and f"usage: sbatch cluster/{name}" in used.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.*") if path.suffix != ".md"))
def test_every_file_says_what_to_change(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert "CHANGE" in text
