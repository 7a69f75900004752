"""Every row of every shipped experiment can begin: a plan does not ask what a network needs, its making does."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FAMILY_COMPONENTS, NEEDED, installed, write_checkpoint

from mtlscale.config import SHIPPED, Experiment, Run, Task, TaskSuite, load_experiment, named_files
from mtlscale.config.settings.models import DatasetSpec
from mtlscale.torchvision_ops import declare
from mtlscale.training import build_model
from pipelines.graph.qm9 import GRAPHS, KEY
from pipelines.image.celeba import NINE
from pipelines.image.chestxray14 import FINDINGS
from pipelines.text.amazon import PRODUCTS
from pipelines.text.glue import DEFAULT as GLUE
from pipelines.text.newsgroups import TOPICS
from pipelines.text.sentences import DEFAULT as SENTENCES

NAMES = sorted(path.stem for path in SHIPPED.glob("*.yaml"))
# The others take minutes together.
QUICK = [
    n for n in NAMES if n.startswith(("e2rnas_cifar", "glue_pairs", "sentences_from", "dsmtl_safety", "tomato_table3"))
]
# Whose making computes with its numbers.
COMPUTES = ("darts", "e2rnas", "pcdarts", "pdarts", "cell_network", "aaspc", "bmtas", "conditioned_hps", "palora")

DENSE = {"segmentation": ("cross_entropy", 13), "depth": ("l1", 1), "normals": ("cosine", 3)}
# Data set -> tasks of the suite, their loss and outputs, the shape of an input.
SETS: dict[str, tuple[Iterable[str], str, int, tuple[int, ...]]] = {
    "activations": (["a", "b", "c"], "mse", 1, (200,)),
    "adult": (["income", "single"], "bce", 1, (8,)),
    "amazon": (PRODUCTS, "bce", 1, (64,)),
    "awa2": ([f"class{n}" for n in range(50)], "cross_entropy", 2, (500,)),
    "celeba": (NINE, "bce", 1, (3, 64, 64)),
    "census_income": (["income", "single"], "bce", 1, (8,)),
    "chestxray14": (FINDINGS, "bce", 1, (3, 224, 224)),
    "cifar10": (["label"], "cross_entropy", 10, (3, 32, 32)),
    "cifar100": (["label"], "cross_entropy", 100, (3, 32, 32)),
    "digit_pairs": (["left", "right"], "cross_entropy", 10, (144,)),
    "digits": ([f"digit{n}" for n in range(10)], "bce", 1, (64,)),
    "fonseca": (["plus", "minus"], "fonseca", 1, (1,)),
    "glue": (GLUE, "cross_entropy", 2, (32,)),
    "imagenet": (["label"], "cross_entropy", 1000, (3, 224, 224)),
    "mcsem": ([f"channel{n}" for n in range(12)], "soft_cross_entropy", 5, (768,)),
    "mnist_mtl": ([f"digit{n}" for n in range(10)], "cross_entropy", 2, (64,)),
    "molecules": ([f"assay{n}" for n in range(12)], "bce", 1, (1,)),
    "movielens": (["like", "love"], "bce", 1, (8,)),
    "multi_target": (["first", "second"], "mse", 1, (8,)),
    "multilabel": ([f"Class{n}" for n in range(1, 15)], "bce", 1, (72,)),
    "newsgroups": (TOPICS, "cross_entropy", 4, (64,)),
    "office31": (["label"], "cross_entropy", 31, (3, 224, 224)),
    "office_caltech10": (["label"], "cross_entropy", 10, (1280,)),
    "office_home": (["label"], "cross_entropy", 65, (3, 224, 224)),
    "parkinsons": (["motor", "total"], "mse", 1, (18,)),
    "qm9": (["mu", "alpha"], "mse", 1, (1,)),
    "school": ([f"school{n:03}" for n in range(1, 140)], "cross_entropy", 3, (28,)),
    "sentences": (SENTENCES, "cross_entropy", 2, (32,)),
    "synthetic": ([f"task{n}" for n in range(12)], "soft_cross_entropy", 5, (64,)),
    "transfer": (["target", "source"], "mse", 1, (100,)),
    "ud": (["en", "zh", "te", "vi"], "cross_entropy", 17, (32,)),
    "visda": (["label"], "cross_entropy", 12, (3, 224, 224)),
    "wikiann": (["en", "de", "es", "nl"], "cross_entropy", 7, (32,)),
}
SHARED = ("activations", "adult", "celeba", "census_income", "chestxray14", "digit_pairs", "fonseca", "imagenet")
SHARED += (
    "molecules",
    "movielens",
    "multi_target",
    "multilabel",
    "parkinsons",
    "qm9",
    "cityscapes",
    "nyuv2",
    "pascal_context",
    "taskonomy",
)


def suite_of(dataset: DatasetSpec, encoder: str, sha256: str) -> TaskSuite:
    """Tasks and shapes as the data set would have them; sequences and numbers of words are short."""
    options, name = dict(dataset.options), dataset.name
    inputs: Any = "shared" if name in SHARED else "per_task"

    if name not in SETS:  # maps
        height, width = options["size"]
        tasks = tuple(Task(name=n, loss=loss, outputs=k, metrics=("mae",)) for n, (loss, k) in DENSE.items())
        return TaskSuite(name=name, tasks=tasks, inputs=inputs, input_kind="image", input_shape=(3, height, width))

    names, loss, outputs, shape = SETS[name]
    names = dataset.tasks or options.get("tasks") or options.get("domains") or options.get("languages") or names
    per = "token" if name in ("ud", "wikiann") else "sample"
    tasks = tuple(Task(name=n, loss=loss, outputs=outputs, metrics=("error",), per=per) for n in names)
    kind: Any = "image" if len(shape) == 3 else "vector"
    suite = TaskSuite(name=name, tasks=tasks, inputs=inputs, input_kind=kind, input_shape=shape)

    if name in ("amazon", "glue", "newsgroups", "sentences", "ud", "wikiann") and not options.get("features"):
        tokens = {"tokenizer": {"sha256": sha256, "padding": 0, "separator": 3}}
        suite = replace(suite, input_kind="tokens", vocabulary_size=16, extras=tokens)
        if encoder == "word_char":
            suite = replace(suite, input_shape=(32, 9), extras={"characters": [*"_?abc"]})
    elif per == "token" or encoder == "embedding_mlp":
        suite = replace(suite, input_shape=(*shape, 384) if per == "token" else shape, categories=())
    elif name in ("molecules", "qm9"):
        layout = GRAPHS["bonds"]
        suite = replace(suite, categories=layout.categories, input_shape=(len(layout.categories),),
                        extras={KEY: layout.as_json()})  # fmt: skip
    if name in ("adult", "census_income", "movielens"):
        columns = ["sex", "race", "education", "user", "item", *"abc"]
        suite = replace(suite, categories=(3, 4, 5, 6, 7, 0, 0, 0), extras={"columns": columns})
    if "target" in options and "domain" in options:
        suite = replace(suite, unlabelled=("target",), domains=(options["domain"], options["target"]))
    return replace(suite, unlabelled=("ood",)) if "ood" in options else suite


def loaded(name: str, folder: Path, checkpoint: Path) -> Experiment:
    """The file, with words' vectors by lot and a small pretrained model."""
    text = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").replace("vectors: prepared", "vectors: null")
    lines = text.replace("checkpoint: null", f"checkpoint: {checkpoint}").splitlines()
    file = folder / f"{name}.yaml"
    file.write_text("\n".join(line for line in lines if not line.startswith("published:")), encoding="utf-8")
    return load_experiment(file)


