"""Sinks beside MLflow, fed by the same events: TensorBoard and Weights & Biases."""

from mtlscale.tracking.sinks.scalar_sink import ScalarSink
from mtlscale.tracking.sinks.tensorboard import TensorBoard
from mtlscale.tracking.sinks.wandb import WeightsAndBiases

SINKS: dict[str, type[ScalarSink]] = {sink.name: sink for sink in (TensorBoard, WeightsAndBiases)}

__all__ = ["SINKS", "ScalarSink"]
