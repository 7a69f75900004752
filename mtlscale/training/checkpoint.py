"""Checkpoints: whole or not there, readable without unpickling code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from mtlscale.records import write_atomically


class Damaged(Exception):
    """A checkpoint that cannot be read; the message says which and why."""


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a dictionary of tensors, numbers, strings, lists and dictionaries."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any] | None:
    """The content, its tensors on the host; None where there is no checkpoint.

    Whoever takes a tensor moves it to where it belongs: an optimiser's counters, say, stay on the host. Raises
    `Damaged` where the file is cut off or no checkpoint.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None
    except Exception as error:  # what is no checkpoint makes the reader stumble over anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise Damaged(f"{path} cannot be read ({reason})") from error
    return content
