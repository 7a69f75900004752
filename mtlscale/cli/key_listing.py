"""What `mtlscale list keys` prints, and what `mtlscale list --json` has of everything."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mtlscale.cli.grid import grid
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.spec.key_reference import Section


def sections_of(name: str | None) -> list[Section]:
    """Return the sections of the experiment file, or the one of that name with those below it."""
    from mtlscale.spec import nearest
    from mtlscale.spec.key_reference import key_reference

    known = key_reference()
    chosen = [part for part in known if name in (None, part.name) or part.name.startswith(f"{name}.")]
    if not chosen:
        raise UserError(f"mtlscale list keys: no section {name!r}; {nearest(str(name), [part.name for part in known])}")
    return chosen


def show_keys(console: Console, name: str | None) -> None:
    """Print the keys of the experiment file, section by section."""
    from rich.markup import escape

    for section in sections_of(name):
        table = grid("key", "what it is", "value", "default", title=escape(_title(section)))
        for key in section.keys:
            table.add_row(key.name, escape(_plain(key.meaning)), escape(_plain(key.value)), escape(_plain(key.default)))
        console.print(table)
        console.print(f"{_plain(section.intro)}\n", highlight=False, markup=False)


def _title(section: Section) -> str:
    if not section.path:
        return "the experiment file"
    return "a component, wherever one stands" if section.of_components else f"{section.path}: …"


def _plain(text: str) -> str:
    """Without the marks of a page."""
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
    from mtlscale.spec import components, source_hash

    listed = []
    for known in components.names(kind):
        if name in (None, known):
            cls = components.component(kind, known)
            entry = {"kind": kind, "name": known, "what": cls.summary(), "source": cls.source}
            needs = {"needs": cls.needs, "cost": cls.cost} if kind == "balancers" else {}
            knobs = [
                {"name": key, "default": default, "range": spec.range(), "search": spec.search, "what": spec.help}
                for key, (default, spec) in cls.knobs().items()
            ]
            listed.append({**entry, **needs, "plugin": bool(source_hash(cls)), "knobs": knobs})
    return listed


def metrics_as_json(name: str | None) -> list[dict[str, Any]]:
    """Return the metrics, or the one of that name."""
    from mtlscale.metrics import metric_info
    from mtlscale.spec import components

    known = [metric for metric in components.names("metrics") if name in (None, metric)]
    return [{"kind": "metrics", "name": metric, **asdict(metric_info(metric))} for metric in known]


def experiments_as_json(name: str | None) -> list[dict[str, Any]]:
    """Return the shipped experiments, or the one of that name."""
    from mtlscale.spec import load_experiment, shipped

    return [
        {"kind": "experiments", "name": known, "what": load_experiment(known).description, "file": str(file)}
        for known, file in shipped().items()
        if name in (None, known)
    ]
