"""Searches for cells as runs: cut off in any epoch, over two workers, with any balancer, and what they refuse."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen.cases import Case
from frozen.compute import in_memory, run_of
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from two_workers import two_workers

from mtlscale.config import UserError
from mtlscale.data import Workers
from mtlscale.nas.cells import Genotype
from mtlscale.training import Trainer, finish

TRAINING = {
    "epochs": 2, "batch_size": 5, "lr": 0.01, "dtype": "float64", "optimizer": "sgd", "momentum": 0.9,
    "checkpoint_seconds": 0, "selection": "last", "augment": "flip",
}  # fmt: skip
ENCODER = {"name": "darts_cells", "cells": 1, "channels": 2, "cutout": 4, "genotype": "random:3"}
SIZE = {"search_cells": 2, "search_channels": 2, "arch_lr": 0.1, "auxiliary": 0.0}
UNITS = {"parameter_unit": None, "flops_unit": None, "target_parameters": 0.3}
# Method, and its epochs of all phases.
SEARCHES: dict[str, tuple[dict[str, Any], int]] = {
    "darts": ({"name": "darts", **SIZE, "search_epochs": 1, "order": "second"}, 3),
    "pcdarts": ({"name": "pcdarts", **SIZE, "search_epochs": 2, "rest": 0.5, "part": 2, "auxiliary": 0.4}, 4),
    "pdarts": ({"name": "pdarts", **SIZE, "search_epochs": 3, "deeper": 1, "rest": 0.0}, 5),
    "e2rnas": ({"name": "e2rnas", **SIZE, **UNITS, "search_epochs": 2}, 4),
    "e2rnas under attack": ({"name": "e2rnas", **SIZE, **UNITS, "search_epochs": 1, "adversarial_weights": True}, 3),
}


class CutOff(Exception):
    pass


class CutOffBetweenPhases(Trainer):
    def _begin(self, place: int, found: Any) -> None:
        if place:
            raise CutOff
        super()._begin(place, found)


def test_a_run_cut_off_after_its_search_was_kept_has_all_epochs_in_its_record(tmp_path: Path) -> None:
    one = case({"name": "darts", **SIZE, "search_epochs": 2}, {"checkpoint_seconds": 1000})
    with pytest.raises(CutOff):
        finish(CutOffBetweenPhases(run_of(one), in_memory(one), folder=tmp_path))
    resumed, whole = finish(trainer_of(one, folder=tmp_path)), finish(trainer_of(one))
    assert [(e.phase, e.epoch) for e in resumed.epochs] == [(e.phase, e.epoch) for e in whole.epochs]
    assert resumed.metrics == whole.metrics and not resumed.phases[0].reused


def test_a_search_network_has_its_channels_last() -> None:
    """Weights of several edges at once have five dimensions, which that layout has not."""
    one = case({"name": "darts", **SIZE, "search_epochs": 1}, {"channels_last": True})
    trainer = trainer_of(one)
    assert trainer.model.stem[0].weight.is_contiguous(memory_format=torch.channels_last)
    values = [value for _, value in trainer.model.state_dict().items() if isinstance(value, Tensor)]
    plain = trainer_of(case({"name": "darts", **SIZE, "search_epochs": 1})).model.state_dict()
    assert max(value.dim() for value in values) == 5
    assert all(
        torch.equal(a, b) for a, b in zip(values, (v for v in plain.values() if isinstance(v, Tensor)), strict=True)
    )


def case(method: dict[str, Any], training: dict[str, Any] | None = None, **options: Any) -> Case:
    return Case("pictures", method, {**TRAINING, **(training or {})}, {"rows": 17, **options}, ENCODER)


def trainer_of(one: Case, workers: Workers | None = None, folder: Path | None = None) -> Trainer:
    return Trainer(run_of(one), in_memory(one), workers=workers, folder=folder)


def end_of(one: Case, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Parameters, what every epoch noted, the genotype, and losses at the end."""
    trainer = trainer_of(one, workers, folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    notes = [
        _numbers({**e.train_loss, **{k: v for k, v in e.traces.items() if k != "data_share"}}) for e in record.epochs
    ]
    return {
        **{name: value for name, value in trainer.model.state_dict().items() if isinstance(value, Tensor)},
        **{f"epoch {number}": torch.tensor(found).double() for number, found in enumerate(notes)},
        "genotype": torch.tensor(Genotype.of(record.structure["genotype"]).numbers()),
        "loss": torch.tensor([found["loss"] for found in record.metrics["test"].values()], dtype=torch.float64),
    }


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    return [number for one in value for number in _numbers(one)] if isinstance(value, list) else [float(value)]


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor], tolerance: float) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        gap, size = (value.double() - right[key].double()).norm(), value.double().norm()
        assert gap <= tolerance * size.clamp(min=1e-9), key


