"""The documents are true: what they link to and name exists, what they show runs."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import component_pages
import properties
import pytest
import reference
import repository
import rules

from mtlscale.config.experiment.key_reference import key_reference
from mtlscale.config.registry.components import PACKAGES, component, names, plugin_file
from mtlscale.config.registry.extensions import POINTS
from mtlscale.config.registry.installed import GROUP
from mtlscale.metrics import all_metrics

sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))
import result_tables

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results" / "tables").rglob("README.md")),
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "RELEASING.md", "results/README.md")),
]
LINKED = [*PAGES, ROOT / "CHANGELOG.md"]  # names of earlier versions stand in the changelog
FOLDERS = "mtlscale|pipelines|tests|docs|experiments|benchmarks|studies|cluster"
DOCS = sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = ROOT / "docs" / "examples"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
EXTENDING = ROOT / "docs" / "extending.md"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def blocks(page: Path) -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings, and the components of the page whose links lead to theirs on the site."""
    headings = re.findall(r"^#+ (.*)$", reference.filled(page.read_text(encoding="utf-8")), re.MULTILINE)
    found = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return found | repository.COMPONENTS.keys() if page.name == "components.md" else found


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and ROOT in (target, *target.parents), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_names_of_the_code_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        # `git show REVISION:PATH` names what the history has.
        for path in re.findall(rf"(?<![\w/.<:])(?:{FOLDERS})/[\w./-]*\w", code):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
    text = page.read_text(encoding="utf-8")
    for case in re.findall(r"benchmarks/run\.py ([a-z]\w*)", text):
        assert (ROOT / "benchmarks" / "cases" / f"{case}.py").exists(), f"{page.name} names the case {case}"
    for name in set(re.findall(r"\bmtlscale(?:\.[a-zA-Z_]\w*)+", text)) - tags() - {GROUP}:
        resolve(name)


def tags() -> set[str]:
    """What MLflow's tags are called, in the code that writes them."""
    files = (ROOT / "mtlscale" / "tracking").glob("*.py")
    return {name for file in files for name in re.findall(r'"(mtlscale(?:\.[a-z_]+)+)', file.read_text("utf-8"))}


