"""Steps that never make the tasks' gradients, against steps that do: every balancer of Gramians, every known layer, and
what models do that no layer's formula covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from two_workers import two_workers

from mtlscale.balancing import Balancer, State
from mtlscale.config.registry import components
from mtlscale.data import Losses, Workers
from mtlscale.training import Partition, Update
from mtlscale.training.gradients import layerwise_gramian as layers
from mtlscale.training.gradients import update
from mtlscale.training.gradients.graph import read_layers
from mtlscale.training.gradients.layerwise_gramian import by_layers
from mtlscale.training.gradients.strategies import Draft, GradientStrategy, StepRequest

WIDTH, TASKS = 6, 4
GRAMIANS = [
    name
    for name in components.names("balancers")
    if (found := components.component("balancers", name)).needs == "gramian" and found.at == "parameters"
]


class Noting(Balancer):
    """Equal weights, and notes the Gramian it is given."""

    name, source, needs = "noting", "own", "gramian"
    seen: ClassVar[list[Tensor]] = []

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        self.seen[:] = [gramian]
        return torch.ones_like(losses), state


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Tied(nn.Module):
    """Two layers with one weight; the second has a bias of its own."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.first, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))
        self.turned = turned

    def forward(self, x: Tensor) -> Tensor:
        weight = self.first.weight
        return functional.linear(torch.tanh(self.first(x)), weight.T if self.turned else weight, self.bias)


class Shifted(nn.Module):
    """Linear, and its bias added to something else besides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) + self.layer.bias


class SameBias(nn.Module):
    """Two layers that have their bias in common."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second.bias = self.first.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Scaled(nn.Module):
    """The function below a linear layer, with factors of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.addmm(self.layer.bias, x.reshape(-1, WIDTH), self.layer.weight.T, beta=0.5, alpha=2.0)
        return rows.view_as(x)


class Product(nn.Module):
    """No layer: parameters of which nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.gate = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.matrix) * self.gate.sigmoid()


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mul_(2.0).relu_()


def _halved(_: nn.Module, at_inputs: Any, at_outputs: Any) -> Any:
    return None if at_inputs[0] is None else (at_inputs[0] * 0.5,)


class Hooked(nn.Module):
    """Hooks on the module and on the gradient that flows through it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.layer.register_forward_hook(lambda module, inputs, output: output * 1.5)
        self.layer.register_full_backward_hook(_halved)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * 3.0)
        return y


class Block(nn.Module):
    """A transformer's linear maps, with a residual connection and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(self.norm(x)).chunk(3, -1)
        if x.ndim == 2:
            return x + self.out(torch.tanh(q) * k + v)
        return x + self.out((q @ k.mT).softmax(-1) @ v)


