"""Export of an exported model's network to ONNX, if the network allows it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import UserError
from mtlscale.data import Batch, Samples
from mtlscale.data.readers.random_access import placed
from mtlscale.inference.description import write_hashes

if TYPE_CHECKING:
    from mtlscale.inference.model import ExportedModel

FILE = "model.onnx"
_LOOKED = 3  # samples of the example input


@dataclass(frozen=True)
class OnnxExport:
    """The ONNX file, and in words how its predictions compare with the network's."""

    path: Path
    checked: str


class Predicting(nn.Module):
    """Module from prepared inputs [B, *shape] to a prediction [B, outputs, …] of each task, in their order."""

    def __init__(self, module: MultiTaskModule, streams: dict[str, tuple[str, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.streams, self.dtype = module, streams, dtype

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        predictions: dict[str, Tensor] = {}
        for stream, tasks in self.streams.items():
            if tasks:
                samples = placed(Samples(inputs, dict.fromkeys(tasks, inputs)), inputs.device, self.dtype)
                predictions |= self.module(Batch(stream, samples, inputs.shape[0])).predictions
        return tuple(predictions[name] for tasks in self.streams.values() for name in tasks)


def write_onnx(model: ExportedModel, path: Path | None = None) -> OnnxExport:
    """Write `model.onnx` into the model's folder, or to `path`.

    Its input is `input`, with any number of samples, and each task is an output under its name. The file is compared
    with the network if onnxruntime is installed.

    Raises:
        UserError: The network cannot be exported; the folder then stays as it was.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--onnx needs {package}; pip install 'mtlscale[onnx]'")

    path = path or model.folder / FILE
    streams = model.suite.streams
    network = Predicting(model.module, streams, model.dtype).eval()
    example = _example(model)
    names = [name for tasks in streams.values() for name in tasks]

    temporary = path.with_name(f".{path.name}")
    try:
        _export(network, example, names, temporary)
        comparison = _compared(temporary, network, example)
        temporary.replace(path)
        if path.parent == model.folder:
            write_hashes(model.folder)
    finally:
        temporary.unlink(missing_ok=True)

    return OnnxExport(path, comparison)


def _export(network: nn.Module, example: Tensor, names: Sequence[str], path: Path) -> None:
    import io
    import logging
    import warnings
    from contextlib import redirect_stderr, redirect_stdout

    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx", "onnx_ir", "onnxscript")]
    levels, discarded = [logger.level for logger in loggers], io.StringIO()
    for logger in loggers:
        logger.setLevel(logging.ERROR)

    try:
        with warnings.catch_warnings(), redirect_stdout(discarded), redirect_stderr(discarded), torch.no_grad():
            warnings.simplefilter("ignore")
            samples = ({0: torch.export.Dim("samples")},)
            captured = torch.export.export(network, (example,), dynamic_shapes=samples)
            program: Any = torch.onnx.export(
                captured,
                dynamo=True,
                verbose=False,
                input_names=["input"],
                output_names=list(names),
                dynamic_shapes=samples,
            )
            program.save(str(path), include_initializers=True, external_data=False)
    except Exception as error:  # the exporter raises many types
        raise UserError(
            f"the network cannot be exported to ONNX ({_reason(error)}); the rest of the folder is complete"
        ) from None
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _example(model: ExportedModel) -> Tensor:
    model_input = model.description.input
    shape, dtype = (_LOOKED, *model_input.shape), getattr(torch, model_input.dtype)
    generator = torch.Generator().manual_seed(0)
    if model_input.kind == "tokens":
        return torch.randint(1, model.suite.vocabulary_size or 2, shape, generator=generator).to(dtype)
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _compared(path: Path, network: nn.Module, example: Tensor) -> str:
    """Say in words how far onnxruntime's predictions are from the network's; raise `UserError` if they differ."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "not compared with the network: onnxruntime is not installed"
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)

    # One sample more than the network was exported with, so that the batch's size is free.
    inputs = torch.cat([example, example[:1]])
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        onnx_outputs = session.run(None, {"input": inputs.numpy()})
    except Exception as error:
        raise UserError(f"onnxruntime cannot run the exported network ({_reason(error)})") from None

    with torch.no_grad():
        network_outputs = network(inputs)
    furthest = 0.0
    for onnx_output, network_output in zip(onnx_outputs, network_outputs, strict=True):
        difference = (torch.from_numpy(onnx_output) - network_output).abs().max().item()
        if not difference <= 1e-3 * (1.0 + network_output.abs().max().item()):
            raise UserError(f"onnxruntime predicts otherwise than the network, by up to {difference:.3g}: no file kept")
        furthest = max(furthest, difference)

    return f"onnxruntime predicts the same, up to {furthest:.1e}"
