"""The shipped experiments on images: their methods fit their networks, the small forms follow the full ones and run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from data_sets import DATA_SETS
from in_process import prepare

from mtlscale.config import SHIPPED, Experiment, Task, TaskSuite, load_experiment
from mtlscale.data import Batch, Samples
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.report import Leaderboard, read_published
from mtlscale.report.sections.comparisons import compared
from mtlscale.torchvision_ops import declare
from mtlscale.training import build_model, train

NINE = tuple(Task(name=f"attribute {i}", loss="bce", outputs=1, metrics=("error",)) for i in range(9))
MAPS = (
    Task(name="segmentation", loss="cross_entropy", outputs=13, metrics=("miou",)),
    Task(name="depth", loss="l1", outputs=1, metrics=("abs_err",)),
    Task(name="normals_estimated", loss="cosine", outputs=3, metrics=("angle_mean",)),
)


@pytest.mark.parametrize(
    ("name", "tasks", "size"),
    [
        ("celeba9", NINE, (64, 64)),
        ("nyuv2", MAPS, (72, 96)),
        ("conal_celeba9", NINE, (48, 48)),
        ("conal_nyuv2", MAPS, (72, 96)),
    ],
)
def test_every_method_of_the_small_form_predicts_what_the_tasks_want(
    name: str, tasks: tuple[Task, ...], size: tuple[int, int]
) -> None:
    experiment = load_experiment(SHIPPED / f"{name}_cpu.yaml")
    suite = TaskSuite(name=name, tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, *size))
    inputs = torch.zeros(1, 3, *size, dtype=torch.uint8)
    batch = Batch("all", Samples(inputs, {task.name: torch.zeros(1) for task in tasks}), 1)
    networks = {  # balancers alone make no other network
        json.dumps([run.spec[part] for part in ("architecture", "objective", "encoder", "dropout")]): run
        for run in experiment.runs({experiment.datasets[0].label: "f00d"})
    }
    assert len(networks) > 1
    for run in networks.values():
        model, _ = build_model(run, suite)
        model.eval()
        predictions = model(batch).predictions
        for task in tasks:
            expected = (1, 1) if tasks is NINE else (1, task.outputs, *size)
            assert predictions[task.name].shape == expected, run.method


@pytest.mark.parametrize("name", ["celeba9", "cityscapes", "nyuv2", "pascal_context", "taskonomy"])
def test_the_small_form_is_the_full_one_reduced(name: str) -> None:
    small, full = (load_experiment(SHIPPED / f"{name}_{form}.yaml") for form in ("cpu", "full"))
    assert small.datasets[0].name == full.datasets[0].name
    assert {method.label for method in small.methods} <= {method.label for method in full.methods}
    assert len(small.seeds) == 1 and len(full.seeds) == 3
    assert small.resources.gpus_per_worker == 0 and full.resources.gpus_per_worker == 1
    full.validate_components()
    assert full.published == small.published and full.published is not None
    assert full.model.encoder.options["weights"] is None  # said, not left out
    command = f"mtlscale run {name}_full --set model.encoder.weights=resnet"
    assert command in (SHIPPED / f"{name}_full.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("searched", "full"), [("conal_celeba9_cpu", "celeba9_full"), ("conal_nyuv2_cpu", "nyuv2_full")]
)
def test_searches_on_two_cores_are_those_of_the_full_form_reduced(searched: str, full: str) -> None:
    small, large = (load_experiment(SHIPPED / f"{name}.yaml") for name in (searched, full))
    added = {"conal from nothing"}  # the full form starts from weights fitted elsewhere
    assert {method.label for method in small.methods} - added <= {method.label for method in large.methods}
    assert small.published == large.published
    small.validate_components()


def test_the_labels_of_dsmtl_are_those_of_its_tables() -> None:
    experiment = load_experiment(SHIPPED / "dsmtl_nyuv2_ablations.yaml")
    experiment.validate_components()
    assert experiment.published is not None
    tables = [t for t in read_published(experiment.published).of("nyuv2") if "6.6" in t.source or "6.7" in t.source]
    assert len(tables) == 3
    assert {label for table in tables for label in table.methods} <= {method.label for method in experiment.methods}


TINY = (
    "training.epochs=1",
    "training.steps_per_epoch=2",
    "training.batch_size=4",
    "model.encoder.width=4",
    "model.encoder.head_width=4",
    "model.encoder.rates=[1, 2]",
    "datasets.0.options.size=[32, 32]",
    "datasets.0.options.validation=0.3",
)


def tiny(name: str, form: str, *more: str) -> Experiment:
    return load_experiment(SHIPPED / f"{name}_{form}.yaml", (*TINY, *more))


@pytest.mark.parametrize("name", ["cityscapes", "pascal_context", "taskonomy"])
def test_the_small_form_runs_on_the_official_layout_and_stands_beside_the_paper(name: str, tmp_path: Path) -> None:
    experiment = tiny(name, "cpu")
    [dataset] = experiment.datasets
    data = load_prepared(
        prepare(name, dict(dataset.options), DATA_SETS[name].write(tmp_path / name), tmp_path / "home")
    )
    records = [train(run, data) for run in experiment.runs({name: data.manifest.fingerprint})]
    assert {record.method for record in records} == {method.label for method in experiment.methods_of(dataset)}
    assert {record.status for record in records} == {"finished"}, [record.error for record in records]
    assert {record.steps for record in records} == {2}
    assert experiment.published is not None
    published = read_published(experiment.published)
    board = Leaderboard.from_records(records, published=published)
    comparisons = compared(board.tables[name], board.published[name])
    assert len(comparisons) == len(published.of(name)) == 2
    for comparison in comparisons:
        assert {row[0] for row in comparison.sheet.texts} == {"stl", "equal", "cross_stitch", "mtan", "tsn"} & set(
            comparison.published.methods
        )


def test_the_full_form_starts_from_a_file_of_weights(tmp_path: Path) -> None:
    declare()
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18()
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    more = (
        f"model.encoder.weights={tmp_path / 'resnet18.pth'}",
        "model.encoder.width=64",
        "resources.gpus_per_worker=0",
    )
    experiment = tiny("taskonomy", "full", *more, "training.lr=1e-9", "training.channels_last=false")
    options = dict(experiment.datasets[0].options)
    data = load_prepared(
        prepare("taskonomy", options, DATA_SETS["taskonomy"].write(tmp_path / "taskonomy"), tmp_path / "home")
    )
    run = next(r for r in experiment.runs({"taskonomy": data.manifest.fingerprint}) if r.method == "equal")
    model, _ = build_model(run, data.suite)
    assert torch.equal(model.encoder.stages[4][1].conv2.weight, theirs.layer4[1].conv2.weight)
    record = train(run, data)
    assert record.status == "finished" and record.spec["encoder"]["weights"]["file"].endswith("resnet18.pth")


@pytest.mark.parametrize(
    ("name", "batch"), [("cityscapes", 2), ("nyuv2", 2), ("pascal_context", 16), ("taskonomy", 64)]
)
def test_searches_have_the_published_batches(name: str, batch: int) -> None:
    experiment = load_experiment(f"{name}_full")
    searching = [run for run in experiment.runs({experiment.datasets[0].label: "f00d"}) if len(run.parts.phases) > 1]
    searches = [phase for run in searching for phase in run.parts.phases if phase.name.startswith(("search", "stage"))]
    assert {run.method for run in searching} >= {"bmtas", "ltb", "conal", "conal_pro", "dsmtl_al"}
    assert {phase.batch_size for phase in searches} == {batch}
