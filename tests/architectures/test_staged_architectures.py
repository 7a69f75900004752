"""Architectures on encoders with stages: images in, maps or labels out, and the operation that defines each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtlscale.architectures import EpochView
from mtlscale.architectures.hard.maxroam import roam
from mtlscale.architectures.hard.rotograd import RotoGradModule, orthogonal, scaled, turned
from mtlscale.architectures.hard.tsn import normalised
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples
from mtlscale.encoders import EncoderModule
from mtlscale.training.losses import task_loss

ENCODERS: dict[str, dict[str, Any]] = {
    "resnet18": {"width": 2, "stem": "small"},
    "deeplab_resnet18": {"width": 2, "stem": "small", "head_width": 3, "rates": [1, 2]},
}
# Of the architectures that run on images, those whose sizes are set small here; of the others the defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "afa": {"reduction": 2},
    "bmtas": {"warmup": 0.0},
    "branched": {"points": [1, 3, 6]},
    "cgc": {"top": 3},
    "conal": {},
    "conal_plus": {"blocks": 1},
    "conal_pro": {},
    "cross_stitch": {},
    "dsmtl_al": {},
    "dsmtl_jl": {},
    "hps": {},
    "hps_plus": {"blocks": 1},
    "ltb": {},
    "maxroam": {},
    "mmoe": {"top": 3, "experts": 2},
    "mtan": {},
    "mtl_nas": {},
    "nddr_cnn": {},
    "ple": {"top": 3, "layers": 3},
    "rotograd": {},
    "stl": {},
    "tsn": {"code": 4, "top": 5},
}
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("cross_stitch", "deeplab_resnet18", {"units": "channel"}),
    ("dsmtl_jl", "segnet", {"after": 3}),
    ("dsmtl_jl", "resnet18", {"alpha": 0.5}),
    ("nddr_cnn", "deeplab_resnet18", {"shortcut": False}),
    ("conal", "deeplab_resnet18", {"private": "partial"}),
    ("conal", "segnet", {}),
    ("conal_pro", "segnet", {}),
    ("cross_stitch", "resnet18", {"bottom": "own", "top": 3}),
    ("mtan", "segnet", {}),
    ("mtan", "deeplab_resnet18", {"form": "resnet"}),
    ("rotograd", "deeplab_resnet18", {"channels": 5}),
    ("tsn", "deeplab_resnet18", {"decoder": "head", "code": 4, "top": 5}),
    ("tsn", "resnet18", {"decoder": "head", "code": 4, "top": 5}),
    ("hps_plus", "deeplab_resnet18", {"blocks": 1, "after": 4}),
]
EVERY = [(name, encoder, OPTIONS[name]) for name in OPTIONS for encoder in ENCODERS] + MORE
IDS = ["-".join([name, encoder, *map(str, options)]) for name, encoder, options in EVERY]
every = pytest.mark.parametrize(("name", "encoder", "options"), EVERY, ids=IDS)
# An architecture meets both encoders in `every`; where its encoder is no matter, the second is left to the slow suite.
BOTH = ("stl", "hps", "tsn", "mtan", "cross_stitch", "rotograd")
of_one_encoder = pytest.mark.parametrize(
    ("name", "encoder", "options"),
    [
        pytest.param(
            name,
            encoder,
            options,
            id=id,
            marks=[pytest.mark.slow] * (encoder == "resnet18" and name not in BOTH and options == OPTIONS[name]),
        )
        for (name, encoder, options), id in zip(EVERY, IDS, strict=True)
    ],
)


def suite(maps: bool, size: int = 8) -> TaskSuite:
    tasks = (
        (
            Task(name="a", loss="cross_entropy", outputs=4, metrics=("miou",)),
            Task(name="b", loss="l1", outputs=1, metrics=("abs_err",)),
            Task(name="c", loss="cosine", outputs=3, metrics=("angle_mean",)),
        )
        if maps
        else tuple(Task(name=name, loss="bce", outputs=1, metrics=("error",)) for name in "abc")
    )
    return TaskSuite(
        name="three", tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, size, size), extras={}
    )


def size_of(encoder: str) -> int:
    return 32 if encoder == "segnet" else 8


def build(name: str, encoder: str, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    of = suite(encoder != "resnet18", size_of(encoder))
    recipe = components.build("encoders", encoder, ENCODERS.get(encoder, {"width": 2}))
    model = components.build("architectures", name, options).build(of, lambda: recipe.build(of), 0.0)
    if name == "bmtas":  # candidates start alike, so that at first it does not matter which one is chosen
        with torch.no_grad():
            for parameter in model.nodes.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch(encoder: str, *tasks: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    size = size_of(encoder)
    inputs = torch.randint(0, 256, (4, 3, size, size), generator=generator, dtype=torch.uint8)
    targets: dict[str, Tensor] = {}
    for task in suite(encoder != "resnet18").tasks:
        if encoder == "resnet18":
            targets[task.name] = torch.randint(2, (4,), generator=generator).double()
        elif task.loss == "cross_entropy":
            targets[task.name] = torch.randint(4, (4, size, size), generator=generator)
        else:
            targets[task.name] = torch.rand(4, task.outputs, size, size, generator=generator) + 0.1
    return Batch("all", Samples(inputs, {task: targets[task] for task in tasks or targets}), 4)


def gradients(model: nn.Module, given: Batch, encoder: str, task: str) -> dict[str, Tensor | None]:
    recipe = next(t for t in suite(encoder != "resnet18").tasks if t.name == task)
    loss, _ = task_loss(recipe.loss, model(given).predictions[task], given.samples.targets[task])
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True))


def moved(found: dict[str, Tensor | None]) -> set[str]:
    return {key for key, gradient in found.items() if gradient is not None and bool((gradient != 0).any())}


@every
def test_parameters_are_shared_or_of_one_task_and_losses_move_their_own(
    name: str, encoder: str, options: dict[str, Any]
) -> None:
    model = build(name, encoder, **options)
    names = {id(p): key for key, p in model.named_parameters()}
    groups = {task: {names[id(p)] for p in model.task_parameters(task)} for task in "abc"}
    shared = [names[id(p)] for p in model.shared_parameters()]
    together = [*shared, *(key for group in groups.values() for key in group)]
    assert len(set(together)) == len(together) and set(together) == set(names.values())
    given = batch(encoder)
    found = {task: moved(gradients(model, given, encoder, task)) for task in "abc"}
    for task, keys in found.items():
        assert not keys & set().union(*(group for other, group in groups.items() if other != task)), task
        # Units that a ReLU switches off for these few pixels get no gradient; nearly everything moves.
        assert len(keys & groups[task]) >= 0.6 * len(groups[task]), task
    counts = [sum(key in keys for keys in found.values()) for key in shared]
    assert sum(count > 1 for count in counts) >= 0.9 * len(shared)


@of_one_encoder
def test_predictions_have_the_tasks_shape_and_do_not_depend_on_the_other_tasks(
    name: str, encoder: str, options: dict[str, Any]
) -> None:
    model = build(name, encoder, **options)
    model.eval()
    together = model(batch(encoder)).predictions
    for task in suite(encoder != "resnet18").tasks:
        size = size_of(encoder)
        shape = (4, 1) if encoder == "resnet18" else (4, task.outputs, size, size)
        assert together[task.name].shape == shape
        alone = model(batch(encoder, task.name)).predictions
        assert set(alone) == {task.name}
        torch.testing.assert_close(alone[task.name], together[task.name], rtol=1e-10, atol=1e-12)


@of_one_encoder
def test_everything_travels_in_the_state(name: str, encoder: str, options: dict[str, Any]) -> None:
    one, other = (build(name, encoder, seed, **options) for seed in (0, 1))
    one(batch(encoder))  # moves running statistics
    other.load_state_dict(one.state_dict())
    one.eval(), other.eval()
    for task, prediction in one(batch(encoder)).predictions.items():
        assert torch.equal(other(batch(encoder)).predictions[task], prediction)


@pytest.mark.parametrize("name", ["dmtrl", "separate", "shared_bottom", "single", "tomato", "topicwise"])
def test_layers_for_vectors_refuse_maps_by_name(name: str) -> None:
    with pytest.raises(UserError, match=r"vectors|one size"):
        build(name, "deeplab_resnet18")


@pytest.mark.parametrize("name", ["mtan", "nddr_cnn", "afa"])
def test_encoders_without_stages_are_refused_by_name(name: str) -> None:
    of = suite(maps=False)
    recipe = components.build("encoders", "mlp")
    with pytest.raises(UserError, match=f"{name} works between the stages"):
        components.build("architectures", name).build(of, lambda: recipe.build(of), 0.0)


# -- what defines each, by hand ------------------------------------------------------------------------------------


def stacked(*values: float) -> Tensor:
    """Features [T, 1, 2, 1, 1]: of each task two channels at one place, the second ten times the first."""
    return torch.tensor([[v, 10 * v] for v in values]).reshape(len(values), 1, 2, 1, 1)


def test_cross_stitch_starts_with_nine_tenths_of_its_own() -> None:
    model = build("cross_stitch", "resnet18")
    found = model.exchange(1, 1, stacked(1.0, 2.0, 4.0))
    assert found.flatten().tolist() == pytest.approx([0.05 * 1 + 0.9 * 2 + 0.05 * 4, 10 * 2.05])
    assert len(model.units) == 5


def test_cross_stitch_with_the_identity_is_single_task_learning() -> None:
    model, single = build("cross_stitch", "resnet18"), build("stl", "resnet18")
    single.encoders.load_state_dict(model.encoders.state_dict())
    single.heads.load_state_dict(model.heads.state_dict())
    for stage in model.units:
        for task, row in enumerate(stage):
            row.data.copy_(torch.eye(3)[task][:, None])
    for task, prediction in single(batch("resnet18")).predictions.items():
        torch.testing.assert_close(model(batch("resnet18")).predictions[task], prediction, rtol=1e-12, atol=1e-12)


def test_nddr_starts_with_nine_tenths_of_its_own_before_normalisation() -> None:
    model = build("nddr_cnn", "resnet18")
    convolution = model.layers[0][1][0]
    found = convolution(torch.cat(list(stacked(1.0, 2.0, 4.0)), dim=1))
    assert found.flatten().tolist() == pytest.approx([2.05, 20.5])
    assert model.shortcuts[0][0].in_channels == sum(model.encoders[0].widths)


def test_afa_adds_what_two_gates_let_through() -> None:
    model = build("afa", "resnet18", reduction=2)
    layer = model.layers[0][0]
    for gate in layer.channel:
        nn.init.zeros_(gate[2].weight)
    layer.channel[0][2].bias.data.copy_(torch.tensor([3.0, -3.0]))  # of task 1
    layer.channel[1][2].bias.data.fill_(-50.0)  # nothing of task 2
    nn.init.zeros_(layer.place.weight)
    layer.place.bias.data.fill_(1.0)
    one, other = torch.tensor([3.0, -3.0]).sigmoid().tolist()
    place = torch.tensor(1.0).sigmoid().item()
    expected = [5 + place * one * 2, 50 + place * other * 20]
    assert layer(stacked(5.0, 2.0, 7.0)).flatten().tolist() == pytest.approx(expected)


def test_mtan_masks_the_shared_features() -> None:
    model = build("mtan", "resnet18").eval()
    shared = [torch.rand(1, width, 4 >> (stage // 2), 4) + 0.5 for stage, width in enumerate(model.encoder.widths)]
    for stage in model.masks[0]:
        stage[4].weight.data.zero_()
        stage[4].bias.data.fill_(0.4)
    found = model.attend(0, shared)
    torch.testing.assert_close(found, shared[-1] * torch.tensor(0.4).sigmoid())
    last = model.masks[1][-1]
    seen: list[Tensor] = []
    last.register_forward_hook(lambda module, given, result: seen.extend((given[0], result)))
    found = model.attend(1, shared)
    torch.testing.assert_close(found, seen[1] * shared[-1])
    assert torch.equal(seen[0][:, : shared[-1].shape[1]], shared[-1]) and seen[0].shape[1] == 2 * shared[-1].shape[1]
    assert seen[1].min() >= 0 and seen[1].max() <= 1


def test_tsn_scales_and_shifts_normalised_features_by_the_tasks_code() -> None:
    model = build("tsn", "deeplab_resnet18", code=4, top=2)
    features = torch.randn(3, 2, 5, 4) * 7 + 3
    even = normalised(features)
    assert even.mean((2, 3)).abs().max() < 1e-12 and (even.var((2, 3), correction=0) - 1).abs().max() < 1e-5
    model.embedding[2].weight.data.zero_()
    model.embedding[2].bias.data.copy_(torch.tensor([1.0, -0.5, 0.25, 0.75]))
    found = model.conditioned(even, 1)
    torch.testing.assert_close(found[:, 0], F.relu(2.0 * even[:, 0] + 0.25))
    torch.testing.assert_close(found[:, 1], F.relu(0.5 * even[:, 1] + 0.75))


def test_every_channel_of_maxroam_meets_every_task() -> None:
    model = build("maxroam", "resnet18", share=0.4)  # of three tasks: one
    mask = model.masks_2
    assert set(mask.unique().tolist()) == {0.0, 1.0} and (mask.sum(0) == 1).all()
    for epoch in (1, 2):
        assert model.met_2.sum(0).tolist() == [epoch] * 4
        model.on_epoch_end(EpochView(epoch))
        assert (model.masks_2.sum(0) == 1).all()
    assert (model.met_2 == 1).all()
    settled = model.masks_2.clone()
    model.on_epoch_end(EpochView(3))
    assert torch.equal(model.masks_2, settled)


def test_a_move_of_maxroam_by_hand() -> None:
    mask = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    met = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    moved_, seen = roam(mask, met, torch.Generator().manual_seed(0))
    assert moved_.tolist() == [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]  # channel 0 goes to task 2; channel 1 has met all
    assert (seen == 1).all()


def test_masked_channels_of_maxroam_do_not_reach_the_task() -> None:
    model = build("maxroam", "resnet18", share=0.4)
    found = model.masked(torch.ones(1, 4, 2, 2), 2, 0)
    assert torch.equal(found[0, :, 0, 0], model.masks_2[0])


def test_a_turn_of_rotograd_in_the_plane() -> None:
    """d = 2, R = I, gradient -e₁e₂ᵀ: the rotation turns e₂ towards e₁, by twice the arc tangent of half the step."""
    gradient = torch.tensor([[[0.0, -1.0], [0.0, 0.0]]])
    (found,) = turned(torch.eye(2)[None], gradient, 0.2)
    angle = 2 * torch.tensor(0.05).arctan()
    expected = torch.stack([torch.stack([angle.cos(), angle.sin()]), torch.stack([-angle.sin(), angle.cos()])])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.T @ found, torch.eye(2))


class Passing(EncoderModule):
    """Gives its inputs times a weight."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight


