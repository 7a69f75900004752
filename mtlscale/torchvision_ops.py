"""Declare torchvision's missing operators, so that `import torchvision` works beside the CPU build of torch.

torchvision's wheel is a CUDA build; beside the CPU torch its compiled operators don't load, and its import fails on the
missing schemas of `nms` and `qnms`. Models, transforms and data sets work once these are declared; the operators
themselves (`ops.nms`, `io.read_image`) don't.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.library import Library


@functools.cache  # also keeps the library: its schemas go when it is collected
def declare() -> Library | None:
    """Declare the operators; call before the first import of torchvision."""
    import torch

    try:
        import torchvision
    except ModuleNotFoundError:  # an exported model without residual blocks does without
        return None
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise

        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401

        return library
    return None
