"""What every balancer, architecture, objective and encoder keeps, one table over the registry (`subjects.py`).

The same run ends the same, however it is made: by one worker or two, in micro-batches, cut off after every epoch and
resumed, whatever reads its data. What cannot be asked of a component is named in `EXCEPTIONS`, with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import where_installed
from conformance import disk
from conformance.subjects import VARIANTS, subjects
from frozen.cases import Case, Options
from frozen.compute import in_memory, run_of
from torch import Tensor, nn
from two_workers import two_workers

from mtlscale.config import Run, component
from mtlscale.config.registry import components
from mtlscale.data import PreparedData, Workers
from mtlscale.records import Epoch, RunRecord
from mtlscale.training import Trainer, finish

EXACT = 1e-9  # relative, in float64
SUBJECTS = subjects()
State = dict[str, Tensor]

WHOLE_STEP = "looks at a whole step at once; refuses accumulation by name"
# Way -> component -> why it cannot be asked of it.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "accumulated": {
        **dict.fromkeys(("cdan", "cmd", "coral", "dann", "jan", "kl", "mmd", "population_correlation"), WHOLE_STEP),
        **dict.fromkeys(("proxy_a", "rotograd", "darts"), WHOLE_STEP),
        **dict.fromkeys(
            ("mgda_ub", "ntkmtl_sr", "consmtl"),
            "a representation exists only within one micro-batch; refuses accumulation by name",
        ),
    },
    "two workers": {"resnet50": "fifty layers of two channels multiply rounding errors by themselves"},
    "resumed": {},
}
RANDOM_KNOBS = ("dropout", "input_dropout", "drop_path")  # each worker draws its own
# Components that need all training samples at once: no files are mapped for them.
IN_MEMORY = ("svd_reweighting",)


# The variants of which all ways are asked by default: one of each kind of step.
USUAL = (
    "aamtrl/mgda", "aamtrl/printed", "tomato/two topics", "tomato/mgda", "search/ltb, mgda", "images/hps",
    "images/mgda_ub", "tokens/a worker without a tag", "tokens/cagrad", "pooled/mgda", "pooled/graddrop", "pooled/stl",
    "without labels/mgda_ub", "without labels/gradnorm", "domains/proxy_a", "gramian every 3",
    "gramian every 3, without labels", "clipped",
)  # fmt: skip

# Seconds each, of a kind that others of the default suite have: all ways are asked of them in `make test-all`.
SELDOM = {
    **{name: "the variants above" for name in VARIANTS if name not in USUAL},
    "architectures/darts": "pcdarts",
    "architectures/e2rnas": "pcdarts",
    "architectures/pdarts": "pcdarts",
    "architectures/mtl_nas": "nddr_cnn, conal",
    "architectures/e2rnas_pcdarts": "e2rnas, pcdarts",
    "architectures/e2rnas_pdarts": "e2rnas, pdarts",
    "architectures/hps_plus": "hps",
    "architectures/conal_plus": "conal",
    "encoders/deeplab_resnet50": "deeplab_resnet18",
    "encoders/resnet50": "resnet18",
    "encoders/pretrained_layers": "pretrained",
    # Whose inputs a balancer sees is the step's matter: one balancer of each kind of step is asked.
    **{
        f"balancers, shared inputs/{name}": f"balancers/{name}"
        for name in components.names("balancers", plugins=False)
        if name not in ("equal", "famo", "mgda", "mgda_ub", "meta_weighting")
    },
}


def asked(way: str) -> list[Any]:
    """The subjects of which a way is asked, as parameters of a test."""
    refused = set(EXCEPTIONS[way])
    names = [name for name, subject in SUBJECTS.items() if not refused & subject.components]
    if way == "resumed":  # whose inputs a balancer sees is nothing that a checkpoint keeps
        names = [name for name in names if not name.startswith("balancers, shared inputs/")]
    seldom = [pytest.param(name, marks=pytest.mark.slow) for name in names if name in SELDOM]
    return [*where_installed(name for name in names if name not in SELDOM), *seldom]


@pytest.fixture(scope="session")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], PreparedData]:
    """A case's data as a prepared set, written once a test run."""
    home, written = tmp_path_factory.mktemp("conformance"), {}

    def find(case: Case) -> PreparedData:
        key = f"{case.data} {case.options} {case.encoder['name'].startswith('pretrained')}"
        if key not in written:
            written[key] = disk.write(in_memory(case), home / key)
        return written[key]

    return find


_ONE: dict[str, State] = {}


def by_one(name: str) -> State:
    """What the run of a subject ends with when nothing disturbs it, without dropout, which each worker draws itself."""
    if name not in _ONE:
        case = still(SUBJECTS[name].case)
        _ONE[name] = end_of(Trainer(run_of(case), in_memory(case)))
    return _ONE[name]