class Swap(nn.Module):
    """Channels last around layers that want them so."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.movedim(1, -1)).movedim(-1, 1)


FLAT: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "relu": nn.ReLU,
    "norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
    "twice": Twice,
    "tied": Tied,
    "turned": lambda: Tied(turned=True),
    "shifted": Shifted,
    "product": Product,
    "same bias": SameBias,
    "scaled": Scaled,
    "in place": InPlace,
    "hooked": Hooked,
    "block": Block,
}
PICTURES: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1),
    "1x1": lambda: nn.Conv2d(WIDTH, WIDTH, 1),
    "dilated": lambda: nn.Conv2d(WIDTH, WIDTH, 2, dilation=2, padding=1, bias=False),
    "groups": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=2),
    "transposed": lambda: nn.ConvTranspose2d(WIDTH, WIDTH, 2),
    "relu": nn.ReLU,
    "batch norm": lambda: nn.BatchNorm2d(WIDTH, track_running_stats=False),
    "block": lambda: Swap(nn.Linear(WIDTH, WIDTH)),
}


def network(kind: str, names: Sequence[str], seed: int, dtype: torch.dtype = torch.float64) -> nn.ModuleDict:
    torch.manual_seed(seed)
    body: list[nn.Module] = []
    if kind == "words":
        body = [nn.Embedding(9, WIDTH, padding_idx=0, sparse=True)]
    if kind == "sounds":
        body = [nn.Conv1d(2, WIDTH, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(2)]
    body += [(PICTURES if kind == "pictures" else FLAT)[name]() for name in names]
    heads = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(TASKS))
    return nn.ModuleDict({"body": nn.Sequential(*body), "heads": heads}).to(dtype)


def samples(kind: str, count: int, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, of a vector set of at most this rank, and targets of which a third are missing."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {"vectors": (WIDTH,), "words": (5,), "sounds": (2, 2 * WIDTH), "pictures": (WIDTH, 5, 5)}
    if kind == "words":
        inputs = torch.randint(9, (count, 5), generator=draw)
    elif kind == "vectors":
        inputs = torch.randn(count, rank, generator=draw) @ torch.randn(rank, WIDTH, generator=draw)
    else:
        inputs = torch.randn(count, *shapes[kind], generator=draw)
    return inputs, torch.randint(-1, 3, (count, TASKS), generator=draw).clamp(min=-1)


def losses_of(net: nn.ModuleDict, inputs: Tensor, targets: Tensor, tasks: Sequence[int] = range(TASKS)) -> Losses:
    body, heads = net["body"], net["heads"]
    z = body(inputs if inputs.dtype == torch.int64 else inputs.to(next(net.parameters()).dtype))
    z = z.movedim(1, -1) if z.ndim == 4 else z
    z = z.flatten(1, -2).mean(1) if z.ndim > 2 else z
    found = Losses(representation=z)
    for task in tasks:
        found.branches.append(z.view_as(z))
        predicted = heads[task](found.branches[-1])
        found.tasks.append(task)
        target = targets[:, task]
        found.sums.append(functional.cross_entropy(predicted, target, reduction="sum", ignore_index=-1))
        found.counts.append((target >= 0).sum())
    return found


def step(
    net: nn.ModuleDict,
    micros: Sequence[tuple[Tensor, Tensor]],
    balancer: Balancer | str = "mgda",
    *,
    vectorised: bool = False,
    workers: Workers | None = None,
) -> dict[str, Tensor]:
    """Every gradient of one step, and its weights."""
    shared, own = list(net["body"].parameters()), [list(head.parameters()) for head in net["heads"]]
    built = components.build("balancers", balancer) if isinstance(balancer, str) else balancer
    change = Update(
        [f"t{task}" for task in range(TASKS)],
        Partition(shared, own, vectorised=vectorised),
        built,
        device=torch.device("cpu"),
        dtype=next(net.parameters()).dtype,
        workers=workers,
    )
    made = change([[losses_of(net, *micro)] if len(micro[0]) else [] for micro in micros])
    found = {name: p.grad for name, p in net.named_parameters() if p.grad is not None} | {"weights": made.weights}
    return found | ({"gramian": Noting.seen[0]} if isinstance(built, Noting) else {})


def by_gradients(strategy: GradientStrategy, request: StepRequest) -> Draft:
    return strategy.by_gradients(request)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """These layers are small: the tasks' gradients would be cheaper."""
    monkeypatch.setattr(layers, "gramian_cost", lambda *shape: 0)
    monkeypatch.setattr(layers, "_AS_CHEAP", float("inf"))
    monkeypatch.setattr(layers, "_sends_less", lambda *shape: True)


def both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Of the same step without the tasks' gradients, and with them."""
    found = []
    for way in (by_layers, by_gradients):
        with monkeypatch.context() as patch:
            patch.setattr(update, "by_layers", way)
            found.append(run())
    return found


