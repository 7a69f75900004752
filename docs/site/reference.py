"""Write the reference of experiment files and components into docs, from the code.

    python docs/site/reference.py            # name the pages that are not current
    python docs/site/reference.py --write    # bring them up to date

The text stands between `<!-- keys -->` and `<!-- /keys -->` in docs/experiment_file.md, and between the like marks in
docs/components.md. `tests/test_docs.py` fails where it is not current. What balancers keep is measured where their
results have changed, which takes up to a minute each.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import properties

from mtlscale.config.experiment.key_reference import Section, format_value, key_reference
from mtlscale.config.registry.components import PACKAGES, Knob, component, names
from mtlscale.metrics import METRICS

KINDS = {
    "balancers": "How task losses or gradients become one update.",
    "architectures": "Which parameters tasks share, and in which phases they are trained.",
    "objectives": "Which terms are added to the task losses.",
    "encoders": "How inputs become features: `model.encoder`.",
    "datasets": "Data sets are named under `datasets`; their settings stand below `options`.",
}


DOCS = Path(__file__).parents[1]
COMMAND = "python docs/site/reference.py --write"
NOTE = f"<!-- Written by `{COMMAND}`. Change the code, not this text. -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="bring the pages up to date")
    write = parser.parse_args().write
    if write:
        properties.write()

    outdated = [page for page in pages() if page.read_text(encoding="utf-8") != current(page)]
    for page in outdated:
        if write:
            page.write_text(current(page), encoding="utf-8")
        print(f"{page.relative_to(DOCS.parent)} {'written' if write else f'is not current: run {COMMAND}'}")
    return 1 if outdated and not write else 0


def pages() -> list[Path]:
    """Return the pages with text from the code."""
    return [DOCS / "experiment_file.md", DOCS / "components.md"]


def current(page: Path) -> str:
    """Return the text that a page should have.

    Raises:
        ValueError: If its marks are missing.
    """
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"^<!-- (keys|components) -->$", text, re.MULTILINE)
    if not marks:
        raise ValueError(f"{page.name} has no <!-- keys --> or <!-- components -->")

    for mark in marks:
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- /{mark} -->")
        if not end:
            raise ValueError(f"{page.name} has no <!-- /{mark} -->")
        content = keys() if mark == "keys" else components()
        text = f"{before}<!-- {mark} -->\n{NOTE}\n\n{content}\n\n{end}{after}"
    return text


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


def components() -> str:
    """Return the tables of all components and metrics."""
    tables = {"balancers": f"{properties.table()}\n\n"}
    parts = [
        f"## {kind.capitalize()}\n\n{what}\n\n{_index(kind)}\n\n{tables.get(kind, '')}{_named(kind)}"
        for kind, what in KINDS.items()
    ]
    assert set(KINDS) == set(PACKAGES)
    rows = "\n".join(
        f"| `{name}` | {_cell(info.help)} | {'higher' if info.higher_is_better else 'lower'} | {info.unit} | "
        f"{', '.join(f'`{x}`' for x in info.losses)} |"
        for name, info in METRICS.items()
    )
    metrics = "What tasks report; a data set's `metrics` choose among them, and its losses say which are defined."
    head = "| name | what it is | better | unit | for the losses |\n| --- | --- | --- | --- | --- |"
    return "\n\n".join([*parts, f"## Metrics\n\n{metrics}\n\n{head}\n{rows}"])


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


if __name__ == "__main__":
    sys.exit(main())
