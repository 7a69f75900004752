"""Files that a component's setting names: found beside the experiment, known by what they hold."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.spec import components
from mtlscale.spec.errors import UserError


@dataclass(frozen=True)
class Named:
    """A place in what an experiment file says that names a file."""

    where: str
    options: dict[str, Any]
    key: str

    @property
    def name(self) -> str:
        return str(self.options[self.key])

    def found(self, folder: Path) -> Path:
        """The file, relative to the experiment's folder, else to the working directory."""
        for path in (folder / self.name, Path(self.name)):
            if path.is_file():
                return path.absolute()
        raise UserError(f"{self.where}: {self.name} does not exist beside the experiment or here; name a file or null")


def named(data: Mapping[str, Any]) -> Iterator[Named]:
    """The places that name files, of an unchecked experiment; plugins are known by now."""
    for where, kind, entry in _components(data):
        name = entry.get("name")
        if not isinstance(name, str) or name not in components.names(kind):
            continue
        options = entry["options"] if isinstance(entry.get("options"), dict) else entry
        for key, (_, knob) in components.component(kind, name).knobs().items():
            if knob.file and isinstance(options.get(key), str):
                yield Named(f"{where}.{key}", options, key)


def _components(data: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Place, kind and entry of the components that may name files: encoders, and architectures of methods."""
    models = [("model", data.get("model"))]
    for kind in ("datasets", "methods"):
        entries = data.get(kind)
        for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
            if not isinstance(entry, dict):
                continue
            models.append((f"{kind}.{index}.model", entry.get("model")))
            if kind == "methods":
                yield f"methods.{index}", "architectures", entry
                if isinstance(entry.get("architecture"), dict):
                    yield f"methods.{index}.architecture", "architectures", entry["architecture"]
    for where, model in models:
        encoder = model.get("encoder") if isinstance(model, Mapping) else None
        if isinstance(encoder, dict):
            yield f"{where}.encoder", "encoders", encoder


def known(value: Any) -> Any:
    """A setting that names a file with the hash of its content, as a run's spec keeps it."""
    return {"file": value, "sha256": _content_hash(value)} if isinstance(value, str) else value


def identity(entry: Any) -> Any:
    """A component's part of a spec with files by their content alone: where they lie is no part of a run id."""
    if not isinstance(entry, Mapping):
        return entry
    return {key: value["sha256"] if _is_file(value) else value for key, value in entry.items()}


def locate(value: Any) -> Path:
    """The file that a setting names, as `known` has it or by its path; `UserError` where it is not there any more, or
    holds something else.

    On another node it may lie in that node's copy of a submitted job's working directory.
    """
    path = Path(value["file"] if _is_file(value) else value)
    if not path.is_file():
        path = next((found for found in [Path.cwd().joinpath(*path.parts[-3:])] if found.is_file()), path)
    if not path.is_file():
        raise UserError(f"{path} is not a file on this machine; it has to lie at the same path on every node")
    if _is_file(value) and _content_hash(str(path)) != value["sha256"]:
        raise UserError(f"{path} has changed since the run was planned; start it again")
    return path


def _is_file(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"file", "sha256"}


def _content_hash(path: str) -> str:
    try:
        state = Path(path).stat()
        return _hash(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name another file") from None


@functools.lru_cache(maxsize=64)
def _hash(path: str, size: int, changed: int) -> str:
    """Asked for every run; a file with the same size and time of change is read once."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
