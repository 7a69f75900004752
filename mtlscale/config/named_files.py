"""Files and folders that a component's setting names: found beside the experiment, identified by their content."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config.checkpoints import check_folder, counted_files, tokenizer_files
from mtlscale.config.errors import UserError
from mtlscale.config.places import local_path
from mtlscale.config.registry import components


@dataclass(frozen=True)
class Named:
    """The setting of an experiment file that names a file, or a folder with a pretrained model."""

    where: str
    options: dict[str, Any]
    key: str
    kind: components.FileKind

    @property
    def name(self) -> str:
        return str(self.options[self.key])

    def resolve(self, folder: Path) -> Path:
        """Return the file or folder, relative to the experiment's folder or else to the working directory."""
        expected = "file" if self.kind is True else "folder"
        given = local_path(self.name)
        for path in (folder / given, given):
            if path.is_file() if expected == "file" else path.is_dir():
                if expected == "folder":
                    check_folder(path, f"{self.where}: {self.name}", weights=self.kind == "checkpoint")
                return path.absolute()

        problem = "does not exist beside the experiment or here"
        if (folder / given).exists() or given.exists():
            problem = "is a file" if expected == "folder" else "is a folder"
        raise UserError(f"{self.where}: {self.name} {problem}; name a {expected} or null")


def named(data: Mapping[str, Any]) -> Iterator[Named]:
    """Yield the settings that name files in an unchecked experiment; plugins have to be loaded by then."""
    for where, kind, entry in _components(data):
        name = entry.get("name")
        if not isinstance(name, str) or name not in components.names(kind):
            continue

        options = entry["options"] if isinstance(entry.get("options"), dict) else entry
        for key, (_, knob) in components.component(kind, name).knobs().items():
            if knob.file and isinstance(options.get(key), str):
                yield Named(f"{where}.{key}", options, key, knob.file)


def _components(data: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (location, kind, entry) of components that may name files: encoders, data sets, architectures."""
    models = [("model", data.get("model"))]
    for kind in ("datasets", "methods"):
        entries = data.get(kind)
        for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
            if not isinstance(entry, dict):
                continue
            models.append((f"{kind}.{index}.model", entry.get("model")))
            if kind == "datasets":
                yield f"datasets.{index}", "datasets", entry
            if kind == "methods":
                yield f"methods.{index}", "architectures", entry
                if isinstance(entry.get("architecture"), dict):
                    yield f"methods.{index}.architecture", "architectures", entry["architecture"]

    for where, model in models:
        encoder = model.get("encoder") if isinstance(model, Mapping) else None
        if isinstance(encoder, dict):
            yield f"{where}.encoder", "encoders", encoder


def with_content_hash(value: Any) -> Any:
    """Return a setting that names a file together with the hash of its content, as a run's spec keeps it."""
    return {"file": value, "sha256": _content_hash(value)} if isinstance(value, str) else value


def identity(entry: Any) -> Any:
    """Return a component's part of a spec with files replaced by their content hash.

    The path of a file is no part of a run id.
    """
    if not isinstance(entry, Mapping):
        return entry
    return {key: value["sha256"] if _is_file(value) else value for key, value in entry.items()}


def locate(value: Any) -> Path:
    """Return the file or folder that a setting names.

    On another node it may lie in that node's copy of a submitted job's working directory.

    Args:
        value: The setting as `known` returns it, or a path.

    Raises:
        UserError: If it no longer exists, or its content has changed.
    """
    path = Path(value["file"] if _is_file(value) else value)
    if not path.exists():
        path = next((candidate for candidate in [Path.cwd().joinpath(*path.parts[-3:])] if candidate.exists()), path)
    if not path.exists():
        raise UserError(f"{path} is not on this machine; it has to lie at the same path on every node")
    if _is_file(value) and _content_hash(str(path)) != value["sha256"]:
        raise UserError(f"{path} has changed since the run was planned; start it again")
    return path


def _is_file(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"file", "sha256"}


def tokenizer_hash(folder: Path) -> str:
    """Return the hash of a tokenizer's files, which its token ids depend on."""
    return _hash_together(tokenizer_files(folder))


def _hash_together(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{_content_hash(str(path))}\n".encode())
    return digest.hexdigest()


def _content_hash(path: str) -> str:
    try:
        if Path(path).is_dir():
            return _hash_together(counted_files(Path(path)))
        state = Path(path).stat()
        return _hash(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name another file") from None


@functools.lru_cache(maxsize=64)
def _hash(path: str, size: int, changed: int) -> str:
    """Hash a file; called for every run, so a file with the same size and time of change is read once."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
