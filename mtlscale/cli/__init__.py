"""The command line: thin, every command with an example in its help."""

from mtlscale.config.registry.import_order import use_installed_packages
from mtlscale.lazy import lazily

use_installed_packages()  # before anything else is imported
__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "app": ".program",
        "main": ".program",
    },
)
