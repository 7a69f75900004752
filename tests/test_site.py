"""The site builds without a complaint, asks the network for nothing, and says what every key means."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import formulas
import pytest

from mtlscale.config.experiment.key_reference import key_reference
from mtlscale.config.registry.components import PACKAGES, component, names

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def page(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


def test_pages_ask_the_network_for_nothing(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]* src="([^"]*)"|<link[^>]* href="([^"]*)"', text)
        assert not [where for pair in fetched for where in pair if re.match(r"(https?:)?//", where)], path
        assert 'class="mermaid"' not in text, f"{path} has a diagram, whose program the theme would fetch"


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    text = page(site, "methods.html")
    assert text.count("<math") > 500 and "arithmatex" not in text


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
    text = html.unescape(page(site, "components.html"))
    for kind in PACKAGES:
        for name in names(kind, plugins=False):
            assert f'id="{name}' in text, f"{kind}: {name}"
            assert all(
                spec.help and f"<code>{knob}</code>" in text
                for knob, (_, spec) in component(kind, name).knobs().items()
            )


def test_links_lead_into_the_code(site: Path) -> None:
    """A file of the code that a page links to is a page of the site, with the file as it is."""
    assert "source/mtlscale/architectures/hard/hps.py.html" in page(site, "own_architecture.html")
    assert "class HPSModule" in re.sub(r"<[^>]+>", "", page(site, "source/mtlscale/architectures/hard/hps.py.html"))
