"""Encoders: components that turn inputs into features.

One module per encoder, named as in experiment files. `Encoder` is the contract; the layers and heads exported
here also serve architectures.
"""

from mtlscale.encoders.batch_norm import BatchNorm2d, conv_block, needs_every_worker, residual_block, resize
from mtlscale.encoders.contract import Encoder, EncoderModule, MapStagedModule, Memory, StagedModule
from mtlscale.encoders.dropout import Dropout, fixed_draws
from mtlscale.encoders.heads import MapHead, linear_head
from mtlscale.encoders.pixels import add_pixels, normalised

__all__ = [
    "BatchNorm2d",
    "Dropout",
    "Encoder",
    "EncoderModule",
    "MapHead",
    "MapStagedModule",
    "Memory",
    "StagedModule",
    "add_pixels",
    "conv_block",
    "fixed_draws",
    "linear_head",
    "needs_every_worker",
    "normalised",
    "residual_block",
    "resize",
]
