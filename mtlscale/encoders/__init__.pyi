# Written by `python tests/house/stubs.py`.
from mtlscale.encoders.batch_norm import BatchNorm2d as BatchNorm2d
from mtlscale.encoders.batch_norm import conv_block as conv_block
from mtlscale.encoders.batch_norm import needs_every_worker as needs_every_worker
from mtlscale.encoders.batch_norm import residual_block as residual_block
from mtlscale.encoders.batch_norm import resize as resize
from mtlscale.encoders.contract import Encoder as Encoder
from mtlscale.encoders.contract import EncoderModule as EncoderModule
from mtlscale.encoders.contract import MapStagedModule as MapStagedModule
from mtlscale.encoders.contract import Memory as Memory
from mtlscale.encoders.contract import StagedModule as StagedModule
from mtlscale.encoders.dropout import Dropout as Dropout
from mtlscale.encoders.dropout import fixed_draws as fixed_draws
from mtlscale.encoders.heads import MapHead as MapHead
from mtlscale.encoders.heads import linear_head as linear_head
from mtlscale.encoders.pixels import add_pixels as add_pixels
from mtlscale.encoders.pixels import normalised as normalised
