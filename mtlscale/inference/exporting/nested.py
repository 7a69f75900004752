"""Encoding of a phase's output, lists and dictionaries with tensors, as plain JSON and numbered tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Encode a value as JSON; its tensors go into `tensors` under their number."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}

    if isinstance(value, Mapping):
        return {"entries": [[plain(key, tensors), plain(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [plain(entry, tensors) for entry in value]}
    if isinstance(value, list):
        return [plain(entry, tensors) for entry in value]

    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value

    raise TypeError(f"{type(value).__name__} is no part of what a phase hands over")


def restored(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `plain` encoded."""
    if isinstance(value, list):
        return [restored(entry, tensors) for entry in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return torch.clone(tensors[value["tensor"]])
    if "tuple" in value:
        return tuple(restored(entry, tensors) for entry in value["tuple"])
    if "number" in value:
        return float(value["number"])
    return {restored(key, tensors): restored(entry, tensors) for key, entry in value["entries"]}
