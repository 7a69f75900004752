"""What turns inputs into features. One module per encoder, named as in experiment files."""

from mtlscale.encoders._base import Encoder, EncoderModule, MapStagedModule, Memory, StagedModule
from mtlscale.encoders._batch_norm import BatchNorm2d, conv_block, needs_every_worker, residual_block, resize
from mtlscale.encoders._dropout import Dropout, drawn
from mtlscale.encoders._heads import MapHead, linear_head

__all__ = [
    "BatchNorm2d",
    "Dropout",
    "Encoder",
    "EncoderModule",
    "MapHead",
    "MapStagedModule",
    "Memory",
    "StagedModule",
    "conv_block",
    "drawn",
    "linear_head",
    "needs_every_worker",
    "residual_block",
    "resize",
]
