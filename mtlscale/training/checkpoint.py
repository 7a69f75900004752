"""Checkpoints: whole or not there, readable without unpickling code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from mtlscale.records import write_atomically


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a dictionary of tensors, numbers, strings, lists and dictionaries."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """The content, or None where there is no checkpoint."""
    if not path.exists():
        return None
    return torch.load(path, map_location=device, weights_only=True)
