"""The tables of experiment files' keys and of components, from the code: no page in git repeats them.

A page has a mark where a table stands on the site, such as `<!-- keys -->` or `<!-- balancers -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import properties

from mtlscale.config.experiment.key_reference import Section, format_value, key_reference
from mtlscale.config.registry.components import PACKAGES, Knob, component, names
from mtlscale.metrics import METRICS
from mtlscale.report.columns.manual import manual, stored

MARK = re.compile(r"^<!-- (\w+) -->$", re.MULTILINE)


def filled(markdown: str) -> str:
    """Return the text of a page with a table in place of each mark.

    Raises:
        ValueError: If no table has the name of a mark.
    """
    return MARK.sub(lambda mark: _table(mark[1]), markdown)


def _table(name: str) -> str:
    if name in PACKAGES:
        return components(name)
    tables = {"keys": keys, "metrics": metrics, "columns": columns, "numbers": numbers}
    if name not in tables:
        raise ValueError(f"no table is called {name}; there are {', '.join((*tables, *PACKAGES))}")
    return tables[name]()


def keys() -> str:
    """Return the tables of the experiment file's keys."""
    return "\n\n".join(map(_section, key_reference()))


def _section(section: Section) -> str:
    title = "The file" if not section.path else "Components" if section.of_components else f"`{section.path}`"
    rows = "\n".join(
        f"| `{key.name}` | {_cell(key.meaning)} | {_linked(key.value)} | {key.default} |" for key in section.keys
    )
    return f"## {title}\n\n{section.intro}\n\n| key | what it is | value | default |\n| --- | --- | --- | --- |\n{rows}"


def _linked(value: str) -> str:
    """Return a value with links to the sections of the page that it names."""
    return re.sub(r"\[`(.*?)`\]", lambda found: f"{found[0]}(#{re.sub(r'[^a-z_]', '', found[1])})", value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def components(kind: str) -> str:
    """Return an index and the tables of all components of a kind."""
    parts = [_index(kind), *([properties.table()] if kind == "balancers" else []), _named(kind)]
    return "\n\n".join(parts)


def columns() -> str:
    """Return the table of the leaderboard's columns."""
    return _rows("what it says", manual())


def numbers() -> str:
    """Return the table of the columns of its CSV."""
    return _rows("what it is", stored())


def _rows(about: str, lines: Iterable[tuple[Sequence[str], str]]) -> str:
    rows = "\n".join(f"| {', '.join(f'`{name}`' for name in names)} | {_cell(text)} |" for names, text in lines)
    return f"| column | {about} |\n| --- | --- |\n{rows}"


def metrics() -> str:
    """Return the table of metrics."""
    rows = "\n".join(
        f"| `{name}` | {_cell(info.help)} | {'higher' if info.higher_is_better else 'lower'} | {info.unit} | "
        f"{', '.join(f'`{x}`' for x in info.losses)} |"
        for name, info in METRICS.items()
    )
    return f"| name | what it is | better | unit | for the losses |\n| --- | --- | --- | --- | --- |\n{rows}"


def _index(kind: str) -> str:
    """Return links to the components of a kind."""
    return " · ".join(f"[`{name}`](#{name})" for name in names(kind, plugins=False))


def _named(kind: str) -> str:
    return "\n\n".join(_one(kind, component(kind, name)) for name in names(kind, plugins=False))


def _one(kind: str, cls: Any) -> str:
    formula = (
        f" [The mathematics](methods.md#{cls.name})." if kind in ("balancers", "architectures", "objectives") else ""
    )
    source = f" *{cls.source[:1].upper()}{cls.source[1:]}.*" if cls.source else ""
    text = f"### `{cls.name}`\n\n{cls.summary()}{source}{formula}"
    if not cls.knobs():
        return text
    rows = "\n".join(
        f"| `{name}` | {_cell(spec.help)} | {_shown(default)} | {_range(spec)} | {_searched(spec.search)} |"
        for name, (default, spec) in cls.knobs().items()
    )
    return f"{text}\n\n| setting | what it is | default | range | searched |\n| --- | --- | --- | --- | --- |\n{rows}"


def _range(spec: Knob) -> str:
    return _cell(spec.range()) or "–"


def _shown(default: Any) -> str:
    return "–" if default is None or default in ("", (), [], {}) else f"`{format_value(default)}`"


def _searched(search: tuple[Any, ...]) -> str:
    if len(search) == 3 and search[2] in ("log", "linear"):
        return f"{search[0]:g} to {search[1]:g}, {search[2]}"
    return f"`{format_value(search)}`" if search else "–"
