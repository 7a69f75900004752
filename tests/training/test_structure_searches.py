"""Methods that search a structure and train it: cut off anywhere, over two workers, and a search that is done once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import call
from frozen.cases import DEEP, IMAGES, RESNET, SGD, Case
from frozen.compute import in_memory, run_of
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from two_workers import PLUGINS

from mtlscale.architectures import conflict_mask
from mtlscale.architectures.branching._pretraining import SearchModule
from mtlscale.architectures.branching._supernet import Supernet
from mtlscale.architectures.trees import tree_of_points
from mtlscale.config import MISSING_CLASS, Run, UserError, load_experiment, load_plugin
from mtlscale.config.registry import components
from mtlscale.data import PreparedData, Workers, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import RunRecord
from mtlscale.training import Trainer, finish

TRAINING = "{epochs: 2, batch_size: 16, lr: 1e-2, dtype: float64, checkpoint_seconds: 0, optimizer: adam}"
MODEL = "{encoder: {name: mlp, hidden: [6, 5, 4]}}"
# Name -> (method, epochs of all phases).
METHODS = {
    "conal": ("{architecture: conal}", 4),
    "conal, partial": ("{architecture: {name: conal, private: partial, search_epochs: 1}, balancer: mgda}", 3),
    "conal, pretrained": ("{architecture: {name: conal, pretrain_epochs: 1, search_epochs: 1}}", 4),
    "conal_pro": ("{architecture: {name: conal_pro, search_epochs: 3, arch_lr: 0.5, search_seed: 1}}", 5),
}

Job = tuple[Run, PreparedData]


@pytest.fixture(scope="module")
def data_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], PreparedData]:
    for plugin in PLUGINS:
        load_plugin(plugin)
    home = tmp_path_factory.mktemp("home")
    return lambda shared: load_prepared(prepare("uneven", {"shared": shared}, None, home))


@pytest.fixture
def job(experiment_file: Callable[..., Path], data_of: Callable[[bool], PreparedData]) -> Callable[..., Job]:
    def make(method: str, shared: bool = True, **lines: str) -> Job:
        data = data_of(shared)
        content = {
            "plugins": f"[{', '.join(map(str, PLUGINS))}]",
            "datasets": f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]",
            "methods": f"[{METHODS[method][0] if method in METHODS else method}]",
            "training": TRAINING,
            "model": MODEL,
            **lines,
        }
        experiment = load_experiment(experiment_file(**content))
        label = experiment.datasets[0].label
        return next(experiment.runs({label: data.manifest.fingerprint})), data

    return make


def end_of(job: Job, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Parameters, what every epoch noted, and losses at the end."""
    trainer = Trainer(*job, workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    losses = [[*epoch.train_loss.values(), *_numbers(epoch.traces)] for epoch in record.epochs]
    return {
        **trainer.model.state_dict(),
        **{f"epoch {number}": torch.tensor(found).double() for number, found in enumerate(losses)},
        "loss": torch.tensor([found["loss"] for found in record.metrics["test"].values()], dtype=torch.float64),
    }


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    return [number for one in value for number in _numbers(one)] if isinstance(value, list) else [float(value)]


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        gap, size = (value.double() - right[key].double()).norm(), value.double().norm()
        assert gap <= 1e-9 * size.clamp(min=1e-12), key


# Of every method that searches: its epochs, of all phases together.
KILLED = {
    **METHODS,
    "ltb": ("{architecture: {name: ltb, search_epochs: 2, warmup: 0.5}}", 4),
    "bmtas": ("{architecture: {name: bmtas, search_epochs: 2, warmup: 0.5}}", 4),
    "dsmtl_il": ("{architecture: {name: dsmtl_il, private_epochs: 1}}", 3),
    "dsmtl_al": ("{architecture: {name: dsmtl_al, search_epochs: 1}}", 3),
    "tag": ("{architecture: {name: tag, search_epochs: 2, every: 1}}", 4),
}


def _until_killed(rank: int, job: Job, folder: Path, epochs: int) -> None:
    """Train that many epochs, begin another, and die in it."""
    for plugin in PLUGINS:
        load_plugin(plugin)
    torch.set_num_threads(1)
    steps = Trainer(*job, folder=folder).train()
    for _ in range(epochs):
        next(steps)
    calls = [0]

    def die(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(die)
    next(steps)


@pytest.mark.slow  # a process for each
@pytest.mark.parametrize(("name", "epochs"), [(n, e) for n, (_, total) in KILLED.items() for e in range(1, total)])
def test_a_process_killed_in_any_phase_is_made_up_for(
    name: str, epochs: int, job: Callable[..., Job], tmp_path: Path
) -> None:
    one = job(KILLED[name][0])
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
        call(_until_killed, (one, tmp_path / "run", epochs))
    resumed = Trainer(*one, folder=tmp_path / "run")
    next(resumed.train())
    assert len(resumed.at.epochs) == epochs + 1  # not from the start
    assert_close(end_of(one), end_of(one, folder=tmp_path / "run"))


def test_inputs_of_each_task_s_own(job: Callable[..., Job]) -> None:
    for name in METHODS:
        assert end_of(job(name, shared=False))["loss"].isfinite().all()


def record_of(job: Job, **where: Path) -> RunRecord:
    return finish(Trainer(*job, **where))


def test_a_search_is_done_once_for_runs_that_differ_in_what_it_does_not_see(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    def reused(method: str = "{architecture: conal}", **lines: str) -> bool:
        [search] = record_of(job(method, **lines), phases=tmp_path).phases
        return search.reused

    assert not reused()
    assert reused("{architecture: conal, balancer: mgda}")
    assert reused(seeds="[5]")
    assert not reused("{architecture: {name: conal, conflict: none}}")
    fixed = "{architecture: {name: conal, search_epochs: 2, search_lr: 1e-3, search_seed: %s}}"
    assert not reused(fixed % 1)
    longer = TRAINING.replace("epochs: 2", "epochs: 3")
    assert not reused(fixed % "null")
    assert not reused(fixed % "null", seeds="[5]")
    assert reused(fixed % "null", seeds="[5]")
    assert reused(fixed % 1, training=longer)
    assert reused(fixed % 1, training=TRAINING.replace("lr: 1e-2", "lr: 3e-2"))


@pytest.mark.parametrize(("point", "like"), [(4, "hps"), (1, "stl")])
def test_all_branch_points_at_one_end_train_as_hard_sharing_or_single_tasks(
    point: int, like: str, job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supernet, "found_points", lambda self: dict.fromkeys(self.names, point))
    found, other = (Trainer(*job(f"{{architecture: {name}, balancer: pcgrad}}")) for name in ("conal", like))
    one, two = finish(found), finish(other)
    assert one.metrics == two.metrics and one.parameters == two.parameters
    for left, right in zip(found.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("conflict", ["prefix", "module", "none"])
def test_what_tasks_conflict_about_stays_where_it_is(conflict: str, job: Callable[..., Job]) -> None:
    training = TRAINING.replace("}", ", weight_decay: 0.1}").replace("batch_size: 16", "batch_size: 2")
    trainer = Trainer(*job(f"{{architecture: {{name: conal, conflict: {conflict}}}}}", training=training))
    assert isinstance(trainer.model, Supernet)
    _, weights = trainer.session.updaters
    seen = set()
    for indices, _ in (found for epoch in range(1, 9) for found in weights.steps(epoch)):
        micros = trainer.batches.micros(indices, 1)
        modules = trainer.model.shared_modules()
        grads = [[] for _ in modules]  # type: ignore[var-annotated]
        for source in weights.source(micros[0]):
            for total, count in zip(source.sums, source.counts, strict=True):
                for module, rows in zip(modules, grads, strict=True):
                    of_task = torch.autograd.grad(total / count, module, retain_graph=True)
                    rows.append(torch.cat([g.flatten() for g in of_task]))
        each = [conflict_mask([torch.stack(rows)])[0] for rows in grads]
        wanted = {"prefix": conflict_mask([torch.stack(rows) for rows in grads]), "module": each, "none": [True] * 3}
        before = [[p.detach().clone() for p in module] for module in modules]
        trainer.session.step(weights, trainer.batches.micros(indices, 1))
        moved = [
            not all(torch.equal(p, old) for p, old in zip(module, olds, strict=True))
            for module, olds in zip(modules, before, strict=True)
        ]
        assert moved == wanted[conflict]
        seen.add(tuple(moved))
    assert len(seen) > 1 or conflict == "none"
    assert torch.equal(trainer.model.alpha[0], torch.zeros(4))  # whose turn this was not


@pytest.mark.parametrize(
    "knobs", ["splitting: whole", "levels: single", "private: partial", "conflict: none", "arch_lr: 0.5"]
)
def test_the_ablations_do_what_they_say(knobs: str, job: Callable[..., Job]) -> None:
    trainer = Trainer(*job(f"{{architecture: {{name: conal, {knobs}}}}}"))
    model, (choice, weights) = trainer.model, trainer.session.updaters
    assert isinstance(model, Supernet)
    assert choice.settings.lr == (0.5 if "arch_lr" in knobs else 0.5e-2) and weights.settings.lr == 1e-2
    assert (choice.share is None and weights.share is None) == (knobs == "levels: single")
    assert len(model.shared_modules()) == (1 if knobs == "splitting: whole" else 3)
    assert {len(alpha) for alpha in model.alpha} == {2 if knobs == "splitting: whole" else 4}
    record = finish(trainer)
    assert [epoch.phase for epoch in record.epochs] == ["search"] * 2 + ["retrain"] * 2
    branching = record.epochs[1].traces["branching"]
    assert all(abs(sum(shares) - 1) < 1e-12 and len(shares) == 4 for shares in branching.values())
    assert len(trainer.model.structure()["tree"]) == 3


def test_a_search_hands_over_what_its_last_epoch_has_come_to(job: Callable[..., Job]) -> None:
    """Of which tasks leave where no epoch before it says the same."""
    record = finish(Trainer(*job("{architecture: {name: conal, search_epochs: 4, arch_lr: 0.5, search_lr: 0.3}}")))
    trees = [
        tree_of_points([shares.index(max(shares)) + 1 for shares in epoch.traces["branching"].values()], 3)
        for epoch in record.epochs[:4]
    ]
    assert record.structure["tree"] == trees[-1] and trees[-1] not in trees[:-1]


@pytest.mark.parametrize("name", ["conal", "conal_pro", "ltb", "bmtas", "dsmtl_al", "mtl_nas"])
def test_searches_may_have_batches_of_their_own(name: str) -> None:
    phases = components.build("architectures", name, {"search_batch": 4}).phases()
    assert {phase.batch_size for phase in phases[:-1]} == {4} and phases[-1].batch_size is None


def test_what_chooses_may_do_so_by_plain_sgd_on_all_samples(job: Callable[..., Job]) -> None:
    knobs = "levels: single, arch_optimizer: sgd, arch_lr: 0.1"
    for method in ("conal", "conal_pro"):
        trainer = Trainer(*job(f"{{architecture: {{name: {method}, {knobs}}}}}"))
        choice, weights = trainer.session.updaters
        assert isinstance(choice.optimizer, torch.optim.SGD) and choice.settings.lr == 0.1
        assert isinstance(weights.optimizer, torch.optim.Adam) and choice.share is None and weights.share is None


@pytest.mark.parametrize("method", ["conal", "conal_pro", "dsmtl_al"])
def test_what_chooses_learns_on_other_samples_than_the_weights(method: str, job: Callable[..., Job]) -> None:
    trainer = Trainer(*job(f"{{architecture: {method}}}"))
    shares = [updater.share for updater in trainer.session.updaters]
    for stream, size in trainer.batches.sizes.items():
        seen = [set(share[stream].tolist()) for share in shares if share is not None]
        assert len(seen) == 2 and not seen[0] & seen[1] and seen[0] | seen[1] == set(range(size))


SEARCHED = ["conal", "conal_pro", "ltb", "bmtas", "dsmtl_al"]


@pytest.mark.parametrize("method", SEARCHED)
def test_a_search_starts_from_hard_sharing_on_the_same_labels(method: str, job: Callable[..., Job]) -> None:
    trainer = Trainer(*job(f"{{architecture: {{name: {method}, pretrain_epochs: 1, search_epochs: 2}}}}"))
    pretraining = trainer.model
    steps = trainer.train()
    assert next(steps).phase == "pretrain"
    pretrained = {key: value.clone() for key, value in pretraining.state_dict().items()}

    next(steps)  # the search has begun
    at_start = Trainer(*job(f"{{architecture: {{name: {method}, pretrain_epochs: 1, search_epochs: 2}}}}"))
    at_start._begin(1, {"pretrained": pretraining.phase_output()["pretrained"]})
    assert isinstance(at_start.model, SearchModule)
    encoders = list(at_start.model.start_encoders())
    assert len(encoders) > 2
    for prefix, modules in (("encoder.", encoders), ("heads.", [at_start.model.heads])):
        for module in modules:
            assert module.state_dict()
            for key, value in module.state_dict().items():
                assert torch.equal(value, pretrained[prefix + key]), key

    for _ in steps:
        pass
    assert [epoch["phase"] for epoch in trainer.at.epochs][-2:] == ["retrain"] * 2


@pytest.mark.parametrize("method", SEARCHED)
def test_without_pretraining_nothing_is_known_of_it(method: str) -> None:
    """Runs of before keep their ids."""
    architecture = components.build("architectures", method, {})
    assert not {"pretrain_epochs", "heads"} & architecture.knob_values().keys()
    assert next(phase.name for phase in architecture.phases()) != "pretrain"


def test_the_result_of_a_pretraining_is_no_search_s(job: Callable[..., Job], tmp_path: Path) -> None:
    method = "{architecture: {name: conal, pretrain_epochs: 1, search_epochs: 1}}"
    trainer = Trainer(*job(method), folder=tmp_path)
    finish(trainer)
    pretraining, search = trainer.phase_files()
    assert not finish(Trainer(*job(f"{{architecture: {{name: conal, found: {search}}}}}"))).phases
    with pytest.raises(UserError, match="is the result of a pretraining; name the file of the search that followed"):
        Trainer(*job(f"{{architecture: {{name: conal, found: {pretraining}}}}}"))


def test_a_half_that_lacks_a_task_is_refused_before_the_pretraining(job: Callable[..., Job]) -> None:
    run, data = job("{architecture: {name: conal, pretrain_epochs: 1}}")
    stream = next(iter(data.splits["train"]))
    task = data.suite.streams[stream][0]
    target = data.splits["train"][stream].targets[task]
    kept, target[1:] = target.clone(), MISSING_CLASS if not target.is_floating_point() else torch.nan
    try:
        with pytest.raises(UserError, match=f"half of the training data has no label of task {task}") as raised:
            Trainer(run, data)
    finally:
        target.copy_(kept)
    assert "\n" not in str(raised.value)
    Trainer(*job("{architecture: {name: conal, pretrain_epochs: 1, levels: single}}"))


def test_rounds_in_which_no_task_is_in_question_are_left_out(job: Callable[..., Job]) -> None:
    trainer = Trainer(*job("conal_pro"))
    for alpha in trainer.model.alpha:  # all tasks share the last stage
        alpha.data = torch.tensor([60.0, 0.0], dtype=alpha.dtype)
    record = finish(trainer)
    assert record.status == "finished", record.error
    assert [epoch.phase for epoch in record.epochs] == ["stage 1", "retrain", "retrain"]
    assert record.structure["tree"] == [[0, 0, 0]] * 3


def _search_file(job: Callable[..., Job], folder: Path, method: str = "conal", **lines: str) -> Path:
    """What a run's search leaves."""
    trainer = Trainer(*job(method, **lines), folder=folder)
    finish(trainer)
    [file] = trainer.phase_files()
    return file


def test_a_search_s_file_is_trained_at_once(job: Callable[..., Job], tmp_path: Path) -> None:
    file = _search_file(job, tmp_path)
    record = finish(Trainer(*job(f"{{architecture: {{name: conal, found: {file}}}}}")))
    searched = finish(Trainer(*job("conal"), folder=tmp_path / "other"))
    assert not record.phases and len(record.epochs) == 2
    assert record.structure == searched.structure


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            {"model": "{encoder: {name: mlp, hidden: [6, 5, 4], dropout: 0.5}}"},
            r'another encoder \({"dropout": 0.0}, here {"dropout": 0.5}\)',
        ),
        ({"shared": False}, "another version of the data"),
        ({"method": "conal_pro"}, r'another architecture \("conal", here "conal_pro"\)'),
    ],
)
def test_a_search_of_something_else_is_refused(
    lines: dict[str, Any], what: str, job: Callable[..., Job], tmp_path: Path
) -> None:
    file, method = _search_file(job, tmp_path), lines.pop("method", "conal")
    with pytest.raises(UserError, match=f"was found for {what}.*; drop it to search anew"):
        Trainer(*job(f"{{architecture: {{name: {method}, found: {file}}}}}", **lines))


def test_a_file_that_is_no_search_s_is_refused(job: Callable[..., Job], tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    for content in (b"no checkpoint", b"junk", b"{}", b"", None):  # the reader has an error of its own for each
        if content is None:
            torch.save({"state": torch.ones(2)}, file)
        else:
            file.write_bytes(content)
        with pytest.raises(UserError, match="is not what a phase has left; name a file of a home folder's `phases`"):
            Trainer(*job(f"{{architecture: {{name: conal, found: {file}}}}}"))


def test_a_round_that_others_follow_is_no_result(job: Callable[..., Job], tmp_path: Path) -> None:
    trainer = Trainer(*job("conal_pro"), folder=tmp_path)
    finish(trainer)
    first, *_, last = trainer.phase_files()
    Trainer(*job(f"{{architecture: {{name: conal_pro, found: {last}}}}}"))
    with pytest.raises(UserError, match="the result of a round with another after it; name the last one's file"):
        Trainer(*job(f"{{architecture: {{name: conal_pro, found: {first}}}}}"))


@pytest.mark.parametrize("name", ["conal", "conal_pro", "ltb", "bmtas", "dsmtl_al", "tag"])
def test_searches_mix_features_of_half_precision(name: str, job: Callable[..., Job]) -> None:
    training = TRAINING.replace("float64", "float32").replace("}", ", amp: fp16}")
    record = finish(Trainer(*job(f"{{architecture: {{name: {name}, search_epochs: 2}}}}", training=training)))
    assert record.status == "finished", record.error


@pytest.mark.parametrize("name", ["conal", "conal_pro", "dsmtl_al"])
def test_a_search_of_one_task_has_little_to_find_and_ends(name: str) -> None:
    case = Case("many", {"name": name}, {**SGD, "epochs": 1}, options={"sizes": [21]}, encoder=DEEP)
    record = finish(Trainer(run_of(case), in_memory(case)))
    assert record.status == "finished", record.error
    assert record.epochs[-1].phase == "retrain" and len(record.structure["tasks"]) == 1


def test_a_shared_search_sees_the_same_changed_images_whoever_does_it() -> None:
    training = {**IMAGES, "augment": "flip"}
    case = Case("images", {"name": "conal"}, training, encoder=RESNET)
    data = in_memory(case)
    one, other = (Trainer(run_of(case, seed), data) for seed in (3, 4))
    assert one.batches.augment is not None and other.batches.augment is not None
    assert one.batches.augment.seed == other.batches.augment.seed
    plain = Case("images", {"name": "hps"}, training, encoder=RESNET)
    seeds = [Trainer(run_of(plain, seed), data).batches.augment for seed in (3, 4)]
    assert seeds[0] is not None and seeds[1] is not None and seeds[0].seed != seeds[1].seed
