"""Covariance alignment: what it equals at first, what it moves, and that it undoes a rotation of a task's inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples
from mtlscale.solvers import covariance_similarities

TASKS = ("a", "b")
ENCODERS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [5, 4]},
    "averaged": {"dimensions": 4, "hidden": [5]},
    "transformer": {"dimensions": 4, "heads": 2, "inner": 3, "dropout": 0.0},
    "lstm": {"dimensions": 4, "hidden": 3},
    "bilstm": {"dimensions": 4, "hidden": 3},
    "textcnn": {"dimensions": 4, "filters": 3, "widths": [2, 3]},
}


def suite(encoder: str) -> TaskSuite:
    tasks = tuple(Task(name=name, loss="cross_entropy", outputs=3, metrics=("error",)) for name in TASKS)
    if encoder == "mlp":
        return TaskSuite(name="two", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(6,))
    return TaskSuite(
        name="two", tasks=tasks, inputs="shared", input_kind="tokens", input_shape=(7,), vocabulary_size=20
    )


def batch(encoder: str) -> Batch:
    inputs = torch.randn(8, 6) if encoder == "mlp" else torch.randint(0, 20, (8, 7))
    return Batch("all", Samples(inputs, {task: torch.randint(3, (8,)) for task in TASKS}), 8)


def build(name: str, encoder: str, **options: Any) -> Any:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    return components.build("architectures", name, options).build(of, lambda: recipe.build(of), 0.0)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_at_first_it_is_hard_sharing(encoder: str) -> None:
    given, one, other = batch(encoder), build("aligned", encoder, together=True), build("hps", encoder)
    for task, expected in other(given).predictions.items():
        torch.testing.assert_close(one(given).predictions[task], expected)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_second_phase_moves_alignments_and_heads_alone(encoder: str) -> None:
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    architecture = components.build("architectures", "aligned")
    first, given = build("aligned", encoder), batch(encoder)
    model = architecture.build_next("alignment", first.phase_output(), of, lambda: recipe.build(of), 0.0)
    for task, expected in first.eval()(given).predictions.items():
        torch.testing.assert_close(model.eval()(given).predictions[task], expected)
    sum(p.sum() for p in model.train()(given).predictions.values()).backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None}
    assert moved == {name for name in dict(model.named_parameters()) if name.startswith(("alignments.", "heads."))}
    assert not model.shared_parameters() and model.independent


def test_the_second_phase_drops_nothing_of_what_stays_as_it_is() -> None:
    recipe, of = components.build("encoders", "mlp", {"hidden": [5], "dropout": 0.5}), suite("mlp")
    architecture = components.build("architectures", "aligned")
    first, given = architecture.build(of, recipe_of := lambda: recipe.build(of), 0.0), batch("mlp")
    model = architecture.build_next("alignment", first.phase_output(), of, recipe_of, 0.0)
    for task, expected in model.eval()(given).predictions.items():
        assert torch.equal(model.train()(given).predictions[task], expected)


def test_a_rotation_of_a_task_is_undone() -> None:
    """Two tasks with one function of their inputs, those of the second rotated: on a frozen module, alignment alone
    reaches the loss of the first for both."""
    torch.manual_seed(0)
    turn = torch.linalg.qr(torch.randn(6, 6))[0]
    model = build("aligned", "mlp", together=True)
    given = batch("mlp")
    with torch.no_grad():
        wanted = model(given).predictions["a"]
        model.heads[1].load_state_dict(model.heads[0].state_dict())
        model.alignments[1].copy_(turn.T)
    turned = Batch("all", Samples(given.inputs @ turn, given.samples.targets), 8)
    torch.testing.assert_close(model(turned).predictions["b"], wanted, rtol=1e-5, atol=1e-6)


def test_an_encoder_without_embeddings_is_refused() -> None:
    tasks = (Task(name="a", loss="bce", outputs=1, metrics=("error",)),)
    of = TaskSuite(name="images", tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, 8, 8))
    recipe = components.build("encoders", "resnet18", {"width": 2, "stem": "small"})
    for together in (True, False):
        with pytest.raises(UserError, match="has no layer of them"):
            components.build("architectures", "aligned", {"together": together}).build(
                of, lambda: recipe.build(of), 0.0
            )


@pytest.mark.parametrize("encoder", ENCODERS)
def test_it_measures_how_alike_embeddings_are_before_and_after(encoder: str) -> None:
    """Of all training samples, in whatever batches they come; tokens without padding, samples without a label not."""
    model, batches = build("aligned", encoder, together=True).eval(), [batch(encoder), batch(encoder)]
    for number, given in enumerate(batches):
        given.samples.targets["b"][number:3] = MISSING_CLASS
        if encoder != "mlp":
            given.inputs[:, 5:] = 0

    def expected(turns: list[torch.Tensor]) -> torch.Tensor:
        embedded = []
        for place, turn in enumerate(turns):
            rows = [(given.inputs[3 * place :], model.encoder.embed(given.inputs)[3 * place :]) for given in batches]
            if place:  # of the second batch task b has a label of its first sample
                extra = batches[1].inputs[:1]
                rows.append((extra, model.encoder.embed(extra)))
            embedded.append(torch.cat([e if e.ndim == 2 else e[i != 0] for i, e in rows]).detach().double() @ turn)
        return covariance_similarities(embedded)

    def measured() -> dict[str, torch.Tensor]:
        with torch.no_grad():
            model.after_training(iter(batches), lambda tensor: tensor)
        found = model.structure()["covariance_similarity"]
        return {when: torch.tensor(rows, dtype=torch.float64) for when, rows in found.items()}

    same = [torch.eye(len(turn), dtype=torch.float64) for turn in model.alignments]
    found = measured()
    torch.testing.assert_close(found["before"], expected(same), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found["after"], found["before"], rtol=0, atol=0)
    with torch.no_grad():
        model.alignments[1].normal_()
    found = measured()
    torch.testing.assert_close(found["before"], expected(same), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        found["after"], expected([t.detach().double() for t in model.alignments]), rtol=1e-6, atol=1e-7
    )
    assert (found["after"] - found["before"]).abs().max() > 1e-3


def test_without_turning_heads_alone_learn() -> None:
    model = build("aligned", "mlp", together=True, turning=False)
    assert not any(turn.requires_grad for turn in model.alignments)
    sum(p.sum() for p in model(batch("mlp")).predictions.values()).backward()
    assert all(turn.grad is None for turn in model.alignments)


def test_with_a_source_task_the_encoder_learns_from_it_alone() -> None:
    given, plain = batch("mlp"), build("aligned", "mlp")
    model = build("aligned", "mlp", source_task="b")
    predictions = model(given).predictions
    for task, expected in plain(given).predictions.items():
        torch.testing.assert_close(predictions[task], expected)
    predictions["a"].sum().backward(retain_graph=True)
    assert all(p.grad is None for p in model.shared_parameters()) and all(
        p.grad is not None for p in model.heads[0].parameters()
    )
    predictions["b"].sum().backward()
    assert all(p.grad is not None for p in model.shared_parameters())


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("turning", [True, False])
def test_each_task_tunes_the_whole_of_a_copy(encoder: str, turning: bool) -> None:
    """It begins as the network that the source has trained; a task's loss moves all of its copy, and no other's."""
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    options = {"source_task": "b", "freeze_shared": False, "turning": turning}
    architecture = components.build("architectures", "aligned", options)
    first, given = build("aligned", encoder, **options), batch(encoder)
    model = architecture.build_next("alignment", first.phase_output(), of, lambda: recipe.build(of), 0.0)
    assert [phase.name for phase in architecture.phases()] == ["shared", "alignment"]
    for task, expected in first.eval()(given).predictions.items():
        torch.testing.assert_close(model.eval()(given).predictions[task], expected)

    assert not model.shared_parameters() and model.independent
    own = {task: {id(p) for p in model.task_parameters(task)} for task in TASKS}
    assert not own["a"] & own["b"] and set.union(*own.values()) == {id(p) for p in model.parameters()}
    model.train()(given).predictions["b"].sum().backward()
    moved = {id(p) for p in model.parameters() if p.grad is not None}
    still = set() if turning else {id(p) for p in model.alignments}
    assert moved == own["b"] - still
    with torch.no_grad():
        model.after_training(iter([given]), lambda tensor: tensor)
    assert set(model.structure()["covariance_similarity"]) == {"before", "after"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_task": "bb"}, "source_task 'bb' is none of two: did you mean b"),
        ({"freeze_shared": False}, "freeze_shared: false tunes what source_task has trained; name that task, or set"),
        ({"source_task": "b", "together": True}, "together is one phase for all tasks; drop source_task and align"),
        ({"align_epochs": 5, "together": True}, "together is one phase for all tasks; drop source_task and align"),
    ],
)
def test_a_source_task_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("aligned", "mlp", **options)
