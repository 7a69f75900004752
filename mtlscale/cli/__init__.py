"""The command line: thin, every command with an example in its help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.config.registry.import_order import use_installed_packages
from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.cli.program import app, main

__all__ = ["app", "main"]

use_installed_packages()  # before anything else is imported
__getattr__ = lazily(__name__)