def resolve(name: str) -> Any:
    """The module, or what is in one, of this dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        return getattr(resolve(parent), last)


def test_picture_and_page_show_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    _, picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8").split("<!-- the rooms -->")
    shown = re.findall(r'<text class="room" x="\d+" y="\d+">(\w+)</text>', picture)
    packages = [name for layer in layers[:-1] for name in layer.split(" | ")]
    assert [name for name in shown if name != "pipelines"] == packages  # from top to bottom
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(f"`mtlscale/{name}" in page for layer in layers for name in layer.split(" | "))


@pytest.mark.parametrize(
    ("name", "no_conflict", "linear"),
    [("equal", False, True), ("mgda", True, False), ("upgrad", True, True), ("pcgrad", False, True),
     ("nash_mtl", True, False)],
)  # fmt: skip
def test_marks_of_balancers_are_those_that_the_literature_proves(name: str, no_conflict: bool, linear: bool) -> None:
    """Quinton & Rey, Jacobian Descent for Multi-Objective Optimization, 2024, table 1."""
    marks = properties.known()[name]
    assert (marks["no conflict"] == properties.YES, marks["linear"] == properties.YES) == (no_conflict, linear)


TRIED = [name for name in names("balancers", plugins=False) if properties.default(name) is not None]


@pytest.mark.parametrize("name", TRIED)
def test_no_mark_of_a_balancer_is_refuted_by_the_first_draws(name: str) -> None:
    written = properties.known().get(name)
    assert written is not None, f"its results have changed: run `{properties.COMMAND}`, which measures what it keeps"
    balancer, order = properties.default(name), (properties.NO, properties.FIRST, properties.YES)
    assert balancer is not None
    for mark, found in properties.marks(balancer, (properties.FEW,)).items():
        assert order.index(written[mark]) <= order.index(found), mark


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_marks_of_balancers_are_those_of_a_thousand_draws(name: str) -> None:
    balancer = properties.default(name)
    assert balancer is not None
    assert properties.marks(balancer) == properties.known()[name]


def sections(page: str) -> dict[str, str]:
    """Return heading -> text below it, of a page of the site."""
    text = reference.filled((ROOT / "docs" / page).read_text(encoding="utf-8"))
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)[1:]
    return {heading.lstrip("# "): below for heading, below in zip(parts[::2], parts[1::2], strict=True)}


def test_every_component_has_a_page_with_its_settings() -> None:
    pages = component_pages.pages()
    for kind in PACKAGES:
        shared = component_pages.shared_rows(kind)
        for name in names(kind, plugins=False):
            cls, text = component(kind, name), pages[f"{kind}/{name}.md"]
            own = re.findall(r"^\| `(\w+)` \|", text.partition("## Settings")[2].partition("\n## ")[0], re.M)
            others = [re.findall(r"`(\w+)`", row)[0] for row, of in shared.items() if name in of]
            assert cls.summary() in text, f"{kind}: {name}"
            assert sorted(own + others) == sorted(cls.knobs()), f"{kind}: {name}"
            assert all(f"`{other}` (" in text for other in others), f"{kind}: {name}"
    assert re.findall(r"^\| `([\w.]+)` \|", sections("components.md")["Metrics"], re.M) == list(all_metrics())


def test_the_mathematics_stand_once_on_the_site() -> None:
    whole = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rest, pages = component_pages.without_sections(whole), component_pages.pages()
    for name, section in component_pages.SECTION.findall(whole):
        assert section.strip() in pages[repository.COMPONENTS[name]]
        assert section.strip() not in rest and f"[`{name}`](#{name})" in rest
    assert re.findall(r"^#{2,3} .*$", rest, re.M) == re.findall(r"^#{2,3} .*$", whole, re.M)


@pytest.mark.parametrize(
    ("name", "drawn"),
    [("equal", "(0.40, 0.45)"), ("mgda", "(0.07, 0.50)"), ("cagrad", None), ("pcgrad", None)],
)
def test_pictures_of_rules_show_the_update(name: str, drawn: str | None) -> None:
    picture = rules.picture(name)
    assert picture is not None and picture.count("<svg") == 2
    if drawn is not None:
        assert f"in conflict: d = {drawn}" in picture
    assert rules.picture("meta_weighting") is None


def test_the_page_of_experiment_files_is_whole() -> None:
    found = [re.findall(r"^\| `([^`]+)` \|", below, re.M) for below in sections("experiment_file.md").values()]
    assert [keys for keys in found if keys] == [[key.name for key in section.keys] for section in key_reference()]


def test_a_mark_of_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table is called balancer; there are keys, metrics, columns, numbers, bal"):
        reference.filled("<!-- balancer -->")


@pytest.mark.parametrize("page", result_tables.pages(), ids=lambda page: f"{page.parents[1].name}-{page.parent.name}")
def test_csv_files_are_the_tables_of_their_page(page: Path, tmp_path: Path) -> None:
    result_tables.write(tmp_path, page.read_text(encoding="utf-8"))
    written = {path.name: path.read_text(encoding="utf-8") for path in page.parent.iterdir()}
    assert written == {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}, page.parent


def test_the_index_of_tables_lists_every_suite() -> None:
    index = (result_tables.TABLES / "README.md").read_text(encoding="utf-8")
    assert index == result_tables.index(), "run `python studies/result_tables.py`"


def test_tables_are_cut_as_they_are_shown() -> None:
    page = """# suite

One sentence.

## wine

| method | average | runs |
| --- | ---: | ---: |
| stl | **1.50 ± 0.10** | 3/3 |

| method | a |
| --- | ---: |
| stl | −2 \\| 3 |

### Beside TOMATO, table 3

