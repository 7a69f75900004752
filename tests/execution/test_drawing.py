"""A run on maps leaves a picture beside its record; a run on labels leaves none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import Experiment, ResourceSpec, load_plugin
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution import Job, Options, execute
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records.events import RunEnded

PLUGIN = Path(__file__).parents[1] / "plugins" / "shapes.py"


@pytest.mark.parametrize("maps", [True, False])
def test_a_picture_of_predictions_where_tasks_have_maps(
    maps: bool, small: Callable[..., Experiment], tmp_path: Path
) -> None:
    load_plugin(PLUGIN)
    folder = prepare("shapes", {"maps": maps, "size": 8}, None, tmp_path)
    name = "deeplab_resnet18" if maps else "resnet18"
    more = ", head_width: 4, rates: [1]" if maps else ""
    experiment = small(
        plugins=f"[{PLUGIN}]",
        datasets=f"[{{name: shapes, options: {{maps: {str(maps).lower()}, size: 8}}}}]",
        methods="[hps]",
        model=f"{{encoder: {{name: {name}, width: 2, stem: small{more}}}}}",
        training="{epochs: 2, batch_size: 8, augment: flip}",
    )
    run = next(experiment.runs({"shapes": load_prepared(folder).manifest.fingerprint}))
    *_, end = execute(Job(run, folder, tmp_path / "run"), Options(ResourceSpec()))
    assert isinstance(end, RunEnded) and end.record.status == "finished"
    picture = tmp_path / "run" / "pictures.png"
    assert picture.exists() == maps
    if maps:
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
