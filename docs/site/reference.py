"""The tables of experiment files' keys and of components, from the code: no page in git repeats them.

A page has a mark where a table stands on the site, such as `<!-- keys -->` or `<!-- balancers -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import component_pages

from mtlscale.config.experiment.key_reference import Section, key_reference
from mtlscale.config.registry.components import PACKAGES
from mtlscale.metrics import all_metrics
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
        return component_pages.index(name)
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
        f"| `{name}` | {_cell(info.summary())} | {'higher' if info.higher_is_better else 'lower'} | {info.unit} | "
        f"{', '.join(f'`{x}`' for x in info.losses)} |"
        for name, info in all_metrics().items()
    )
    return f"| name | what it is | better | unit | for the losses |\n| --- | --- | --- | --- | --- |\n{rows}"