def two_tasks(rate: float) -> RotoGradModule:
    """Two tasks on features [2] that are a weight's multiples of the inputs, their heads the identity."""
    tasks = tuple(Task(name=name, loss="mse", outputs=2, metrics=("mse",)) for name in "ab")
    of = TaskSuite(name="two", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(2,))
    model = components.build("architectures", "rotograd", {"rate": rate}).build(of, lambda: Passing(2), 0.0)
    for head in model.heads:
        head[1].weight.data.copy_(torch.eye(2))
        head[1].bias.data.zero_()
    return model


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_rotations_of_rotograd_stay_orthogonal(rate: float) -> None:
    """2,000 steps in float32; in float64 nothing changes."""
    generator, model = torch.Generator().manual_seed(0), two_tasks(rate)
    drifting = torch.eye(16, dtype=torch.float32).repeat(2, 1, 1)
    model.rotations = drifting.clone()
    for _ in range(2000):
        gradient = torch.randn(2, 16, 16, dtype=torch.float32, generator=generator)
        gradient = gradient / gradient.norm(dim=(1, 2), keepdim=True)
        model.gathered, model.norms = gradient, torch.ones(2)
        model.after_step(0.1, lambda tensor: tensor)
        drifting = turned(drifting, gradient, rate)

    def error(found: Tensor) -> float:
        exact = found.double()
        return float((exact.mT @ exact - torch.eye(16, dtype=torch.float64)).abs().max())

    assert error(model.rotations) <= 1e-6 < error(drifting)
    exact = turned(
        torch.linalg.qr(torch.randn(2, 16, 16, dtype=torch.float64, generator=generator))[0], gradient.double(), rate
    )
    assert float((orthogonal(exact) - exact).abs().max()) <= 1e-14