SMALL = {**SEARCHES["e2rnas"][0], "search_cells": 1}
undisturbed = functools.cache(lambda name: end_of(case(SMALL if name == "small" else SEARCHES[name][0])))


class _Cut(BaseException):
    pass


def cut_off(name: str, epochs: int, folder: Path) -> None:
    """A run that dies in a step after so many epochs, resumed, ends as undisturbed."""
    one = case(SMALL if name == "small" else SEARCHES[name][0])
    steps = trainer_of(one, folder=folder).train()
    for _ in range(epochs):
        next(steps)
    calls = [0]

    def cut(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise _Cut

    hook = register_optimizer_step_pre_hook(cut)
    with pytest.raises(_Cut):
        next(steps)
    hook.remove()
    resumed = trainer_of(one, folder=folder)
    next(resumed.train())
    assert len(resumed.at.epochs) == epochs + 1  # not from the start
    assert_close(undisturbed(name), end_of(one, folder=folder), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epochs"), [(n, e) for n, (_, total) in SEARCHES.items() for e in range(total)])
def test_any_search_cut_off_in_any_epoch_ends_as_undisturbed(
    name: str, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(name, epochs, tmp_path / "run")


@pytest.mark.slow
def test_two_workers_end_as_one_in_every_search() -> None:
    second = {**SEARCHES["e2rnas"][0], "search_epochs": 1, "order": "second"}
    cases = [case(method) for method in (second, *(found for found, _ in SEARCHES.values()))]
    found = two_workers(end_of, cases)[0]
    for one, both in zip(cases, found, strict=True):
        assert_close(end_of(one), both, 1e-7)


@pytest.mark.parametrize("balancer", ["pcgrad", "graddrop"])
def test_any_balancer_combines_the_five_losses(balancer: str) -> None:
    method = {"architecture": {**SMALL, "search_epochs": 1}, "balancer": balancer}
    trainer = trainer_of(case(method, {"epochs": 1, "steps_per_epoch": 1}))
    choice, weights = trainer.session.updaters
    assert choice.update.names == ("validation", "ood", "adversarial", "parameters", "flops")
    assert choice.update.balancer.name == balancer and weights.update.balancer.name == "equal"
    before = [logits.detach().clone() for logits in trainer.model.choices()]  # type: ignore[operator]
    entry = next(trainer.train())
    assert list(entry.traces["architecture.losses"]) == list(choice.update.names)
    if balancer != "graddrop":
        assert list(entry.traces["architecture.weights"]) == list(choice.update.names)
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.choices(), strict=True))  # type: ignore[operator]


def test_by_itself_it_takes_the_thesis_mgda() -> None:
    [choice, weights] = trainer_of(case(SEARCHES["e2rnas"][0])).session.updaters
    assert (choice.update.balancer.name, choice.update.balancer.normalize) == ("mgda", "l2")  # type: ignore[attr-defined]
    assert choice.optimizer.param_groups[0]["betas"] == (0.5, 0.999)
    assert set(weights.sampler.sizes) == set(choice.sampler.sizes) == {"all", "ood"}
    assert weights.sampler.steps == 2  # of a half of 17 samples, five at a time
    weights.schedule(10, 10)
    assert weights.lr == pytest.approx(0.001)


def test_parts_of_it_may_be_left_out_and_nobody_else_sees_other_images() -> None:
    plain = {**SEARCHES["e2rnas"][0], "ood": False, "adversarial": False, "target_parameters": None}
    for method, names in ((plain, ("validation",)), (SEARCHES["darts"][0], ("validation",))):
        updaters = trainer_of(case(method)).session.updaters
        assert updaters[0].update.names == names
        assert all(set(updater.sampler.sizes) == {"all"} for updater in updaters)
    attacks = [
        trainer_of(case(SEARCHES[name][0])).session.updaters[1].source.epsilon
        for name in ("e2rnas", "e2rnas under attack")
    ]
    assert attacks == [None, 2 / 255]
    shorter = trainer_of(case({**SEARCHES["e2rnas"][0], "adversarial": False})).session.updaters[0]
    assert shorter.update.names == ("validation", "ood", "parameters", "flops")


def test_choices_rest_at_first() -> None:
    trainer = trainer_of(case(SEARCHES["pcdarts"][0]))
    before = [logits.detach().clone() for logits in trainer.model.choices()]  # type: ignore[operator]
    steps = trainer.train()
    entry = next(steps)
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.choices(), strict=True))  # type: ignore[operator]
    assert "architecture.losses" not in entry.traces
    next(steps)
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.choices(), strict=True))  # type: ignore[operator]


