"""Names of other libraries that these do not promise to keep: which one a new version lacks is said by its name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from mtlscale.config import UserError
from mtlscale.execution import ray_internals

ROOT = Path(__file__).parents[2]
OTHERS = {
    "mlflow.store.artifact.artifact_repository_registry.get_artifact_repository": "mtlscale/tracking/reader.py",
    "sklearn.datasets._twenty_newsgroups.strip_newsgroup_header": "pipelines/text/newsgroups.py",
    "sklearn.datasets._twenty_newsgroups.strip_newsgroup_footer": "pipelines/text/newsgroups.py",
    "sklearn.datasets._twenty_newsgroups.strip_newsgroup_quoting": "pipelines/text/newsgroups.py",
}
_LIBRARIES = "ray|mlflow|sklearn|torch|optuna|pyarrow|datasets"
_IMPORT = re.compile(
    rf"^\s*(?:from|import) (?:{_LIBRARIES})(?:[\w.]*\.(?:_\w+|store)\b|[\w.]* import (?:.*\W)?_[a-zA-Z])"
)
_ACCESS = re.compile(r"(?<![\"'.\w])ray\._(?!raylet)[a-z]\w+")


@pytest.mark.parametrize("name", ray_internals.NAMES)
def test_ray_has_the_internal_name(name: str) -> None:
    assert ray_internals.internal(name) is not None


@pytest.mark.parametrize("name", OTHERS)
def test_another_library_has_the_internal_name(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute), f"{name} is gone: {OTHERS[name]} needs another way"


def test_a_name_that_a_release_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "NAMES", ("ray._private.services.moved",))
    with pytest.raises(UserError, match=r"has no ray\._private\.services\.moved, which mtlscale needs; install the"):
        ray_internals.internal("ray._private.services.moved")


def test_ray_train_has_no_public_hook_before_a_group_starts() -> None:
    """Once it has one, `WorkerGroupCallback` can go: groups ask there whether any run is left for them."""
    from ray.train.v2.api.callback import UserCallback

    public = {name for name in dir(UserCallback) if not name.startswith("_")}
    assert public == {"after_exception", "after_report"}, "look whether one of these comes before the start of workers"
    assert hasattr(
        ray_internals.internal("ray.train.v2._internal.execution.callback.WorkerGroupCallback"),
        "before_worker_group_start",
    )


def test_no_other_module_reaches_for_internals() -> None:
    known = {*OTHERS.values(), "mtlscale/execution/ray_internals.py"}
    for package in ("mtlscale", "pipelines"):
        for path in (ROOT / package).rglob("*.py"):
            if str(path.relative_to(ROOT)) not in known:
                for line in path.read_text(encoding="utf-8").splitlines():
                    assert _IMPORT.match(line) is None and _ACCESS.search(line) is None, f"{path}: {line.strip()}"
