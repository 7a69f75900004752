"""The experiment that tries suggested groups against sharing everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtlscale.config.registry import components
from mtlscale.config.run.run_parts import IDENTITY
from mtlscale.records import Diagnosis


def experiment(
    diagnosis: Diagnosis, options: Mapping[str, Any], source: str | None = None, plugins: Sequence[Path] = ()
) -> str | None:
    """Write the YAML of an experiment for `mtlscale run`; return None where no groups are suggested.

    Args:
        diagnosis: The diagnosis.
        options: Options of its data set.
        source: The `source` of its data set, if any.
        plugins: Plugin files of the user's own.
    """
    groupings = {
        label: [", ".join(group) for group in diagnosis.named(groups)]
        for label, groups in (("groups", diagnosis.groups), ("two_groups", diagnosis.two_groups))
        if 1 < len(groups) < len(diagnosis.tasks)
    }
    if groupings.get("two_groups") == groupings.get("groups"):
        groupings.pop("two_groups", None)
    if not groupings:
        return None

    dataset = {"name": diagnosis.dataset, "options": dict(options), "source": source}
    content = {
        "name": f"groups_{diagnosis.dataset}",
        "description": "Groups that mtlscale diagnose suggests, against sharing everything and nothing.",
        **({"plugins": [str(path.absolute()) for path in plugins]} if plugins else {}),
        "datasets": [{key: value for key, value in dataset.items() if value}],
        "methods": [
            "stl",
            {"label": "everything", "name": "hps"},
            *({"label": label, "name": "branched", "groups": groups} for label, groups in groupings.items()),
        ],
        "seeds": [0, 1, 2],
        "model": {"encoder": _encoder(diagnosis.settings["encoder"])},
        "training": {"epochs": 20, "batch_size": diagnosis.settings["batch_size"], "lr": diagnosis.settings["lr"]},
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
