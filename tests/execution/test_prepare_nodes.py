"""A set of images prepared on a cluster of two nodes: into a home that both see, or into a storage, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import picture, save

from mtlscale.config import SPLITS
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Storage
from pipelines.image.celeba import NINE

COUNT = 60

# The probe of the second node is answered by this machine, which sees every folder: it is told to look elsewhere.
ON_TWO_NODES = """
import json, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from mtlscale.data.remote import publish
from mtlscale.execution.preparing import shared_home_check
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Storage
from mtlscale.config import UserError

source, home, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
told = {"several": shared_home_check.several_nodes()}
storage = Storage(url)
folder = prepare("celeba", {"size": 16}, source, home / "stored", engine="ray", storage=storage)
told["files"] = sorted(path.name for path in folder.rglob("*") if path.is_file())
publish(storage, folder)
told["shared"] = str(prepare("celeba", {"size": 16}, source, home / "shared", engine="ray"))
told["stored"] = str(folder)
real = shared_home_check.read_mark
shared_home_check.read_mark = lambda path: None
try:
    prepare("celeba", {"size": 16}, source, home / "alone", engine="ray")
except UserError as error:
    told["refused"] = str(error)
ray.shutdown()
cluster.shutdown()
print(json.dumps(told))
"""


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    rng, root = np.random.default_rng(0), tmp_path / "celeba"
    images = [f"{number:06d}.jpg" for number in range(COUNT)]
    for image in images:
        save(root / "img_align_celeba" / image, picture(rng, 24, 20))
    rows = [f"{image} {' '.join(str(value) for value in rng.choice([-1, 1], len(NINE)))}" for image in images]
    (root / "list_attr_celeba.txt").write_text("\n".join([str(COUNT), " ".join(NINE), *rows]) + "\n")
    parts = [f"{image} {max(0, number % 5 - 2)}" for number, image in enumerate(images)]
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


@pytest.mark.slow  # a cluster of two nodes has to come up
@pytest.mark.ray
def test_tasks_write_where_all_nodes_see_it(faces: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'bucket'}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", ON_TWO_NODES, str(faces), str(tmp_path), url]
    output = subprocess.run(command, check=True, timeout=400, env=environment, capture_output=True, text=True).stdout
    told = json.loads(output.splitlines()[-1])
    assert told["several"]
    assert told["files"] == [".origin", "manifest.json"]  # the shards went to the storage, from where they were written
    assert told["refused"].startswith(f"{tmp_path / 'alone' / 'data' / 'celeba'} is not shared: ")
    here = prepare("celeba", {"size": 16}, faces, tmp_path / "here", engine="local")
    bucket = tmp_path / "bucket" / "data" / "celeba" / here.name
    expected = {path.relative_to(here): path.read_bytes() for path in here.rglob("*") if path.is_file()}
    for folder in (Path(told["shared"]), bucket):
        assert {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == expected
    assert not (tmp_path / "alone" / "data" / "celeba").exists()
    stored, plain = load_prepared(Path(told["stored"])), load_prepared(here)
    for split in SPLITS:
        assert torch.equal(stored.splits[split]["all"].inputs, plain.splits[split]["all"].inputs)
    assert Storage(url).exists(f"data/celeba/{here.name}/manifest.json")
