"""The output of `mtlscale list keys`, and of `mtlscale list --json` for all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtlscale.cli.output.grid import grid
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.config.experiment.key_reference import Section


def sections_of(name: str | None) -> list[Section]:
    """Return the sections of the experiment file, or the one of that name with those below it."""
    from mtlscale.config import nearest
    from mtlscale.config.experiment.key_reference import key_reference

    sections = key_reference()
    chosen = [part for part in sections if name in (None, part.name) or part.name.startswith(f"{name}.")]
    if not chosen:
        parent, _, key = str(name).rpartition(".")
        keys = next(([key.name for key in part.keys] for part in sections if part.name == parent), [])
        if keys:
            hint = f"it is a key of {parent}" if key in keys else nearest(key, keys)
            raise UserError(f"mtlscale list keys: no section {name!r}; {hint}; `mtlscale list keys {parent}` shows all")
        raise UserError(
            f"mtlscale list keys: no section {name!r}; {nearest(str(name), [part.name for part in sections])}"
        )
    return chosen


def show_keys(console: Console, name: str | None) -> None:
    """Print the keys of the experiment file, section by section."""
    for section in sections_of(name):
        rows = [(key.name, *map(_plain, (key.meaning, key.value, key.default))) for key in section.keys]
        console.print(grid(("key", "what it is", "value", "default"), rows, title=_title(section)))
        console.print(f"{_plain(section.intro)}\n", highlight=False, markup=False)


def _title(section: Section) -> str:
    if not section.path:
        return "the experiment file"
    return "a component, wherever one stands" if section.of_components else f"{section.path}: …"


def _plain(text: str) -> str:
    return text.replace("[`", "keys of ").replace("`]", "").replace("`", "")


def keys_as_json(name: str | None) -> list[dict[str, Any]]:
    """Return every key with its section."""
    return [
        {"section": section.name, "key": key.name, "what": _plain(key.meaning), "value": _plain(key.value)}
        | {"default": _plain(key.default)}
        for section in sections_of(name)
        for key in section.keys
    ]


def components_as_json(kind: str, name: str | None) -> list[dict[str, Any]]:
    """Return the components of a kind, or the one of that name, with all that `mtlscale list` shows of them."""
    from mtlscale.config import source_hash
    from mtlscale.config.registry import components

    entries = []
    for component_name in components.names(kind):
        if name in (None, component_name):
            cls = components.component(kind, component_name)
            entry = {"kind": kind, "name": component_name, "what": cls.summary(), "source": cls.source}
            needs = {"needs": cls.needs, "cost": cls.cost} if kind == "balancers" else {}
            knobs = [
                {"name": key, "default": default, "range": spec.range(), "search": spec.search, "what": spec.help}
                for key, (default, spec) in cls.knobs().items()
            ]
            entries.append({**entry, **needs, "plugin": bool(source_hash(cls)), "knobs": knobs})
    return entries


def metrics_as_json(name: str | None) -> list[dict[str, Any]]:
    """Return the metrics, or the one of that name."""
    from mtlscale.metrics import all_metrics

    keys = ("higher_is_better", "losses", "unit", "lowest", "highest", "one_score", "of_tokens", "grouped", "simulated")
    return [
        {"kind": "metrics", "name": metric, "help": info.summary(), **{key: getattr(info, key) for key in keys}}
        for metric, info in sorted(all_metrics().items())
        if name in (None, metric)
    ]


def experiments_as_json(name: str | None) -> list[dict[str, Any]]:
    """Return the shipped experiments, or the one of that name."""
    from mtlscale.config import load_experiment, shipped

    return [
        {"kind": "experiments", "name": experiment, "what": load_experiment(experiment).description, "file": str(file)}
        for experiment, file in shipped().items()
        if name in (None, experiment)
    ]
