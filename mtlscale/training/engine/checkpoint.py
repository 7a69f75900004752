"""Checkpoints: written whole or not at all, readable without unpickling code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from mtlscale.records import write_atomically


class Damaged(Exception):
    """Checkpoint that cannot be read; the message says which and why."""


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a dictionary of tensors, numbers, strings, lists and dictionaries."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any] | None:
    """Return a checkpoint's content with its tensors on the host; None where there is no file.

    Whoever takes a tensor moves it to where it belongs: an optimiser's counters, say, stay on the host.

    Raises:
        Damaged: If the file is cut off or no checkpoint.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None
    except Exception as error:  # reading a file that is no checkpoint may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise Damaged(f"{path} cannot be read ({reason})") from error

    return content
