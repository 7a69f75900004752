"""What commands and notebooks call: running an experiment with pages and trackers, comparing, collecting results."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "compare": ".comparison",
        "load_records": ".sources",
        "run": ".running",
        "sources_of": ".sources",
        "sweep": ".running",
    },
)
