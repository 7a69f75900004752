"""Every network comes back from its spec, its state and what its search found, without the files it began from."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import where_installed
from frozen.cases import CASES, Case
from frozen.compute import in_memory, run_of
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import checkpoints, named_files
from mtlscale.inference.exporting import nested
from mtlscale.inference.finished_run import bare
from mtlscale.inference.network import network
from mtlscale.training import Trainer
from mtlscale.training.engine.loop import finish


def method_of(case: Case) -> str:
    told = case.method.get("architecture", case.method.get("name"))
    return str(told["name"] if isinstance(told, dict) else told)


def chosen() -> list[str]:
    """A case of every method and of every encoder."""
    found: dict[str, str] = {}
    for name, case in CASES.items():
        if case.flavour == "single" and not name.startswith("balancer"):
            found.setdefault(method_of(case), name)
            found.setdefault(case.encoder["name"], name)
    return list(dict.fromkeys(found.values()))


def predicted(trainer: Trainer, model: MultiTaskModule) -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for batch in trainer.batches.of_split("test"):
            for name, scores in model.eval()(batch).predictions.items():
                found.setdefault(name, []).append(scores)
    return found


# Searches of both kinds of which each is here by itself, too: the dearest of all.
BOTH = ("architecture, cells/e2rnas_pdarts", "architecture, cells/e2rnas_pcdarts")


@pytest.mark.parametrize(
    "name",
    [
        *where_installed(name for name in chosen() if name not in BOTH),
        *(pytest.param(name, marks=pytest.mark.slow) for name in BOTH),
    ],
)
def test_what_comes_back_predicts_the_same_to_the_last_bit(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    case = replace(case, training={**case.training, "steps_per_epoch": 1})  # any weights will do
    run = run_of(case)
    trainer = Trainer(run, in_memory(case))
    assert finish(trainer).status == "finished"
    tensors: dict[str, Tensor] = {}
    written = None if trainer.found is None else json.loads(json.dumps(nested.plain(trainer.found, tensors)))
    checkpoint = run.spec["encoder"].get("checkpoint")
    if checkpoint is not None:
        folder = named_files.locate(checkpoint)
        for path in (folder / checkpoints.CONFIG, *checkpoints.tokenizer_files(folder)):
            shutil.copy(path, tmp_path)
    random = torch.get_rng_state()
    again = network(
        run.spec,
        bare(trainer.suite),
        trainer.phase.name,
        None if written is None else nested.restored(written, tensors),
        trainer.chosen_state,
        tmp_path,
    )
    assert torch.equal(torch.get_rng_state(), random) and not any(p.requires_grad for p in again.parameters())
    with trainer.session.chosen():
        before = predicted(trainer, trainer.model)
    after = predicted(trainer, again)
    assert before.keys() == after.keys()
    for task, parts in before.items():
        assert all(torch.equal(one, other) for one, other in zip(parts, after[task], strict=True)), task
