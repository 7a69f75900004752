"""Files that tools and websites read: they are valid, and say the same as the project does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pre_commit.clientlib import load_config

from mtlscale.version import __version__

ROOT = Path(__file__).parents[1]
# The Citation File Format 1.2.0: what a file must have, and what it may.
CITATION_NEEDS = {"cff-version", "message", "title", "authors"}
CITATION_MAY = CITATION_NEEDS | {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"),
    *("preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url"),
    "version",
}
# GitHub's forms: what the parts may be.
FORM_PARTS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert CITATION_NEEDS <= citation.keys() <= CITATION_MAY
    assert citation["cff-version"] == "1.2.0" and citation["type"] in ("software", "dataset")
    for author in citation["authors"]:
        assert "name" in author or {"family-names", "given-names"} <= author.keys()
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert citation["version"] == project["version"] == __version__
    assert citation["license"] == project["license"] and citation["title"] == project["name"]


def test_hooks_before_a_commit_are_what_make_lint_checks() -> None:
    config = load_config(str(ROOT / ".pre-commit-config.yaml"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}  # nothing is fetched
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    assert lint is not None
    tools = re.findall(r"\$\(BIN\)/(.*?)(?: \.)?\n", lint[1])
    tools = [tool.replace("$(BIN)", ".venv/bin") for tool in tools]
    entries = [hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in hooks]
    assert set(tools) <= set(entries)
    for path in re.findall(r"tests/\w+\.py", " ".join(entries)):
        assert (ROOT / path).is_file()


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def steps(name: str) -> dict[str, list[str]]:
    """The commands of a workflow's jobs."""
    jobs = yaml.safe_load(read(f".github/workflows/{name}.yaml"))["jobs"]
    return {job: [step["run"] for step in content["steps"] if "run" in step] for job, content in jobs.items()}


def test_the_workflows_run_what_anybody_runs() -> None:
    assert steps("tests") == {
        "default": ["make test PYTHON=python"],
        "lint": ["make lint"],
        "core": ["make test-core"],
        "versions": ['make "test-$WHICH"'],
        "extras": ['make test-extra EXTRA="$EXTRA"'],
        "nightly": ["npm install --prefix tests/browser", ".ci/run", "make test-all"],
    }
    assert steps("docs") == {"build": ["make docs"], "publish": []}
    assert steps("release")["build"][0] == "make dist"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert read(".ci/run").splitlines()[-1] == "exec make test"


def test_every_extra_is_tried_alone() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"].keys() - {"dev", "test"}
    jobs = yaml.safe_load(read(".github/workflows/tests.yaml"))["jobs"]
    assert set(jobs["extras"]["strategy"]["matrix"]["extra"]) == extras | {"none"}
    tests = dict(re.findall(r"^TESTS_(\w+) := (.*)", read("Makefile"), re.MULTILINE))
    assert tests.keys() == extras | {"none"}
    assert all((ROOT / path).exists() for paths in tests.values() for path in paths.split())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_may_do_no_more_than_they_need(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"], name
        granted = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        assert granted <= {"publish": {"pages", "id-token"}, "package": {"id-token"}, "image": {"packages"}}.get(
            name, set()
        )
        for step in job["steps"]:
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40)), step
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
    assert not re.findall(r"uses: \S+@[0-9a-f]{40}(?! # v\d)", path.read_text(encoding="utf-8")), "say which version"


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda f: f.stem)
def test_a_form_is_one_that_github_shows(form: Path) -> None:
    content: dict[str, Any] = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert content.keys() >= {"name", "description", "body"}
    parts = content["body"]
    assert {part["type"] for part in parts} <= FORM_PARTS
    assert len({part["id"] for part in parts}) == len({part["attributes"]["label"] for part in parts}) == len(parts)


@pytest.mark.parametrize("name", ["RELEASING.md", ".github/pull_request_template.md", "CONTRIBUTING.md"])
def test_paths_that_checklists_name_exist(name: str) -> None:
    folders = r"tests|docs|benchmarks|studies|mtlscale|\.ci|\.github"
    for path in re.findall(rf"(?<![\w/.])((?:{folders})/[\w./-]*\w)", read(name)):
        assert (ROOT / path).exists(), f"{name} names {path}"
    for target in re.findall(r"`make ([a-z-]+)`", read(name)):
        assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE), f"{name} names make {target}"
