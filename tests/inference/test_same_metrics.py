"""An exported model measures what the run measured, to the last digit, where neither Ray nor MLflow is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exported_runs import Finished, finish

from mtlscale.inference import export

ROOT = Path(__file__).parents[2]
# What refuses to import Ray and MLflow, as if they were not there, and then is the command line.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "mlflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from mtlscale.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv = ["mtlscale", *line.split("\\t")]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
"""

EXPERIMENTS = {
    "text": (
        "fdu_mtl",
        {
            "datasets": "[{name: amazon, options: {domains: [books, dvd], keep_unlabelled: false, length: 32}}]",
            "methods": "[{architecture: stl}]",
            "model": "{encoder: {name: textcnn, dimensions: 16, filters: 8}}",
            "training": "{epochs: 2, batch_size: 64, steps_per_epoch: 3, lr: 1e-3}",
        },
    ),
    "image": (
        "celeba",
        {
            "datasets": "[{name: celeba, options: {size: 16, limit: 300, split: own}}]",
            "methods": "[{architecture: cross_stitch, balancer: mgda}]",
            "model": "{encoder: {name: resnet18, width: 8}}",
            "training": "{epochs: 2, batch_size: 32, steps_per_epoch: 1, lr: 1e-3}",
        },
    ),
    "table": (
        "multilabel",
        {
            "datasets": "[{name: multilabel, options: {set: yeast}}]",
            "methods": "[{architecture: mmoe}]",
            "model": "{encoder: {name: mlp, hidden: [16]}}",
            "training": "{epochs: 2, batch_size: 64, steps_per_epoch: 3, lr: 1e-2}",
        },
    ),
}


@pytest.fixture(scope="module")
def runs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    home = tmp_path_factory.mktemp("home")
    found = {}
    for name, (folder, lines) in EXPERIMENTS.items():
        file = home / f"{name}.yaml"
        file.write_text(
            "".join(
                f"{key}: {value}\n" for key, value in {"name": name, "seeds": "[0]", "floors": "[]", **lines}.items()
            )
        )
        found[name] = finish(home, file, shared_data / folder)
    return found


@pytest.mark.slow
def test_text_images_and_table_to_the_last_digit_without_ray_and_mlflow(
    runs: dict[str, Finished], tmp_path: Path
) -> None:
    lines = []
    for name, run in runs.items():
        folder = export(run.home, run.run_id[:8], tmp_path / name)
        lines.append(f"predict\t{folder}\t{run.data.folder}\t--json")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for run, printed in zip(runs.values(), done.stdout.splitlines(), strict=True):
        assert printed == json.dumps(run.record.metrics["test"])
