"""The experiment that tries suggested groups against sharing everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtlscale.config.registry import components
from mtlscale.config.run.run_parts import IDENTITY
from mtlscale.records import Diagnosis


def experiment(
    found: Diagnosis, options: Mapping[str, Any], source: str | None = None, plugins: Sequence[Path] = ()
) -> str | None:
    """Write the YAML of an experiment for `mtlscale run`; return None where no groups are suggested.

    Args:
        found: The diagnosis.
        options: Options of its data set.
        source: The `source` of its data set, if any.
        plugins: Plugin files of the user's own.
    """
    groupings = {
        label: [", ".join(group) for group in found.named(groups)]
        for label, groups in (("groups", found.groups), ("two_groups", found.two_groups))
        if 1 < len(groups) < len(found.tasks)
    }
    if groupings.get("two_groups") == groupings.get("groups"):
        groupings.pop("two_groups", None)
    if not groupings:
        return None

    dataset = {"name": found.dataset, "options": dict(options), "source": source}
    content = {
        "name": f"groups_{found.dataset}",
        "description": "Groups that mtlscale diagnose suggests, against sharing everything and nothing.",
        **({"plugins": [str(path.absolute()) for path in plugins]} if plugins else {}),
        "datasets": [{key: value for key, value in dataset.items() if value}],
        "methods": [
            "stl",
            {"label": "everything", "name": "hps"},
            *({"label": label, "name": "branched", "groups": groups} for label, groups in groupings.items()),
        ],
        "seeds": [0, 1, 2],
        "model": {"encoder": _encoder(found.settings["encoder"])},
        "training": {"epochs": 20, "batch_size": found.settings["batch_size"], "lr": found.settings["lr"]},
    }
    return _yaml(content)


def _encoder(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoder's settings that differ from its defaults."""
    knobs = components.component("encoders", settings["name"]).knobs()
    changed = {"name": settings["name"]}
    for key, value in settings.items():
        plain = value["file"] if isinstance(value, Mapping) and "file" in value else value
        default = knobs[key][0] if key in knobs else None
        if key not in IDENTITY and plain != (list(default) if isinstance(default, tuple) else default):
            changed[key] = plain
    return changed


def _yaml(content: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(content), sort_keys=False, width=110, allow_unicode=True))
