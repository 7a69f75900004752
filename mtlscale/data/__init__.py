"""Where samples come from, and who shares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtlscale.data.workers import Workers

__all__ = ["Workers"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: it needs torch, which reading a manifest does not."""
    if name != "Workers":
        raise AttributeError(name)
    from mtlscale.data.workers import Workers

    return Workers