def test_rotograd_changes_with_the_steps_that_are_taken_alone() -> None:
    """A backward pass leaves rotations and first norms as they are; a step that was not taken leaves no trace."""
    model = two_tasks(rate=0.3)

    def pull(length: float) -> None:
        found = model(Batch("all", Samples(torch.full((3, 2), 0.01), {"a": torch.zeros(3, 2)}), 3)).predictions["a"]
        (length * found.sum()).backward()

    start = model.rotations.clone()
    pull(float("inf"))
    model.discard_step()
    model.after_step(0.1, lambda tensor: tensor)
    assert torch.equal(model.rotations, start)
    assert model.first.tolist() == [0.0, 0.0]
    pull(2.0)
    assert model.first.tolist() == [0.0, 0.0]
    model.after_step(0.1, lambda tensor: tensor)
    first = model.first.clone()
    assert first.tolist() == pytest.approx([2.0 * 6**0.5, 0.0])
    assert model.extra_parameter_count() == 2 * 2 * 2
    pull(5.0)
    model.after_step(0.1, lambda tensor: tensor)
    assert torch.equal(model.first, first)


def test_rotograd_scales_gradients_to_a_common_norm() -> None:
    """Norms 2 and 6, at first 1 and 6: rates 2 and 1, γ = 2/3 and 1/3, common norm 2/3·2 + 1/3·6 = 10/3."""
    factors = scaled(torch.tensor([2.0, 6.0]), torch.tensor([1.0, 6.0]))
    assert factors.tolist() == pytest.approx([10 / 6, 10 / 18])
    assert scaled(torch.tensor([0.0, 3.0]), torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.0, 1.0])


