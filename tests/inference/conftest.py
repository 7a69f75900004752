"""Runs on the small uneven data set, to be exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from exported_runs import Finished, finish

TRAINING = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, checkpoint_seconds: 0}"
Finish = Callable[..., Finished]


@pytest.fixture
def finished(experiment_file: Callable[..., Path], tmp_path: Path) -> Finish:
    """A run on the small uneven data set; keywords replace lines of the experiment."""

    def make(
        method: object = "equal", *, home: Path = tmp_path / "home", models: bool = True, **lines: str
    ) -> Finished:
        methods = yaml.safe_dump([method], default_flow_style=True).strip()
        return finish(home, experiment_file(**{"methods": methods, "training": TRAINING, **lines}), models=models)

    return make
