"""Capabilities: a network has one by having its members, wherever they are defined."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures import (
    EndsEpochs,
    JointBackward,
    KeepsMemory,
    KnowsEpochs,
    MeasuresAffinity,
    MultiTaskModule,
    Penalised,
    UpdatesItself,
    capabilities,
    capability,
    extra_parameters,
)


class Bare(MultiTaskModule):
    pass


class Charged(MultiTaskModule):
    """A user's network, which knows no protocol."""

    joint_backward = True

    def penalty(self) -> Tensor | None:
        return torch.ones(())

    def extra_parameter_count(self) -> int:
        return 7


def _protocols() -> list[Any]:
    data = capabilities.LabelledData
    return [
        value
        for value in vars(capabilities).values()
        if getattr(value, "_is_protocol", False) and value.__module__ == capabilities.__name__ and value is not data
    ]


def test_the_contract_has_ten_members_and_no_capability() -> None:
    own = {name for name in (*vars(MultiTaskModule), *MultiTaskModule.__annotations__) if not name.startswith("_")}
    assert own == {
        "forward", "shared_parameters", "shared_modules", "task_parameters", "groups", "traces", "structure",
        "phase_output", "independent", "vectorised",
    }  # fmt: skip
    assert len(_protocols()) == 23
    assert [kind for kind in _protocols() if capability(Bare(), kind) is not None] == []
    assert extra_parameters(Bare()) == 0


def test_members_of_the_class_count_without_an_import() -> None:
    model = Charged()
    assert [kind.__name__ for kind in _protocols() if capability(model, kind) is model] == [
        "Penalised", "JointBackward", "ExtraParameters",
    ]  # fmt: skip
    assert extra_parameters(model) == 7


def test_members_of_the_object_count_and_those_of_another_do_not() -> None:
    model: Any = Bare()
    model.penalty = lambda: None
    assert capability(model, Penalised) is model and capability(Bare(), Penalised) is None
    model.affinity_every = 3
    assert capability(model, MeasuresAffinity) is None  # half of it
    model.add_affinity = lambda table: None
    assert capability(model, MeasuresAffinity) is model
    model.joint_backward = True
    assert capability(model, JointBackward) is model


def test_what_is_no_member_of_a_network_is_no_capability() -> None:
    model: Any = Bare()
    model.penalty = nn.Linear(1, 1)  # a module of this name is registered, not set
    assert capability(model, Penalised) is None and capability(model, KnowsEpochs) is None
    assert capability(nn.Linear(1, 1), UpdatesItself) is None


def test_half_of_a_pair_is_enough_where_networks_have_one() -> None:
    class Ending(MultiTaskModule):
        def on_epoch_end(self, epoch: int) -> None: ...

        def memory_state(self) -> dict[str, Any]:
            return {}

    assert capability(Ending(), EndsEpochs) is not None
    assert capability(Ending(), capabilities.BeginsEpochs) is None and capability(Ending(), KeepsMemory) is None
