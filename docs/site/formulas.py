"""Turn formulas into MathML, which browsers draw without a fetched program: an extension of Python Markdown."""

from __future__ import annotations

import html
import re
import unicodedata

import latex2mathml.converter
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

# What pymdownx.arithmatex leaves of $…$ and $$…$$.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([\(\[])(.*?)\\[\)\]]</\1>', re.DOTALL)
# What the converter does not know, or writes letter by letter.
WRITTEN = (
    (re.compile(r"\\arg(?![a-z])"), r"\\operatorname{arg}"),
    (re.compile(r"\\([lr])brace(?![a-z])"), lambda found: r"\{" if found[1] == "l" else r"\}"),
    (re.compile(r"\\mathrm\{([A-Za-z]{2,})\}"), r"\\operatorname{\1}"),
)
ALPHABETS = {"double-struck": "DOUBLE-STRUCK", "script": "SCRIPT", "bold": "BOLD", "sans-serif": "SANS-SERIF"}


class Formulas(Extension):
    """Extension that converts what arithmatex has marked."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.postprocessors.register(_ToMathml(md), "mathml", 0)  # the last one


class _ToMathml(Postprocessor):
    def run(self, text: str) -> str:
        return to_mathml(text)


def makeExtension(**settings: object) -> Formulas:  # the name that Python Markdown looks for
    return Formulas(**settings)


def to_mathml(page: str) -> str:
    """Return a page whose formulas are MathML."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found[3]), display=found[2] == "["), page)


def mathml(formula: str, *, display: bool) -> str:
    """Return a formula as MathML.

    Raises:
        ValueError: If the formula has an unknown command.
    """
    known = formula
    for pattern, written in WRITTEN:
        known = pattern.sub(written, known)
    drawn = latex2mathml.converter.convert(known, display="block" if display else "inline")
    drawn = re.sub(r">\\([{}])<", r">\1<", drawn)
    drawn = re.sub(r"<mo>(&#x02016;|‖|\|)</mo>", r'<mo stretchy="false">\1</mo>', drawn)  # a raised 2 would stretch it
    if left := re.findall(r"\\[A-Za-z]+", html.unescape(drawn)):
        raise ValueError(f"{left[0]} is not known, in the formula {formula}")
    return re.sub(r'<(m[in]) mathvariant="([\w-]+)">(\w)</\1>', _of_its_alphabet, drawn)


def _of_its_alphabet(found: re.Match[str]) -> str:
    """Return a letter as the character of its alphabet; browsers know only one value of `mathvariant`, "normal"."""
    tag, variant, letter = found.groups()
    if variant not in ALPHABETS:
        return found[0]
    kind, _, name = unicodedata.name(letter).partition("LETTER ")
    kind = {"LATIN CAPITAL ": "CAPITAL ", "LATIN SMALL ": "SMALL "}.get(kind, kind)
    for full in (f"MATHEMATICAL {ALPHABETS[variant]} {kind}{name}", f"{ALPHABETS[variant]} {kind}{name}"):
        try:
            return f'<{tag} mathvariant="normal">{unicodedata.lookup(full)}</{tag}>'
        except KeyError:
            continue
    raise ValueError(f"there is no {variant} {letter}")