def networks(experiment: Experiment, sha256: str) -> list[tuple[Run, TaskSuite]]:
    """Return a run of each network that differs from the others."""
    datasets = {dataset.label: dataset for dataset in experiment.datasets}
    runs: dict[str, tuple[Run, TaskSuite]] = {}
    for run in experiment.runs(defaultdict(lambda: "f00d")):
        suite = suite_of(datasets[run.dataset], run.spec["encoder"]["name"], sha256)
        parts = [run.spec[part] for part in ("architecture", "objective", "encoder", "dropout")]
        runs.setdefault(json.dumps([parts, str(suite)]), (run, suite))
    return list(runs.values())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in NAMES])
def test_every_row_begins(name: str, tmp_path: Path) -> None:
    text = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text))
    if missing := words & FAMILY_COMPONENTS - installed():
        pytest.skip(f"{', '.join(sorted(missing))}: not installed")
    if "metaworld" in words:
        pytest.skip("its suite is what a simulator says; tests/rl has it")
    checkpoint, sha256 = tmp_path / "bert", ""
    if words & {"pretrained", "pretrained_layers"}:
        for package in NEEDED:
            pytest.importorskip(package)
        sha256 = named_files.tokenizer_hash(write_checkpoint(checkpoint))

    declare()
    made = networks(loaded(name, tmp_path, checkpoint), sha256)
    for run, suite in made:
        computes = run.spec["architecture"]["name"].startswith(COMPUTES)
        with torch.device("cpu" if computes else "meta"):
            model, _ = build_model(run, suite)
            if computes and hasattr(model, "sources"):
                model.sources()  # looks at its targets
    assert made
