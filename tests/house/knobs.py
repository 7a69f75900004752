"""Write `knobs.txt`, the settings of all shipped components with their defaults: `python tests/house/knobs.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mtlscale.config.registry.components import PACKAGES, component, names

FILE = Path(__file__).with_suffix(".txt")
COMMAND = "python tests/house/knobs.py"


def declared() -> dict[str, str]:
    """Return kind, component and setting -> its default."""
    return {
        f"{kind} {name} {setting}": repr(default)
        for kind in PACKAGES
        for name in names(kind, plugins=False)
        for setting, (default, _) in component(kind, name).knobs().items()
    }


def written() -> dict[str, str]:
    """Return what `declared` was when the file was written."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {setting: default for setting, _, default in (line.partition(" = ") for line in lines if line[0] != "#")}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return in words what differs."""
    return [
        *(f"{setting} is new" for setting in after if setting not in before),
        *(f"{setting} is gone" for setting in before if setting not in after),
        *(
            f"{setting} is {default} by default, and was {before[setting]}"
            for setting, default in after.items()
            if before.get(setting, default) != default
        ),
    ]


if __name__ == "__main__":
    settings = [f"{setting} = {default}\n" for setting, default in declared().items()]
    FILE.write_text("".join([f"# Written by `{COMMAND}`.\n", *settings]), encoding="utf-8")
