"""ESMM, AITM, STEM and PEPNet against their equations, sample by sample, and the calibrator of AITM."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from mtlscale.architectures.recommenders.esmm import logit_of_product
from mtlscale.config import Task, TaskSuite, UserError, build
from mtlscale.data import Batch, Outputs, Samples

TASKS = ("click", "cart", "buy")
COUNTS = (6, 0, 4)


def suite(*tasks: str) -> TaskSuite:
    binary = tuple(Task(name=name, loss="bce", outputs=1, metrics=("auroc",)) for name in tasks or TASKS)
    extras = {"columns": ["user", "price", "item"]}
    return TaskSuite(name="shop", tasks=binary, inputs="shared", input_kind="vector", input_shape=(3,),
                     categories=COUNTS, extras=extras)  # fmt: skip


def network(
    name: str, of: TaskSuite | None = None, seed: int = 0, encoder_layers: tuple[int, ...] = (5,), **options: Any
) -> Any:
    torch.manual_seed(seed)
    of = of or suite()
    encoder = build("encoders", "embedding_mlp", {"dimensions": 3, "hidden": encoder_layers})
    model = build("architectures", name, options).build(of, lambda: encoder.build(of), 0.0)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) / 2
    return model.double()


def batch(*tasks: str) -> Batch:
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randint(0, n, (9,), generator=draw).double() if n else torch.randn(9, generator=draw).double()
              for n in COUNTS]  # fmt: skip
    targets = {task: torch.randint(0, 2, (9,), generator=draw) for task in tasks or TASKS}
    return Batch("all", Samples(torch.stack(inputs, 1), targets), 9)


def relu(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, 0)


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def softmax(values: np.ndarray) -> np.ndarray:
    return np.exp(values) / np.exp(values).sum()


def dense(module: Any, values: np.ndarray) -> np.ndarray:
    bias = 0 if module.bias is None else module.bias.detach().numpy()
    return module.weight.detach().numpy() @ values + bias


def close(found: Tensor, expected: list[Any]) -> None:
    np.testing.assert_allclose(
        found.detach().numpy().squeeze(-1), np.array(expected).reshape(9), rtol=1e-10, atol=1e-12
    )


# -- ESMM ----------------------------------------------------------------------------------------------------------


def test_esmm_multiplies_the_probabilities_of_its_chain() -> None:
    model = network("esmm", top=4, chain=("cart", "click", "buy"))
    predictions = model(batch()).predictions
    features = model.encoder(batch().inputs).detach().numpy()
    conditional = {
        task: np.array([sigmoid(dense(tower[3], relu(dense(tower[0], z)))) for z in features])
        for task, tower in zip(TASKS, model.towers, strict=True)
    }
    expected = {"cart": conditional["cart"], "click": conditional["cart"] * conditional["click"]}
    expected["buy"] = expected["click"] * conditional["buy"]
    for task in TASKS:
        close(predictions[task].sigmoid(), list(expected[task]))


def test_the_logit_of_a_product_neither_overflows_nor_rounds() -> None:
    values = torch.tensor([-300.0, -40.0, -1.0, 0.0, 2.0, 40.0, 300.0])
    a, b = torch.meshgrid(values, values, indexing="ij")
    found = logit_of_product(a, b)
    assert found.isfinite().all()
    x, y = a.double().numpy(), b.double().numpy()
    expected = np.log(sigmoid(x[2:5, 2:5]) * sigmoid(y[2:5, 2:5])) - np.log1p(
        -sigmoid(x[2:5, 2:5]) * sigmoid(y[2:5, 2:5])
    )
    np.testing.assert_allclose(found[2:5, 2:5].numpy(), expected, rtol=1e-6)
    assert float(logit_of_product(torch.tensor(300.0), torch.tensor(1.5))) == 1.5  # a certain click leaves the other
    assert float(logit_of_product(torch.tensor(300.0), torch.tensor(300.0))) == pytest.approx(300 - math.log(2))


def test_whose_parameters_are_whose_in_esmm() -> None:
    """A purchase moves the tower of the click, since its probability is a factor."""
    model = network("esmm", top=4)
    groups = [model.shared_parameters(), *(model.task_parameters(task) for task in TASKS)]
    assert sorted(id(p) for group in groups for p in group) == sorted(map(id, model.parameters()))
    names = {id(p): name for name, p in model.named_parameters()}
    moved = {}
    for task in TASKS:
        gradients = torch.autograd.grad(
            model(batch()).predictions[task].sum(), list(model.parameters()), allow_unused=True
        )
        moved[task] = {id(p) for p, g in zip(model.parameters(), gradients, strict=True) if g is not None}
    shared = {id(p) for p in model.shared_parameters()}
    assert {names[i] for i in moved["buy"]} == set(names.values())
    assert moved["buy"] - shared == {id(p) for p in model.task_parameters("buy")} and moved["cart"] <= shared
    assert not any(name.startswith("towers.1") for name in map(names.get, moved["click"]))


def test_esmm_predicts_each_task_alone_as_with_the_others_and_batched() -> None:
    models = [network("esmm", seed=seed, top=4) for seed in (0, 1)]
    together = models[0](batch()).predictions
    for task in TASKS:
        alone = models[0](batch(task)).predictions
        assert set(alone) == {task} and torch.equal(alone[task], together[task])

    given = batch()

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> dict[str, Tensor]:
        return functional_call(models[0], (parameters, buffers), (given,)).predictions

    stacked = vmap(run)(*stack_module_state(models))
    for index, model in enumerate(models):
        for task, prediction in model(batch()).predictions.items():
            torch.testing.assert_close(stacked[task][index], prediction, rtol=1e-10, atol=1e-12)


# -- AITM ----------------------------------------------------------------------------------------------------------


def test_aitm_attends_to_what_it_is_passed() -> None:
    model = network("aitm", top=4, chain=("cart", "click", "buy"))
    predictions = model(batch()).predictions
    features = model.encoder(batch().inputs).detach().numpy()
    expected: dict[str, list[Any]] = {task: [] for task in TASKS}
    for z in features:
        passed = None
        for task in ("cart", "click", "buy"):
            index = TASKS.index(task)
            state = relu(dense(model.towers[index][0], z))
            if passed is not None:
                transfer, pair = model.transfers[index], [passed, state]
                scores = [dense(transfer.query, u) @ dense(transfer.key, u) / math.sqrt(4) for u in pair]
                weights = softmax(np.array(scores))
                state = sum(w * dense(transfer.value, u) for w, u in zip(weights, pair, strict=True))
            expected[task].append(dense(model.heads[index][1], state))
            if task != "buy":
                passed = relu(dense(model.passes[index][0], state))
    for task in TASKS:
        close(predictions[task], expected[task])


# -- STEM ----------------------------------------------------------------------------------------------------------


def test_stem_mixes_all_experts_and_moves_its_own_and_the_shared_ones() -> None:
    model = network("stem", top=4, own=2, shared=2)
    predictions = model(batch()).predictions
    common = model.encoder(batch().inputs).detach().numpy()
    own = [encoder(batch().inputs).detach().numpy() for encoder in model.encoders]

    def experts(bank: Any, z: np.ndarray) -> list[np.ndarray]:
        weights, biases = bank.weight.detach().numpy(), bank.bias.detach().numpy()
        return [relu(z @ w + b) for w, b in zip(weights, biases, strict=True)]

    for index, task in enumerate(TASKS):
        expected = []
        for row in range(9):
            outputs = [e for j in range(3) for e in experts(model.task_experts[j], own[j][row])]
            outputs += experts(model.shared_experts, common[row])
            gate = softmax(dense(model.gates[index], own[index][row] + common[row]))
            assert len(gate) == 8
            mixed = sum(g * e for g, e in zip(gate, outputs, strict=True))
            expected.append(dense(model.heads[index][1], mixed))
        close(predictions[task], expected)

    model.zero_grad()
    predictions["cart"].sum().backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert all(name.split(".")[1] == "1" for name in moved if name.startswith(("encoders", "task_experts")))
    assert any(name.startswith("encoder.") for name in moved) and any(name.startswith("encoders.1") for name in moved)


# -- PEPNet --------------------------------------------------------------------------------------------------------


def gate_of(unit: Any, output: int, values: np.ndarray) -> np.ndarray:
    return 2 * sigmoid(dense(unit.outputs[output], relu(dense(unit.hidden, values))))


def test_pepnet_gates_embeddings_by_domain_and_towers_by_person() -> None:
    model = network("pepnet", domain=("item",), personal=("user", "item"), hidden=(4, 3))
    predictions, inputs = model(batch()).predictions, batch().inputs
    embeddings, spans = model.encoder.embed(inputs).detach().numpy(), model.encoder.spans
    (layer,) = model.encoder.stages[1:]
    expected: dict[str, list[Any]] = {task: [] for task in TASKS}
    for e in embeddings:
        user, item = (e[slice(*spans[column])] for column in (0, 2))
        gated = e * gate_of(model.embedding_gate, 0, np.concatenate([item, e]))
        features = relu(dense(layer[0], gated))
        for index, task in enumerate(TASKS):
            h = features
            for tower, unit in zip(model.towers[index], model.gates, strict=True):
                h = relu(dense(tower[0], h)) * gate_of(unit, index, np.concatenate([user, item, gated]))
            expected[task].append(dense(model.heads[index], h))
    for task in TASKS:
        close(predictions[task], expected[task])


def test_gates_of_pepnet_teach_the_embeddings_of_their_prior_alone() -> None:
    model = network("pepnet", hidden=(4,), personal=("user",))
    model.towers.requires_grad_(False)
    model.encoder.stages[1].requires_grad_(False)
    model.encoder.stages[1][0].weight.data.zero_()  # features do not depend on the embeddings, gates do
    model(batch()).predictions["buy"].sum().backward()
    moved = {i for i in range(model.encoder.stages[0].tables[0].weight.shape[0])
             if model.encoder.stages[0].tables[0].weight.grad[i].any()}  # fmt: skip
    users = {int(code) for code in batch().inputs[:, 0]}
    assert moved and moved <= users  # rows from 6 on are items'

    plain = network("pepnet")
    assert plain.embedding_gate is None and not plain.personal.numel()


# -- the calibrator ------------------------------------------------------------------------------------------------


def test_the_calibrator_counts_what_a_later_task_exceeds_the_earlier_by() -> None:
    objective = build("objectives", "behavioral_calibrator", {"strength": 0.3}).build(suite(), network("aitm"))
    draw = torch.Generator().manual_seed(3)
    logits = {task: torch.randn(9, 1, generator=draw) for task in TASKS}
    p = {task: sigmoid(values.numpy()[:, 0]) for task, values in logits.items()}
    excess = [max(p["cart"][i] - p["click"][i], 0) + max(p["buy"][i] - p["cart"][i], 0) for i in range(9)]
    large = replace(batch(), total=18)  # one of two workers
    found = objective.term(large, Outputs(logits))
    assert float(found) == pytest.approx(0.3 * sum(excess) / 18, rel=1e-5) and sum(excess) > 0
    fine = {task: torch.full((9, 1), -float(i)) for i, task in enumerate(TASKS)}
    assert float(objective.term(large, Outputs(fine))) == 0.0


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "mistake"),
    [
        ("esmm", {"chain": ("click", "by", "cart")}, "esmm: `chain` names 'by'; did you mean buy"),
        ("aitm", {"chain": ("click", "buy")}, "aitm: `chain` lacks task 'cart'; name every task of shop once"),
        ("aitm", {"chain": ("click", "buy", "cart", "cart")}, "aitm: `chain` names a task twice"),
        ("pepnet", {"personal": ("usr",)}, "pepnet: there is no column 'usr'; did you mean user"),
        ("pepnet", {"hidden": ()}, "name at least one width"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], mistake: str) -> None:
    with pytest.raises(UserError, match=mistake):
        network(name, **options)


def test_tasks_and_encoders_that_do_not_fit_are_named() -> None:
    numbers = replace(suite(), tasks=(Task(name="stars", loss="mse", outputs=1, metrics=("rmse",)), *suite().tasks))
    with pytest.raises(UserError, match=r"task stars has loss mse .*leave it out by `tasks`, or choose aitm"):
        network("esmm", numbers)
    with pytest.raises(UserError, match="compares probabilities of two or more tasks of yes or no"):
        build("objectives", "behavioral_calibrator", {}).build(suite("click"), network("aitm"))

    encoder = build("encoders", "mlp", {"hidden": [5]})
    with pytest.raises(UserError, match="has no embedding of column 'user'; choose embedding_mlp, deepfm or dcn_v2"):
        build("architectures", "pepnet", {"personal": ["user"]}).build(suite(), lambda: encoder.build(suite()), 0.0)
    bottleneck = build("encoders", "bottleneck", {})
    with pytest.raises(UserError, match="this encoder has none; choose embedding_mlp"):
        build("architectures", "pepnet", {}).build(suite(), lambda: bottleneck.build(suite()), 0.0)
