"""The site builds without a complaint, no link of it is dead, and it asks the network for nothing.

`pytest -m slow tests/test_site.py` looks at its pages in Chromium, at 390 and 1400 pixels, light and dark, with axe.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from mtlscale.config.experiment.key_reference import key_reference
from mtlscale.config.registry.components import PACKAGES, component, names

formulas = pytest.importorskip("formulas", reason="pip install 'mtlscale[docs]'")
pytest.importorskip("zensical", reason="pip install 'mtlscale[docs]'")

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, elsewhere."""
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, SITE / "stage.py", folder / "build" / "pages"], cwd=ROOT, check=True)
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": f"{SITE}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


class Links(HTMLParser):
    """What a page links to and shows, and what may be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.places |= {named[name] for name in ("id", "name") if name in named}
        self.targets += [named[name] for name in ("href", "src") if name in named]


def dead_links(folder: Path) -> list[str]:
    """Links of a site's pages to files or places that are not there."""
    pages = {
        path: Links(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if path.name != "404.html"
    }
    dead = []
    for path, links in pages.items():
        for target in links.targets:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, place = unquote(target).partition("#")
            other = (path.parent / file).resolve() if file not in ("", ".") else path
            if not other.exists() or (place and other in pages and place not in pages[other].places):
                dead.append(f"{path.relative_to(folder)}: {target}")
    return dead


def test_no_link_is_dead(site: Path, tmp_path: Path) -> None:
    assert dead_links(site.resolve()) == []
    (tmp_path / "page.html").write_text('<p id="here"><a href="#here">a</a><a href="#there">b</a><img src="no.png">')
    assert dead_links(tmp_path) == ["page.html: #there", "page.html: no.png"]


def test_the_menu_names_every_page(site: Path) -> None:
    """Pages of tables and of source files are reached by links alone."""
    named = set(re.findall(r": (\w+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert {path.stem for path in site.glob("*.html")} - {"404"} == named


def test_the_search_knows_components_and_no_source_files(site: Path) -> None:
    items = json.loads(page(site, "search.json"))["items"]
    assert any(item["location"].startswith("balancers/getmtl.html") for item in items)
    assert not [item["location"] for item in items if item["location"].startswith("source/")]


def test_every_shipped_experiment_is_listed_with_its_tables(site: Path) -> None:
    text = page(site, "experiments.html")
    for path in (ROOT / "experiments").glob("*.yaml"):
        assert f'href="source/experiments/{path.name}.html"' in text
        assert html.escape(yaml.safe_load(path.read_text())["description"].strip()[:20], quote=False) in text
    for path in (ROOT / "results" / "tables").glob("*/*/README.md"):
        if (ROOT / "experiments" / f"{path.parts[-3]}.yaml").exists():
            assert f'href="tables/{path.parts[-3]}-{path.parts[-2]}.html"' in text


# One page of each kind. The rest are of the same kinds; axe-core needs minutes for the mathematics.
LOOKED_AT = (
    "index",
    "first_ten_minutes",
    "experiments",
    "study",
    "own_loop",
    "results_thesis",
    "architecture",
    "notebook",
    "balancers/getmtl",
)


@pytest.fixture(scope="module")
def found(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Chromium and axe-core find, by page."""
    driver = ROOT / "tests" / "browser"
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or shutil.which("node") is None:
        pytest.skip("needs chromium and node")
    if not (driver / "node_modules" / "axe-core").is_dir():
        pytest.skip("needs axe-core and puppeteer-core: npm install --prefix tests/browser")
    shots = Path(os.environ.get("MTLSCALE_SCREENSHOTS") or tmp_path_factory.mktemp("shots"))
    shots.mkdir(parents=True, exist_ok=True)
    pages = [str(site / f"{name}.html") for name in LOOKED_AT]
    done = subprocess.run(["node", driver / "site.mjs", chromium, shots, *pages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {Path(name).stem: findings for name, findings in json.loads(done.stdout).items()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everyone_can_read_it_on_a_phone_and_a_desk(found: dict[str, Any]) -> None:
    assert set(found) == {Path(name).stem for name in LOOKED_AT}
    complaints = defaultdict(list)
    for name, findings in found.items():
        complaints[name] += findings["errors"] + findings["requests"]
        complaints[name] += ["a click on a head does not sort"] * findings["unsorted"]
        complaints[name] += [
            f"{size} px: {over} px too wide" for size, over in findings["overflow"].items() if over > 0
        ]
        complaints[name] += [str(one) for one in findings["axe"] if one["impact"] in ("serious", "critical")]
    assert not {name: told for name, told in complaints.items() if told}


def page(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


def test_pages_ask_the_network_for_nothing(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]* src="([^"]*)"|<link[^>]* href="([^"]*)"', text)
        assert not [where for pair in fetched for where in pair if re.match(r"(https?:)?//", where)], path
        assert 'class="mermaid"' not in text, f"{path} has a diagram, whose program the theme would fetch"


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    for name, formulas_at_least in (("methods.html", 250), ("balancers/getmtl.html", 50)):
        text = page(site, name)
        assert text.count("<math") > formulas_at_least and "arithmatex" not in text


def test_a_command_that_no_browser_would_draw_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\\nonsense is not known"):
        formulas.mathml(r"a + \nonsense", display=False)
    assert "ℝ" in formulas.mathml(r"\mathbb R", display=False)


def test_every_key_of_an_experiment_file_is_explained(site: Path) -> None:
    text = page(site, "experiment_file.html")
    for section in key_reference():
        for key in section.keys:
            assert key.meaning, f"write behind {key.name} of {section.name} what it means"
            assert f"<td><code>{key.name}</code></td>" in text, f"{section.name}: {key.name}"


def test_every_component_and_its_settings_are_there(site: Path) -> None:
    listed = page(site, "components.html")
    for kind in PACKAGES:
        for name in names(kind, plugins=False):
            assert f'href="{kind}/{name}.html"' in listed, f"{kind}: {name}"
            text = html.unescape(page(site, f"{kind}/{name}.html"))
            assert all(
                spec.help and f"<code>{knob}</code>" in text
                for knob, (_, spec) in component(kind, name).knobs().items()
            )


def test_links_lead_into_the_code(site: Path) -> None:
    """A file of the code that a page links to is a page of the site, with the file as it is."""
    assert "source/mtlscale/architectures/hard/hps.py.html" in page(site, "own_architecture.html")
    assert "class HPSModule" in re.sub(r"<[^>]+>", "", page(site, "source/mtlscale/architectures/hard/hps.py.html"))
