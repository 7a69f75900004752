"""Old names that a plugin may import or override work for one release, with a warning that has the new one."""

import importlib

import pytest
from torch import Tensor

OLD_NAMES = [
    ("pipelines", "Work", "PrepareContext"),
    ("pipelines", "Pieces", "ShardedTable"),
    ("pipelines", "Part", "ComputedRows"),
    ("mtlscale.tracking", "Told", "RunUpdate"),
    ("mtlscale.execution", "Standing", "ExperimentStatus"),
    ("mtlscale.execution", "standings", "experiment_statuses"),
    ("mtlscale.batched", "Estimate", "CostEstimate"),
    ("mtlscale.encoders", "drawn", "fixed_draws"),
    ("mtlscale.metrics", "Figure", "ExtraMeasure"),
    ("mtlscale.metrics", "Gathered", "GatheredScores"),
    ("mtlscale.nas.cells", "Place", "CellShape"),
    ("mtlscale.rl.environments", "Fleet", "VectorEnv"),
]


@pytest.mark.parametrize(("package", "old", "new"), OLD_NAMES)
def test_an_old_name_is_the_new_one_with_a_warning(package: str, old: str, new: str) -> None:
    module = importlib.import_module(package)
    with pytest.warns(FutureWarning, match=f"{package}.{old} is called {package}.{new} now"):
        assert getattr(module, old) is getattr(module, new)
    with pytest.raises(AttributeError, match="has no attribute 'nowhere'"):
        module.nowhere  # noqa: B018


def test_an_accumulator_with_the_old_method_is_computed() -> None:
    import torch

    from mtlscale.metrics import GatheredScores

    with pytest.warns(FutureWarning, match="Mine.figure is called value now"):

        class Mine(GatheredScores):
            def figure(self, scores: Tensor, labels: Tensor) -> float:
                return float((scores - labels).sum())

    metric = Mine()
    metric.update(torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    assert metric.compute() == 2.0
