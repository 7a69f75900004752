"""The command that shows what an experiment file can name."""

from __future__ import annotations

import inspect
import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale.cli import completion
from mtlscale.cli.options import PluginOption, console_of, load_plugins
from mtlscale.cli.output.grid import grid
from mtlscale.cli.output.json_events import plain
from mtlscale.cli.output.key_listing import (
    components_as_json,
    experiments_as_json,
    keys_as_json,
    metrics_as_json,
    show_keys,
)
from mtlscale.config import UserError, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mtlscale.config import Component, Knob
    from mtlscale.metrics import Metric

_WIDE = 110  # columns from which details have columns of their own
_KINDS = {"methods": ("architectures", "balancers", "objectives")}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("list", epilog="Example: mtlscale list balancers getmtl")(list_)


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, balancers, architectures, objectives, encoders, metrics, datasets, experiments, "
            "columns of a leaderboard, or keys: those of the experiment file",
            autocompletion=completion.kinds,
        ),
    ] = "methods",
    name: Annotated[
        str | None, typer.Argument(help="One of them, to be shown whole", autocompletion=completion.of_kind)
    ] = None,
    plugin: PluginOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of tables")] = False,
) -> None:
    """Show what an experiment file can name: what it needs, what it costs, its knobs and their ranges."""
    from mtlscale.config import nearest, shipped
    from mtlscale.config.registry import components

    load_plugins(plugin)
    kinds = _KINDS.get(what, (what,))
    if what not in ("columns", "experiments", "metrics", "keys") and kinds[0] not in components.PACKAGES:
        choices = ["methods", "experiments", "metrics", "columns", "keys", *components.PACKAGES]
        raise UserError(f"mtlscale list {what}: {nearest(what, choices)}")

    console = console_of()
    if json:
        _print_json(what, kinds, name)
    elif what == "keys":
        show_keys(console, name)
    elif what == "columns":
        _columns(console)
    elif name is not None:
        _show(console, what, kinds, name)
    elif what == "experiments":
        _experiments(console, list(shipped()))
    elif what == "metrics":
        console.print(_metrics())
    else:
        for kind in kinds:
            _print_kind(console, kind)


def _print_json(what: str, kinds: tuple[str, ...], name: str | None) -> None:
    """Print one list of all that would be shown; raise `UserError` for an unknown name."""
    from mtlscale.report.columns.manual import stored

    if what == "keys":
        entries = keys_as_json(name)
    elif what == "columns":
        entries = [{"name": ", ".join(names), "what": text} for names, text in stored()]
    elif what == "experiments":
        entries = experiments_as_json(name)
    elif what == "metrics":
        entries = metrics_as_json(name)
    else:
        entries = [entry for kind in kinds for entry in components_as_json(kind, name)]

    if not entries and name is not None:
        _show(console_of(), what, kinds, name)  # raises, and says what was meant
    print(json_text.dumps(plain(entries), ensure_ascii=False))


def _experiments(console: Console, names: list[str]) -> None:
    from mtlscale.config import load_experiment

    rows = [(name, load_experiment(name).description) for name in names]
    console.print(grid(("experiment", "what it is"), rows, title="shipped experiments"))


def _columns(console: Console) -> None:
    from mtlscale.report.columns.manual import manual, stored

    for title, lines in (("columns of a leaderboard", manual()), ("columns of its CSV", stored())):
        rows = [(", ".join(names), text.replace("`", "")) for names, text in lines]
        console.print(grid(("column", "what it is"), rows, title=title))


def _print_kind(console: Console, kind: str) -> None:
    """Print all components of a kind; if there is little room, their details stand below each other."""
    from rich.text import Text

    from mtlscale.config.registry import components

    components_of_kind = [(name, components.component(kind, name)) for name in components.names(kind)]
    balancers, wide = kind == "balancers", console.width >= _WIDE
    cost_headers = ("needs", "cost of a step") if balancers else ()
    detail_headers = (*cost_headers, "source", "knobs: default, range, search") if wide else ()

    rows: list[tuple[object, ...]] = []
    for name, cls in components_of_kind:
        knobs = [_knob(key, default, spec) for key, (default, spec) in cls.knobs().items()]
        needs = [cls.needs, cls.cost] if balancers else []
        if wide:
            rows.append((_label(name, cls), cls.summary(), *needs, cls.source, Text("\n").join(knobs)))
            continue

        details = [f"needs {needs[0]}; a step costs {needs[1]}"] if needs else []
        details += [cls.source] if cls.source else []
        lines = [Text(cls.summary()), *(Text(detail, "dim") for detail in details), *knobs]
        rows.append((_label(name, cls), Text("\n").join(lines)))
    console.print(grid(("name", "what it is", *detail_headers), rows, title=kind))