def test_rotograds_rotations_bring_opposed_gradients_together() -> None:
    """Two tasks pull one vector in opposite directions; with rotations alone their gradients at it come to agree."""
    model = two_tasks(rate=0.3)
    goals = {"a": torch.tensor([2.0, 0.1]).expand(3, 2), "b": torch.tensor([-2.0, 0.1]).expand(3, 2)}
    given = Batch("all", Samples(torch.full((3, 2), 0.01), goals), 3)

    def losses() -> list[Tensor]:
        found = model(given).predictions
        return [(found[task] - goal).square().sum() for task, goal in goals.items()]

    def agreement() -> float:
        one, other = (torch.autograd.grad(losses()[i], model.encoder.weight)[0] for i in range(2))
        return float(F.cosine_similarity(one, other, dim=0))

    before = agreement()
    for _ in range(40):
        sum(losses()).backward()  # type: ignore[union-attr]
        model.after_step(0.1, lambda tensor: tensor)
    assert before < -0.9 and agreement() > 0.9
    for rotation in model.rotations:
        torch.testing.assert_close(rotation.T @ rotation, torch.eye(2))
        assert torch.linalg.det(rotation).item() == pytest.approx(1.0)


def test_rotograd_turns_its_first_channels_alone() -> None:
    """With two of three channels turned, the third passes as it is, and its gradients are the plain sum."""
    tasks = tuple(Task(name=name, loss="mse", outputs=3, metrics=("mse",)) for name in "ab")
    of = TaskSuite(name="two", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(3,))
    encoder = Passing(3)
    model = components.build("architectures", "rotograd", {"channels": 2, "scale": False}).build(of, lambda: encoder, 0)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    model.rotations[0].copy_(quarter)
    model.heads[0] = nn.Identity()
    model.heads[1] = nn.Identity()
    inputs = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    model.encoder = nn.Identity()
    found = model(Batch("all", Samples(inputs, {"a": torch.zeros(1, 3), "b": torch.zeros(1, 3)}), 1)).predictions
    assert found["a"].tolist() == [[-2.0, 1.0, 3.0]] and found["b"].tolist() == [[1.0, 2.0, 3.0]]
    pull = torch.tensor([1.0, 10.0, 100.0])
    ((found["a"] + 2 * found["b"]) * pull).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.tolist() == [[10.0 + 2.0, -1.0 + 20.0, 300.0]]
    capped = components.build("architectures", "rotograd", {"channels": 99}).build(of, lambda: encoder, 0)
    assert capped.rotations.shape == (2, 3, 3)