def apart(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference over the norm of all gradients, or of the weights or the Gramian; infinite where not the
    same things are there."""
    if left.keys() != right.keys():
        return float("inf")
    numbers = {"weights", "gramian"} & right.keys()
    whole = max((float(right[key].norm()) for key in right.keys() - numbers), default=0.0)
    sizes = {key: float(right[key].norm()) if key in numbers else whole for key in right}
    return max(float((left[key] - right[key]).norm()) / max(sizes[key], 1e-12) for key in right)


@given(
    names=st.lists(st.sampled_from(list(FLAT)), min_size=1, max_size=5),
    kind=st.sampled_from(["vectors", "words", "sounds"]),
    count=st.sampled_from([1, 4, 20]),
    rank=st.sampled_from([1, 3, 30]),
    vectorised=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100)
def test_random_networks(names: list[str], kind: str, count: int, rank: int, vectorised: bool, seed: int) -> None:
    names = [name for name in names if kind == "vectors" or name != "batch norm"] or ["linear"]
    net = network(kind, [*names, "linear"], seed)
    vectorised = vectorised and kind == "vectors" and not {"hooked", "batch norm", "norm", "block"} & set(names)
    data = samples(kind, max(count, 2) if "batch norm" in names else count, rank, seed)
    with pytest.MonkeyPatch.context() as patch:
        always(patch)
        fast, slow = both(patch, lambda: step(net, [data], Noting(), vectorised=vectorised))
    assert apart(fast, slow) <= 1e-11


@given(names=st.lists(st.sampled_from(list(PICTURES)), min_size=1, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_random_networks_of_pictures(names: list[str], seed: int) -> None:
    net, data = network("pictures", ["1x1", *names], seed), samples("pictures", 3, 3, seed)
    with pytest.MonkeyPatch.context() as patch:
        always(patch)
        fast, slow = both(patch, lambda: step(net, [data], Noting()))
    assert apart(fast, slow) <= 1e-11


@pytest.mark.parametrize("balancer", GRAMIANS)
@pytest.mark.parametrize("vectorised", [False, True])
def test_every_balancer(balancer: str, vectorised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    for seed, count in ((0, 4), (1, 30)):
        net, data = network("vectors", ["linear", "relu", "no bias", "twice"], seed), samples("vectors", count, 3, seed)
        fast, slow = both(monkeypatch, lambda: step(net, [data], balancer, vectorised=vectorised))  # noqa: B023
        assert apart(fast, slow) <= 1e-9, (seed, count)


@pytest.mark.parametrize("kind", ["vectors", "words", "sounds", "pictures"])
def test_no_tasks_gradient_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of autograd is what came back to the layers, and one gradient of each parameter."""
    request: list[set[int]] = []
    grad = torch.autograd.grad

    def noting(outputs: Any, inputs: Any, *rest: Any, **options: Any) -> Any:
        request.append({id(each) for each in inputs if isinstance(each, Tensor)})
        return grad(outputs, inputs, *rest, **options)

    monkeypatch.setattr(torch.autograd, "grad", noting)
    always(monkeypatch)
    names = ["1x1", "relu", "conv"] if kind == "pictures" else ["linear", "relu", "twice"]
    net = network(kind, names, 0)
    step(net, [samples(kind, 3, 3, 0)])
    for parameter in net["body"].parameters():
        assert sum(id(parameter) in inputs for inputs in request) == 1


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("linear", 1),
        ("no bias", 1),
        ("block", 2),
        ("twice", 1),
        ("in place", 1),
        ("hooked", 1),
        ("tied", 0),
        ("turned", 0),
        ("shifted", 0),
        ("product", 0),
        ("same bias", 0),
        ("scaled", 0),
        ("norm", 0),
    ],
)
def test_what_is_known(name: str, known: int) -> None:
    net = network("vectors", [name], 0)
    z = net["body"](samples("vectors", 3, 3, 0)[0].double())
    assert len(read_layers(z, list(net["body"].parameters()))) == known


@pytest.mark.parametrize(("option", "known"), [({}, 1), ({"padding_idx": 0}, 1), ({"scale_grad_by_freq": True}, 0)])
def test_which_embeddings_are_known(option: dict[str, Any], known: int) -> None:
    table = nn.Embedding(9, WIDTH, **option)
    z = table(samples("words", 3, 3, 0)[0]).sum(1)
    assert len(read_layers(z, [table.weight])) == known


def test_a_hook_on_a_parameter_sees_every_tasks_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what its user asked for: as many as tasks, and what it makes of them counts."""
    always(monkeypatch)
    net, data = network("vectors", ["linear", "relu", "linear"], 0), samples("vectors", 5, 3, 0)
    seen: list[Tensor] = []

    def clipped(gradient: Tensor) -> Tensor:
        seen.append(gradient)
        return gradient.clamp(-0.1, 0.1)

    next(net["body"].parameters()).register_hook(clipped)
    fast, slow = both(monkeypatch, lambda: step(net, [data]))
    assert len(seen) == 2 * TASKS
    assert apart(fast, slow) == 0


def test_several_streams_and_steps_of_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that come from streams of their own, one of which several tasks share, are differentiated one by one."""
    always(monkeypatch)
    net = network("vectors", ["linear", "relu", "linear"], 0)
    one, other = samples("vectors", 5, 3, 0), samples("vectors", 7, 3, 1)

    def run() -> dict[str, Tensor]:
        shared, own = list(net["body"].parameters()), [list(head.parameters()) for head in net["heads"]]
        change = Update(
            list("abcd"), Partition(shared, own), components.build("balancers", "mgda"), device=torch.device("cpu")
        )
        made = change([[losses_of(net, *one, tasks=[0, 2]), losses_of(net, *other, tasks=[1, 3])]])
        return {name: p.grad for name, p in net.named_parameters() if p.grad is not None} | {"weights": made.weights}

    fast, slow = both(monkeypatch, run)
    assert apart(fast, slow) <= 1e-12