def test_a_search_s_file_is_trained_at_once_and_one_of_another_space_refused(tmp_path: Path) -> None:
    short = {**SMALL, "search_epochs": 1}
    trainer = trainer_of(case(short, {"epochs": 1}), folder=tmp_path)
    record = finish(trainer)
    [file] = trainer.phase_files()
    again = finish(trainer_of(case({**short, "found": str(file)}, {"epochs": 1})))
    assert not again.phases and again.structure == record.structure and again.metrics == record.metrics
    content = torch.load(file, weights_only=True)
    content["found"]["space"]["operations"].append("sep7")
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(UserError, match="e2rnas: found is of another space of cells; drop it to search anew"):
        trainer_of(case({**short, "found": str(tmp_path / "other.pt")}))


def test_a_round_that_others_follow_is_no_result(tmp_path: Path) -> None:
    method = {**SEARCHES["pdarts"][0], "search_cells": 1, "deeper": 0}
    trainer = trainer_of(case(method, {"epochs": 1, "steps_per_epoch": 1}), folder=tmp_path)
    kept = [finish(trainer) and torch.load(file, weights_only=True)["found"] for file in trainer.phase_files()]
    assert [{len(edge) for cell in found["kept"] for edge in cell} for found in kept[:2]] == [{5}, {3}]
    assert all(
        set(e) <= set(o)
        for a, b in zip(kept[1]["kept"], kept[0]["kept"], strict=True)
        for e, o in zip(a, b, strict=True)
    )
    genotype = Genotype.of(kept[2]["genotype"])
    assert sum(what == "skip" for node in genotype.normal for what, _ in node) <= 2
    with pytest.raises(UserError, match="the result of a round with another after it; name the last one's file"):
        trainer_of(case({**method, "found": str(trainer.phase_files()[0])}))


@pytest.mark.parametrize(
    ("method", "more", "what"),
    [
        (
            {"target_parameters": 2.0},
            {},
            r"target_parameters = 2 .* no network of the space can reach that; .* from 0 to 1$",
        ),
        ({"target_flops": 2.0}, {}, "target_flops = 2 .* no network of the space can reach that"),
        ({}, {"elsewhere": False}, "e2rnas needs images from elsewhere, pictures has no stream 'ood'"),
        ({"epsilon": 0.0}, {}, r"e2rnas: epsilon = 0.0 is outside \(0, 1\]"),
    ],
)
def test_what_no_search_can_do_is_refused(method: dict[str, Any], more: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        trainer_of(case({**SEARCHES["e2rnas"][0], **method}, **more))


def test_precision_and_encoders_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="a search for cells scales no gradients: set amp to bf16 or off"):
        trainer_of(case(SEARCHES["darts"][0], {"dtype": "float32", "amp": "fp16"}))
    with pytest.raises(UserError, match="second looks one step of SGD ahead: set accumulate to 1"):
        next(trainer_of(case(SEARCHES["darts"][0], {"accumulate": 2})).train())
    other = Case("pictures", {"name": "darts"}, TRAINING, encoder={"name": "resnet18", "width": 2, "stem": "small"})
    with pytest.raises(UserError, match="darts trains networks of cells; set the encoder to darts_cells"):
        trainer_of(other)
    several = Case("images", {"name": "darts"}, TRAINING, {}, ENCODER)
    with pytest.raises(UserError, match="darts is for one task of classification on images, images has 2"):
        trainer_of(several)