def _label(name: str, cls: type[Component]) -> Text:
    """Return the name of a component, with the plugin below it that it comes from."""
    from rich.text import Text

    plugin = _plugin(cls)
    return Text.assemble(name, "\n", (plugin, "dim")) if plugin else Text(name)


def _knob(key: str, default: Any, spec: Knob) -> Text:
    from rich.text import Text

    search = f" search {_searched(spec)}" if spec.search else ""
    return Text.assemble((key, "bold"), f"={default!r} {spec.range()}".rstrip(), search)


def _searched(spec: Knob) -> str:
    return "…".join(str(value) for value in spec.search)


def _plugin(cls: type[Component]) -> str:
    """Return the user's file that a component comes from, in words; empty for shipped ones."""
    from mtlscale.config import source_hash

    if not source_hash(cls):
        return ""
    return f"plugin {Path(str(sys.modules[cls.__module__].__file__)).name}"


def _metrics() -> Table:
    from mtlscale.metrics import all_metrics

    rows = [
        (_label(name, type(metric)), metric.summary(), _better(metric), metric.unit, ", ".join(metric.losses))
        for name, metric in all_metrics().items()
    ]
    return grid(("name", "what it is", "better", "unit", "of tasks with loss"), rows, title="metrics")


def _better(metric: Metric | type[Metric]) -> str:
    return "higher" if metric.higher_is_better else "lower"


def _show(console: Console, what: str, kinds: tuple[str, ...], name: str) -> None:
    if what == "experiments":
        from mtlscale.config import find_experiment

        print(find_experiment(name).read_text(encoding="utf-8"), end="")
        return
    from mtlscale.config import names
    from mtlscale.config.registry import components

    matching_kinds = [kind for kind in kinds if name in names(kind)]
    if not matching_kinds:
        known_names = [candidate for kind in kinds for candidate in names(kind)]
        other = components.other_kind(name, *kinds) if what != "metrics" else ""
        hint = other or nearest(name, sorted(known_names), listing=what)
        raise UserError(f"mtlscale list {what}: unknown {what[:-1]} {name!r}; {hint}")
    from mtlscale.config import component

    _component(console, matching_kinds[0], component(matching_kinds[0], name))


def _component(console: Console, kind: str, cls: type[Any]) -> None:
    from rich.markup import escape

    origin = f" ({_plugin(cls)})" if _plugin(cls) else ""
    article = "an" if kind[0] in "aeio" else "a"
    singular = "data set" if kind == "datasets" else kind[:-1]
    console.print(f"[bold]{escape(cls.name)}[/bold], {article} {singular}{escape(origin)}\n", highlight=False)

    for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
        console.print(escape(paragraph if "\n  " in paragraph else " ".join(paragraph.split())), highlight=False)
    if cls.source:
        console.print(f"\nsource: {escape(cls.source)}", highlight=False)
    if kind == "balancers":
        console.print(f"needs {escape(cls.needs)}; a step costs {escape(cls.cost)}", highlight=False)

    if kind == "metrics":
        unit = f" in {cls.unit}" if cls.unit else ""
        console.print(f"\n{_better(cls)} is better{unit}; of tasks with loss {', '.join(cls.losses)}", highlight=False)
        return

    knobs = cls.knobs()
    if not knobs:
        console.print("no knobs")
        return
    rows = [
        (key, repr(default), spec.range(), _searched(spec) if spec.search else "", spec.help)
        for key, (default, spec) in knobs.items()
    ]
    console.print()
    console.print(grid(("knob", "default", "range", "searched", "what it is"), rows))