def still(case: Case, **training: Any) -> Case:
    """The case without noise, and with other training settings.

    Plain SGD in place of Adam, which makes whole steps out of gradients that are zero but for rounding.
    """
    encoder = _quiet("encoders", case.encoder)
    method = {
        kind: _quiet(f"{kind}s", value) if isinstance(value, dict) else value for kind, value in case.method.items()
    }
    plain = {} if "optimizer" in case.training else {"optimizer": "sgd", "momentum": 0.9}
    training = {**plain, **case.training, **training}
    return dataclasses.replace(case, dropout=0.0, method=method, encoder=encoder, training=training)


def _quiet(kind: str, options: Options) -> Options:
    """Turn off the random knobs that a component has."""
    knobs = component(kind, options["name"]).knobs()
    return {**options, **{name: 0.0 for name in RANDOM_KNOBS if name in knobs}}


def end_of(trainer: Trainer) -> State:
    """Train to the end; return parameters, losses, weights, traces and metrics."""
    return state_of(trainer, finish(trainer))


def state_of(trainer: Trainer, record: RunRecord) -> State:
    assert record.status == "finished", record.error
    own = {} if trainer.objective is None else trainer.objective.state_dict(prefix="objective.")
    numbers = {f"epoch {entry.epoch} {entry.phase}": _numbers(_noted(entry)) for entry in record.epochs}
    metrics = {"metrics": _numbers(record.metrics), "last": _numbers(record.last)}
    flat = {key: torch.tensor(values, dtype=torch.float64) for key, values in {**numbers, **metrics}.items()}
    return {**trainer.model.state_dict(), **own, **flat}


def _noted(epoch: Epoch) -> list[Any]:
    """What an epoch's record says that is no time."""
    traces = {key: value for key, value in epoch.traces.items() if key not in ("data_share", "kappa")}
    return [epoch.train_loss, epoch.weights, epoch.val, traces]


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, list | tuple):
        return [number for entry in value for number in _numbers(entry)]
    return [float(value)] if isinstance(value, int | float) else []


def assert_close(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        gap = (value.double() - found[key].double()).nan_to_num().norm()
        assert torch.equal(value.isnan(), found[key].isnan()), key
        size = value.double().nan_to_num().norm().clamp(min=1e-12)
        assert gap <= EXACT * size, f"{key} differs by {gap / size:.1e}"


# -- two workers ---------------------------------------------------------------------------------------------------


def _by_this_worker(job: tuple[Run, PreparedData], workers: Workers) -> State:
    return end_of(Trainer(*job, workers=workers))


@pytest.mark.parametrize("name", asked("two workers"))
def test_two_workers_end_as_one(name: str) -> None:
    case = still(SUBJECTS[name].case)
    found, _ = two_workers(_by_this_worker, [(run_of(case), in_memory(case))])
    assert_close(found[0], by_one(name))


# -- micro-batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", asked("accumulated"))
def test_accumulated_gradients_are_those_of_the_whole_batch(name: str) -> None:
    case = still(SUBJECTS[name].case, accumulate=3)
    trainer = Trainer(run_of(case), in_memory(case))
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in trainer.model.modules()):
        pytest.skip("batch normalisation sees micro-batches, not the batch")
    assert_close(end_of(trainer), by_one(name))


# -- interruptions and readers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", asked("resumed"))
def test_cut_off_in_every_epoch_and_read_from_files_ends_as_undisturbed(
    name: str, on_disk: Callable[[Case], PreparedData], tmp_path: Path
) -> None:
    """Bit by bit, dropout and all: each process trains for an epoch, begins another and is gone."""
    case = SUBJECTS[name].case
    run = run_of(dataclasses.replace(case, dropout=0.2))
    expected = end_of(Trainer(run, in_memory(case)))
    reader = "memory" if SUBJECTS[name].components & set(IN_MEMORY) else "mapped"
    spec = {"checkpoint_seconds": 0, "reader": reader}
    disturbed = run_of(dataclasses.replace(case, dropout=0.2, training={**case.training, **spec}))
    data, total = on_disk(case), sum(key.startswith("epoch ") for key in expected)
    for _ in range(1, total):
        steps = Trainer(disturbed, data, folder=tmp_path).train()
        next(steps)
        steps.close()
    last = Trainer(disturbed, data, folder=tmp_path)
    found = end_of(last)
    assert len(last.at.epochs) == total
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert value.numpy().tobytes() == found[key].numpy().tobytes(), key


def test_every_exception_is_of_a_component() -> None:
    if "darts" not in components.names("architectures", plugins=False):
        pytest.skip("exceptions of the family mtlscale.nas are among them")
    known = {part for subject in SUBJECTS.values() for part in subject.components}
    assert {name for refused in EXCEPTIONS.values() for name in refused} <= known
