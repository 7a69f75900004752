"""Encoders: components that turn inputs into features.

One module per encoder, named as in experiment files. `Encoder` is the contract; the layers and heads exported
here also serve architectures.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "BatchNorm2d": ".batch_norm",
        "Dropout": ".dropout",
        "Encoder": ".contract",
        "EncoderModule": ".contract",
        "MapHead": ".heads",
        "MapStagedModule": ".contract",
        "Memory": ".contract",
        "StagedModule": ".contract",
        "add_pixels": ".pixels",
        "conv_block": ".batch_norm",
        "fixed_draws": ".dropout",
        "linear_head": ".heads",
        "needs_every_worker": ".batch_norm",
        "normalised": ".pixels",
        "residual_block": ".batch_norm",
        "resize": ".batch_norm",
    },
)
