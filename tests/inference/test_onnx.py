"""Networks as ONNX: the same predictions for any number of samples, or one line that says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import mtlscale
from exported_runs import Finished

from mtlscale.inference import load_model

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
SMALL = "{epochs: 1, batch_size: 16}"


def test_onnx_predicts_what_the_network_predicts(finished: Callable[..., Finished], tmp_path: Path) -> None:
    run, folder = finished("mmoe", training=SMALL), tmp_path / "model"
    done = mtlscale("export", run.run_id, folder, "--home", run.home.root, "--onnx")
    assert done.code == 0 and "onnxruntime predicts the same" in done.stdout
    model = load_model(folder)  # whose files are counted again
    inputs = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names == ["a", "b", "c"]
    for name, scores in zip(names, session.run(None, {"input": inputs}), strict=True):
        assert np.allclose(scores, model.predict(inputs, name)[name].scores, atol=1e-5)


PLUGIN = '''
from typing import ClassVar
from mtlscale.architectures.hard.shared_bottom import SharedBottom
from mtlscale.architectures import MultiTaskModule

class Stubborn(SharedBottom):
    """Asks its numbers which way to go."""
    name: ClassVar[str] = "stubborn"
    def build(self, suite, encoder, dropout):
        model = super().build(suite, encoder, dropout)
        forward = model.forward
        model.forward = lambda batch: forward(batch) if float(batch.inputs.sum()) > -1e30 else None
        return model
'''


def test_a_network_that_cannot_be_exported_leaves_the_rest(finished: Callable[..., Finished], tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(PLUGIN)
    uneven = Path(__file__).parents[1] / "plugins" / "uneven.py"
    method = {"architecture": "stubborn"}
    run = finished(method, plugins=f"[{uneven}, {tmp_path / 'stubborn.py'}]", training=SMALL)
    folder = tmp_path / "model"
    done = mtlscale("export", run.run_id, folder, "--home", run.home.root, "--onnx")
    assert done.code == 2 and "cannot be exported to ONNX" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "the rest of the folder is complete" in done.stderr and not list(folder.glob("*.onnx*"))
    assert load_model(folder, trust_plugins=True).evaluate(run.data.folder) == run.record.metrics["test"]
