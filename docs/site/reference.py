"""The keys of an experiment file and the settings of all components, as pages have them: read from the code."""

from __future__ import annotations

import re
from typing import Any

from mtlscale.config.experiment.key_reference import Section, key_reference, written
from mtlscale.config.registry.components import PACKAGES, Knob, component, names
from mtlscale.metrics import METRICS

KINDS = {
    "balancers": "How task losses or gradients become one update.",
    "architectures": "Which parameters tasks share, and in which phases they are trained.",
    "objectives": "What is added to the task losses.",
    "encoders": "Inputs to features: `model.encoder`.",
    "datasets": "Data sets: `datasets`, their settings below `options`.",
}


def filled(markdown: str) -> str:
    """`<!-- keys -->` and the like replaced by what the code says."""
    for mark, made in (("keys", keys), ("components", components)):
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", made())
    return markdown


def keys() -> str:
    return "\n\n".join(map(_section, key_reference()))


def _section(section: Section) -> str:
    title = "The file" if not section.path else "Components" if section.of_components else f"`{section.path}`"
    rows = "\n".join(
        f"| `{key.name}` | {_cell(key.meaning)} | {_linked(key.value)} | {key.default} |" for key in section.keys
    )
    return f"## {title}\n\n{section.intro}\n\n| key | what it is | value | default |\n| --- | --- | --- | --- |\n{rows}"


def _linked(value: str) -> str:
    """Sections of the file as links to where they are on the page."""
    return re.sub(r"\[`(.*?)`\]", lambda found: f"{found[0]}(#{re.sub(r'[^a-z_]', '', found[1])})", value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def components() -> str:
    parts = [f"## {kind.capitalize()}\n\n{what}\n\n{_named(kind)}" for kind, what in KINDS.items()]
    assert set(KINDS) == set(PACKAGES)
    rows = "\n".join(
        f"| `{name}` | {_cell(info.help)} | {'higher' if info.higher_is_better else 'lower'} | {info.unit} | "
        f"{', '.join(f'`{x}`' for x in info.losses)} |"
        for name, info in METRICS.items()
    )
    metrics = "What tasks report; a data set's `metrics` choose among them, and its losses say which are defined."
    head = "| name | what it is | better | unit | for the losses |\n| --- | --- | --- | --- | --- |"
    return "\n\n".join([*parts, f"## Metrics\n\n{metrics}\n\n{head}\n{rows}"])


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
    return "–" if default is None or default in ("", (), [], {}) else f"`{written(default)}`"


def _searched(search: tuple[Any, ...]) -> str:
    if len(search) == 3 and search[2] in ("log", "linear"):
        return f"{search[0]:g} to {search[1]:g}, {search[2]}"
    return f"`{written(search)}`" if search else "–"