def test_rotograd_needs_one_input_for_all_tasks() -> None:
    tasks = tuple(Task(name=name, loss="mse", outputs=2, metrics=("mse",)) for name in "ab")
    of = TaskSuite(name="two", tasks=tasks, inputs="per_task", input_kind="vector", input_shape=(2,))
    with pytest.raises(UserError, match="two has inputs of its own per task"):
        components.build("architectures", "rotograd").build(of, lambda: Passing(2), 0.0)


@pytest.mark.parametrize("name", ["hps_plus", "conal_plus"])
def test_extra_blocks_are_in_the_stage_that_is_named(name: str) -> None:
    """The fourth module of five is half as wide as the last, so a block of it has about a quarter of the parameters."""
    sizes = {}
    for after in (None, 4, 5):
        encoder = build(name, "resnet18", blocks=3, after=after)
        stages = (encoder.encoder if name == "hps_plus" else encoder.shared).stages
        sizes[after] = [sum(p.numel() for p in stage.parameters()) for stage in stages]
    plain = build("hps", "resnet18").encoder.stages
    extra = [s - sum(p.numel() for p in stage.parameters()) for s, stage in zip(sizes[4], plain, strict=True)]
    assert sizes[None] == sizes[5] and [size > 0 for size in extra] == [False, False, False, True, False]
    with pytest.raises(UserError, match=rf"{name}: after = 6 is outside 1\.\.5, the stages of this encoder"):
        build(name, "resnet18", after=6)
