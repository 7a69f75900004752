"""A page for each component: what it is, its rule as a picture, the mathematics, its settings, what it keeps.

Text comes from the sections of `docs/methods.md`, which the site shows nowhere else, or from docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import properties
import repository
import rules

from mtlscale.config.experiment.key_reference import format_value
from mtlscale.config.registry.components import PACKAGES, Knob, component, names

METHODS = "docs/methods.md"
EXPLAINED = ("balancers", "architectures", "objectives")
SHARED = 3  # components of a kind with the same row: it stands once, on the page of all components
HEAD = "| setting | what it is | default | range | searched |"
SECTION = re.compile(r"^#### `(\w+)`\n(.*?)(?=^#{2,4} |\Z)", re.DOTALL | re.MULTILINE)
USES = {
    "balancers": "methods: [{name}]",
    "architectures": "methods: [{name}]",
    "objectives": "methods: [{name}]",
    "encoders": "model: {{encoder: {{name: {name}}}}}",
    "datasets": "datasets: [{name}]",
}
NOUNS = {
    "balancers": "balancer", "architectures": "architecture", "objectives": "objective", "encoders": "encoder",
    "datasets": "data set",
}  # fmt: skip


def pages() -> dict[str, str]:
    """Return place on the site -> text of every component's page, with links as in `docs/methods.md`."""
    sections = dict(SECTION.findall((repository.ROOT / METHODS).read_text(encoding="utf-8")))
    return {
        f"{kind}/{name}.md": _page(kind, component(kind, name), sections.get(name, ""))
        for kind in PACKAGES
        for name in names(kind, plugins=False)
    }


def without_sections(methods: str) -> str:
    """Return the page of the mathematics with a line of links in place of the sections of components."""

    def replaced(group: re.Match[str]) -> str:
        found = [name for name, _ in SECTION.findall(group[0])]
        return SECTION.sub("", group[0]) + f"{_links(found)}\n\n" if found else group[0]

    return re.sub(r"^### .*?(?=^#{2,3} |\Z)", replaced, methods, flags=re.DOTALL | re.MULTILINE)


def index(kind: str) -> str:
    """Return the table of a kind's components, and that of the settings that several of them share."""
    lines = "\n".join(
        f"| [`{name}`](#{name}) | {_cell(component(kind, name).summary())} | {_cell(component(kind, name).source)} |"
        for name in names(kind, plugins=False)
    )
    parts = [f"| {NOUNS[kind]} | what it is | source |\n| --- | --- | --- |\n{lines}"]
    if kind == "balancers":
        parts += ["### What balancers keep", properties.table()]
    if shared := shared_rows(kind):
        rows = "\n".join(f"{row} {_links(of, ', ')} |" for row, of in shared.items())
        parts += [f"### Settings that several {_plural(kind)} have", f"{HEAD} of |\n{'| --- ' * 6}|\n{rows}"]
    return "\n\n".join(parts)


def shared_rows(kind: str) -> dict[str, list[str]]:
    """Return row -> components, of the settings that are the same in several components of a kind."""
    rows: dict[str, list[str]] = defaultdict(list)
    for name in names(kind, plugins=False):
        for knob in component(kind, name).knobs().items():
            rows[_row(*knob)].append(name)
    return {row: of for row, of in rows.items() if len(of) >= SHARED}


def _page(kind: str, cls: Any, section: str) -> str:
    source = f" *{cls.source[:1].upper()}{cls.source[1:]}.*" if cls.source else ""
    parts = [
        f"# `{cls.name}`",
        f"{NOUNS[kind].capitalize()}: `{USES[kind].format(name=cls.name)}`.{source}",
        cls.summary() if section else _doc(cls),  # the section says the rest
        rules.picture(cls.name) if kind == "balancers" else None,
        f"## Formula and departures\n\n{section.strip()}" if section else None,
        f"## Settings\n\n{_settings(kind, cls)}" if cls.knobs() else None,
        f"## What it keeps\n\n{_kept(cls.name)}" if kind == "balancers" else None,
        _ends(kind, cls),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _doc(cls: Any) -> str:
    """Return the docstring without the list of its attributes."""
    return re.split(r"\n(?:Attributes|Args|Example|Examples):\n", inspect.cleandoc(cls.__doc__ or ""))[0].strip()


def _settings(kind: str, cls: Any) -> str:
    shared = shared_rows(kind)
    own = [row for row in _rows(cls) if row not in shared]
    others = [(name, default) for name, (default, spec) in cls.knobs().items() if _row(name, (default, spec)) in shared]
    parts = []
    if own:
        parts.append("\n".join([HEAD, "| --- " * 5 + "|", *own]))
    if others:
        listed = ", ".join(f"`{name}` ({_shown(default)})" for name, default in others)
        anchor = f"settings-that-several-{_plural(kind).replace(' ', '-')}-have"
        parts.append(f"As [several {_plural(kind)}](components.md#{anchor}), with their defaults: {listed}.")
    return "\n\n".join(parts)


def _rows(cls: Any) -> Iterator[str]:
    for knob in cls.knobs().items():
        yield _row(*knob)


def _row(name: str, knob: tuple[Any, Knob]) -> str:
    default, spec = knob
    cells = (f"`{name}`", _cell(spec.help), _shown(default), _cell(spec.range()) or "–", _searched(spec.search))
    return f"| {' | '.join(cells)} |"


def _kept(name: str) -> str:
    """Return a balancer's line of the table of properties."""
    head, ruler, *lines = properties.table().splitlines()[-len(names("balancers", plugins=False)) - 2 :]
    line = next(line for line in lines if line.startswith(f"| [`{name}`]"))
    return f"{head}\n{ruler}\n{line}\n\n[How it was found](components.md#what-balancers-keep)."


def _ends(kind: str, cls: Any) -> str:
    file = cls.__module__.replace(".", "/") + ".py"
    back = f"[all {_plural(kind)}](components.md#{kind})"
    notation = ", [notation](methods.md#notation)" if kind in EXPLAINED else ""
    return f"---\n\nCode: [`{file}`](../{file}) · {back}{notation} · `mtlscale list {kind} {cls.name}`"


def _plural(kind: str) -> str:
    return NOUNS[kind] + "s"


def _links(found: list[str], between: str = " · ") -> str:
    return between.join(f"[`{name}`](#{name})" for name in found)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(default: Any) -> str:
    return "–" if default is None or default in ("", (), [], {}) else f"`{format_value(default)}`"


def _searched(search: tuple[Any, ...]) -> str:
    if len(search) == 3 and search[2] in ("log", "linear"):
        return f"{search[0]:g} to {search[1]:g}, {search[2]}"
    return f"`{format_value(search)}`" if search else "–"