| method | published as |
| --- | --- |
| stl | STL |
"""
    tables = {table.name: table.rows for table in result_tables.cut(page)}
    assert tables == {
        "wine_leaderboard": (("method", "average", "runs"), ("stl", "1.50 ± 0.10", "3/3")),
        "wine_tasks": (("method", "a"), ("stl", "−2 | 3")),
        "wine_published_table_3": (("method", "published as"), ("stl", "STL")),
    }
    linked = result_tables.with_links(page)
    assert linked.count(".csv](wine_") == 3 and result_tables.with_links(linked) == linked


def test_contracts_shown_are_those_of_the_code() -> None:
    shown = [re.match(r"# (\S+/\S+\.py)\n", block) for block in blocks(ARCHITECTURE)]
    files = [match[1] for match in shown if match]
    assert len(files) > 10
    for match in filter(None, shown):
        code = members((ROOT / match[1]).read_text(encoding="utf-8"))
        for member, declaration in members(match.string).items():
            assert code.get(member) == declaration, f"architecture.md shows {member} of {match[1]}"


def members(source: str) -> dict[str, str]:
    """Return class.member -> its declaration, without bodies: annotated attributes and the signatures of methods."""
    found: dict[str, str] = {}
    for cls in ast.walk(ast.parse(source)):
        for node in cls.body if isinstance(cls, ast.ClassDef) else []:
            if isinstance(node, ast.AnnAssign):
                found[f"{cls.name}.{ast.unparse(node.target)}"] = ast.unparse(node)
            elif isinstance(node, ast.FunctionDef):
                returns = "" if node.returns is None else ast.unparse(node.returns)
                found[f"{cls.name}.{node.name}"] = f"({ast.unparse(node.args)}) -> {returns}"
    return found


def test_extension_points_listed_are_those_of_the_code() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8").partition("### Extension points")[2].partition("### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.*)` \| (.*) \|$", page, re.M)
    signatures = {point: text.split(": ") for point, text in POINTS.items()}
    assert {point: [signature, what] for point, signature, what in rows} == signatures


def test_hooks_listed_are_those_of_the_code() -> None:
    from mtlscale.architectures import Hooks

    page = ARCHITECTURE.read_text(encoding="utf-8").partition("### Hooks")[2].partition("### ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == {name for name in vars(Hooks) if not name.startswith("_")}


def test_the_glossary_is_in_order_and_says_each_word_once() -> None:
    words = re.findall(r"^\| ([^|]+?) \|", ARCHITECTURE.read_text(encoding="utf-8").partition("## Glossary")[2], re.M)
    words = [word.partition(" (")[0] for word in words[2:]]  # below the head
    assert len(words) > 40
    assert words == sorted(set(words), key=str.lower)


def test_the_table_of_balancers_says_what_they_need_and_give_to_heads() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*) \| (\w+) \| (weighted|mean|sum) \| .* \|$", page, re.MULTILINE)
    told = {name: (need.lower(), heads) for cell, need, heads in rows for name in re.findall(r"`(\w+)`", cell)}
    balancers = {name: component("balancers", name) for name in names("balancers")}
    own = {
        name: cls for name, cls in balancers.items() if not plugin_file(cls) and "of" not in cls.knobs()
    }  # no wrapper
    assert told == {name: (cls.needs, cls.heads) for name, cls in own.items()}


def test_the_page_lists_the_sub_rooms_of_every_room() -> None:
    lines = ARCHITECTURE.read_text(encoding="utf-8").splitlines()
    for init in sorted((ROOT / "mtlscale").glob("*/*/__init__.py")):
        room, name = init.parts[-3:-1]
        assert any(f"`mtlscale/{room}`" in line and f"`{name}`" in line for line in lines), f"{room}/{name}"


def test_the_experiment_with_an_example_runs_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in blocks(EXTENDING) if "train(run, data)" in block]
    told: list[tuple[str, float]] = []
    program = block.replace('bilevel.yaml")', 'bilevel.yaml", ("training.epochs=1",))').replace('"outputs"', "home")
    assert program.count("training.epochs=1") == program.count("Path(home)") == 1
    monkeypatch.chdir(ROOT)
    exec(program, {"home": tmp_path, "print": lambda method, found: told.append((method, found["accuracy"]))})
    assert [method for method, _ in told] == ["stl", "equal", "gated", "gated+mgda", "constant", "linear"]
    assert all(accuracy > 50 for method, accuracy in told if method != "constant")


def test_lines_shown_of_the_examples_are_theirs() -> None:
    files = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")]
    known = {line.strip() for text in files for line in text.splitlines()}
    begins = re.compile(r"(class \w+\(\w+\)|def \w+\(self.*\).*):")
    shown = [block for page in DOCS for block in blocks(page) if begins.match(block)]
    assert len(shown) == 3
    for block in shown:
        lines = {re.sub(r"  # of the .*", "", line).strip() for line in block.splitlines()}
        assert lines <= known, lines - known


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_complete_files_shown_are_those_of_the_examples(page: Path) -> None:
    for block in blocks(page):
        if named := re.match(r"# (\w+\.(?:py|yaml))\n", block):
            assert block.removeprefix(named[0]) == (EXAMPLES / named[1]).read_text(encoding="utf-8"), named[1]


def test_every_example_is_shown_or_linked() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS)
    for path in EXAMPLES.glob("*.*"):
        assert path.name in text, f"no page speaks of docs/examples/{path.name}"


def test_columns_explained_are_those_of_the_leaderboard() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "mtlscale" / "report").rglob("*.py"))
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([^`]+)` \|", page.partition("\n## Several experiments")[0], re.M)
    assert len(explained) > 5  # across data sets; those of a data set come from the registry
    for header in explained:
        assert f'"{header}"' in sources or f'"{header.replace("equal", "{table.reference}")}"' in sources, header