@pytest.mark.parametrize("names", [["linear", "relu", "linear"], ["linear", "product"]])
def test_an_objectives_term(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On what is shared, in the same graph: added to what the balancer combined, and nothing it is told of."""
    always(monkeypatch)
    net, data = network("vectors", names, 0), samples("vectors", 5, 3, 0)
    plain, change = step(net, [data], Noting()), losses_of

    def with_term(*given: Any) -> Losses:
        found = change(*given)
        assert found.representation is not None
        found.extra = found.representation.square().sum()
        return found

    monkeypatch.setitem(globals(), "losses_of", with_term)
    fast, slow = both(monkeypatch, lambda: step(net, [data], Noting()))
    assert apart(fast, slow) <= 1e-12
    assert apart(fast, plain) > 0.01
    assert torch.equal(fast["gramian"], plain["gramian"])


@pytest.mark.parametrize("micros", [2, 3])
def test_micro_batches(micros: int) -> None:
    net, (inputs, targets) = network("vectors", ["linear", "relu", "linear"], 0), samples("vectors", 12, 3, 0)
    parts = list(zip(inputs.chunk(micros), targets.chunk(micros), strict=True))
    assert apart(step(net, parts), step(net, [(inputs, targets)])) <= 1e-11


def test_in_single_precision_it_errs_no_more_than_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the Gramian, over thirty networks, against double precision."""
    errors: list[list[float]] = [[], []]
    for seed in range(30):
        data = samples("vectors", 40, 5, seed)
        exact = step(network("vectors", ["linear", "relu", "linear"], seed), [data], Noting())["gramian"]
        for place, way in enumerate((by_layers, by_gradients)):
            with monkeypatch.context() as patch:
                patch.setattr(update, "by_layers", way)
                always(patch)
                net = network("vectors", ["linear", "relu", "linear"], seed, torch.float32)
                found = step(net, [data], Noting(), vectorised=True)["gramian"]
            errors[place].append(float((found - exact).norm() / exact.norm()))
    fast, slow = (sum(each) / len(each) for each in errors)
    assert 0 < fast <= 2 * slow


JOBS: list[dict[str, Any]] = [
    {"kind": "vectors", "names": ["linear", "relu", "no bias"], "cuts": [3, 20], "vectorised": True},
    {"kind": "vectors", "names": ["linear", "product", "twice"], "cuts": [10, 11]},
    {"kind": "vectors", "names": ["linear", "relu", "linear"], "cuts": [0, 20]},  # a worker without a sample
    {"kind": "vectors", "names": ["linear", "relu", "linear"], "cuts": [24, 24]},
    {"kind": "words", "names": ["linear", "relu", "norm"], "cuts": [5, 15]},
    {"kind": "pictures", "names": ["conv", "relu", "1x1"], "cuts": [2, 5]},
]


def _of_worker(job: dict[str, Any], workers: Workers) -> dict[str, Tensor]:
    """The gradients of a step whose samples are cut at two places, for two workers at the first."""
    inputs, targets = samples(job["kind"], 24, 3, 0)
    cuts = [0, *job["cuts"][: workers.size - 1], 24] if workers.size > 1 else [0, 24]
    mine = slice(cuts[workers.rank], cuts[workers.rank + 1])
    net = network(job["kind"], job["names"], 0)
    with pytest.MonkeyPatch.context() as patch:
        always(patch)
        return step(net, [(inputs[mine], targets[mine])], vectorised=job.get("vectorised", False), workers=workers)


@pytest.mark.parametrize("count", [2, 3])
def test_workers(count: int) -> None:
    """Unequal numbers of samples, of which a worker may have none."""
    found = two_workers(_of_worker, JOBS, count=count)
    for job, *ranks in zip(JOBS, *found, strict=True):
        one = _of_worker(job, Workers())
        for rank in ranks:
            assert apart(rank, one) <= 1e-11, job
