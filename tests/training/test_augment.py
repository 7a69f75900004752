"""Images and their maps change together, and by run, epoch and sample alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError
from mtlscale.data import Samples
from mtlscale.training.augment import SCALES, Augment

TASKS = (
    Task(name="segmentation", loss="cross_entropy", outputs=9, metrics=("miou",)),
    Task(name="depth", loss="l1", outputs=1, metrics=("abs_err",)),
    Task(name="inverse_depth", loss="l1", outputs=1, metrics=("abs_err",)),
    Task(name="normals", loss="cosine", outputs=3, metrics=("angle_mean",)),
    Task(name="edges", loss="l1", outputs=1, metrics=("mae",)),
    Task(name="smiling", loss="bce", outputs=1, metrics=("error",)),
)
HEIGHT, WIDTH, COUNT = 12, 15, 40


def suite(kind: str = "image") -> TaskSuite:
    shape = (3, HEIGHT, WIDTH)
    return TaskSuite(name="pictures", tasks=TASKS, inputs="shared", input_kind=kind, input_shape=shape)  # type: ignore[arg-type]


def samples() -> Samples:
    """Every map says in each pixel where it comes from."""
    generator = torch.Generator().manual_seed(0)
    place = torch.arange(HEIGHT * WIDTH, dtype=torch.float32).reshape(1, 1, HEIGHT, WIDTH).repeat(COUNT, 1, 1, 1)
    ramp = (torch.arange(WIDTH) * 10 + 20).to(torch.uint8).expand(COUNT, 3, HEIGHT, WIDTH).clone()
    classes = place[:, 0].long()
    classes[:, 0, 0] = MISSING_CLASS
    depth = place + 1.0
    depth[:, :, 1, 1] = math.nan
    normals = torch.nn.functional.normalize(torch.randn(COUNT, 3, HEIGHT, WIDTH, generator=generator), dim=1)
    maps = {"segmentation": classes, "depth": depth, "inverse_depth": depth.clone(), "edges": depth.clone()}
    return Samples(ramp, {**maps, "normals": normals, "smiling": torch.arange(COUNT).float()})


def changed(kind: str, index: torch.Tensor, epoch: int = 1, seed: int = 7) -> Samples:
    return Augment(kind, suite(), seed)(samples().take(index), "all", epoch, index)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(nan=-9.0), other.nan_to_num(nan=-9.0))


@pytest.mark.parametrize("kind", ["flip", "scale_crop", "shift", "shift_cutout"])
def test_the_same_whatever_the_batch_and_another_in_another_epoch(kind: str) -> None:
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    whole, parts = changed(kind, torch.arange(COUNT)), [changed(kind, part) for part in order.split(7)]
    assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs[order])
    for name, target in whole.targets.items():
        assert same(torch.cat([part.targets[name] for part in parts]), target[order])
    assert not torch.equal(changed(kind, torch.arange(COUNT), epoch=2).inputs, whole.inputs)
    assert not torch.equal(changed(kind, torch.arange(COUNT), seed=8).inputs, whole.inputs)
    assert len(changed(kind, torch.arange(0)).inputs) == 0


def test_a_flip_mirrors_everything_and_turns_normals_round() -> None:
    before, after = samples(), changed("flip", torch.arange(COUNT))
    flipped = (after.inputs[:, 0, 0, 0] > after.inputs[:, 0, 0, -1]).tolist()
    assert 8 < sum(flipped) < 32
    sign = torch.tensor([-1.0, 1.0, 1.0])[:, None, None]
    for i, mirrored in enumerate(flipped):
        for name in ("segmentation", "depth", "inverse_depth", "edges"):
            old = before.targets[name][i]
            assert same(after.targets[name][i], old.flip(-1) if mirrored else old)
        old = before.targets["normals"][i]
        assert torch.equal(after.targets["normals"][i], old.flip(-1) * sign if mirrored else old)
    assert torch.equal(after.targets["smiling"], before.targets["smiling"])


def test_a_crop_takes_the_same_pixels_of_every_map_and_corrects_depth() -> None:
    before, after = samples(), changed("scale_crop", torch.arange(COUNT))
    scales: dict[float, int] = {}
    for i in range(COUNT):
        draws = Augment("scale_crop", suite(), 7).draws("all", 1, i)
        scale = SCALES[int(draws[1] * 3)]
        scales[scale] = scales.get(scale, 0) + 1
        classes, edges = after.targets["segmentation"][i], after.targets["edges"][i, 0]
        there = (classes != MISSING_CLASS) & ~edges.isnan()
        assert torch.equal(classes[there].float() + 1.0, edges[there])
        depth, inverse = (after.targets[name][i, 0] for name in ("depth", "inverse_depth"))
        torch.testing.assert_close(depth[there] * scale, edges[there])
        torch.testing.assert_close(inverse[there] / scale, edges[there])
        columns = (edges[-1] - 1) % WIDTH
        assert int(columns.max() - columns.min()) in range(int(WIDTH / scale) - 2, WIDTH)
        assert bool((columns.diff() <= 0).all()) == (draws[0] < 0.5)
        # The picture's ramp says the same: 10 levels a column, interpolated.
        found = (after.inputs[i, 0, -1].float() - 20) / 10
        assert (found - columns).abs().max() <= 0.56
        if scale == 1.0 and draws[0] >= 0.5:
            assert torch.equal(after.inputs[i], before.inputs[i]) and same(depth, before.targets["depth"][i, 0])
    assert set(scales) == set(SCALES)
    lengths = after.targets["normals"].norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_only_images_can_be_changed() -> None:
    with pytest.raises(UserError, match=r"training\.augment: flip changes images, pictures has vectors"):
        Augment("flip", suite("vector"), 0)


def test_run_ids_know_augmentation(small: Any, uneven: Any, run_of: Any) -> None:
    data = uneven()
    plain = run_of(small(methods="[equal]"), data)
    training = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, augment: %s}"
    told, other = (run_of(small(methods="[equal]", training=training % kind), data) for kind in ("none", "flip"))
    assert plain.run_id == told.run_id != other.run_id


def test_shift_is_the_padded_crop_and_flip_of_the_reference() -> None:
    """Against padding, cropping and mirroring one by one, with the drawn numbers."""
    whole = torch.arange(COUNT * 3 * 16 * 24).reshape(COUNT, 3, 16, 24) % 251 + 1
    target = whole[:, 0].clone()
    pictures = Samples(whole.to(torch.uint8), {"segmentation": target, "depth": target[:, None].double()})
    augment = Augment("shift", suite(), 7)
    found = augment(pictures, "all", 3, torch.arange(COUNT))
    seen = set()
    for row in range(COUNT):
        flip, _, x, y = augment.draws("all", 3, row)
        left, top = int(x * 7), int(y * 5)
        seen.add((left, top))
        for one, pad, what in (
            (found.inputs[row], 0, pictures.inputs[row]),
            (found.targets["segmentation"][row], MISSING_CLASS, target[row]),
            (found.targets["depth"][row, 0], math.nan, target[row].double()),
        ):
            padded = torch.nn.functional.pad(what, (3, 3, 2, 2), value=pad)[..., top : top + 16, left : left + 24]
            assert same(one.double(), (padded.flip(-1) if flip < 0.5 else padded).double())
    assert {left for left, _ in seen} == set(range(7)) and {top for _, top in seen} == set(range(5))


def test_cutout_is_a_square_of_half_the_side_in_the_mean_colour() -> None:
    from dataclasses import replace

    pictures = Samples(torch.full((COUNT, 3, 32, 32), 200, dtype=torch.uint8), {})
    named = replace(suite(), input_shape=(3, 32, 32), extras={"mean": [10.4, 20.6, 30.0]})
    plain, cut = (
        Augment(kind, named, 5)(pictures, "all", 1, torch.arange(COUNT)) for kind in ("shift", "shift_cutout")
    )
    changed = (plain.inputs != cut.inputs).any(1) | (cut.inputs == torch.tensor([10, 21, 30])[:, None, None]).all(1)
    sizes = changed.sum((1, 2))
    assert sizes.max() == 16 * 16 and 8 * 8 <= sizes.min() < 16 * 16 and 180 < sizes.double().mean() < 250
    assert (cut.inputs.movedim(1, -1)[changed] == torch.tensor([10, 21, 30])).all()
    assert torch.equal(cut.inputs.movedim(1, -1)[~changed], plain.inputs.movedim(1, -1)[~changed])
