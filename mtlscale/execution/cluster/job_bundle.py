"""Bundle of what a submitted job takes along: the experiment as it will be run, its plugins and included files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mtlscale.config import (
    Experiment,
    UserError,
    checkpoints,
    find_experiment,
    load_experiment,
    named_files,
    read_settings,
    without_secrets,
)
from mtlscale.config.places import local_path
from mtlscale.config.registry.helpers import helper_files

LIMIT_MB = 100.0  # MiB
# Never packed, wherever they stand: environments, caches, results; nor anything whose name begins with a dot.
NEVER = frozenset(
    {"__pycache__", "build", "dist", "mlartifacts", "mlruns", "node_modules", "outputs", "venv", "mlflow.db"}
)
_NAMED = 3  # of the biggest files, in the message of a package that is too big


@dataclass(frozen=True)
class Package:
    """The files of a job's working folder: those that are copied, and those that are written."""

    experiment: Experiment
    file: str  # the experiment's, inside
    copied: Mapping[str, Path]  # name inside -> file here
    generated: Mapping[str, str]  # name inside -> its text
    links: tuple[Path, ...] = ()  # that were left out, since they may lead anywhere

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        return {name: path.stat().st_size for name, path in self.copied.items()} | {
            name: len(text.encode()) for name, text in self.generated.items()
        }

    def check(self, limit_mb: float = LIMIT_MB) -> None:
        """Raise `UserError` with the biggest files if the package is over the limit (MiB)."""
        if self.size <= limit_mb * 2**20:
            return

        biggest = sorted(self.sizes().items(), key=lambda item: -item[1])[:_NAMED]
        names = ", ".join(f"{name} {bytes_in_words(size)}" for name, size in biggest)
        raise UserError(
            f"the package is {bytes_in_words(self.size)}, over the limit of {limit_mb:g} MiB; the biggest files: "
            f"{names}; leave them out (data belong on a path that the cluster sees), or raise --limit"
        )

    def write(self, folder: Path) -> None:
        """Write the files below a folder."""
        for name, source in self.copied.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        for name, text in self.generated.items():
            (folder / name).write_text(text, encoding="utf-8")


def bytes_in_words(size: int) -> str:
    """Return a size in bytes as text in KiB or MiB."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def pack(
    experiment: str, overrides: Sequence[str] = (), include: Iterable[Path] = (), *, with_code: bool = False
) -> Package:
    """Return the package of an experiment with its overrides applied.

    Args:
        experiment: A file, or the name of a shipped experiment.
        overrides: Changes of its settings, as the command line takes them.
        include: More files and folders, under their own names.
        with_code: Pack this very mtlscale, for clusters that have none or another one.

    Raises:
        UserError: For whatever is wrong with the experiment, and for things that are never packed.
    """
    loaded = load_experiment(experiment, tuple(overrides))
    check_secrets(loaded.tracking.uri, *(dataset.source for dataset in loaded.datasets))
    file = find_experiment(experiment)
    settings = {"name": loaded.name, **read_settings(file, tuple(overrides))}

    links: list[Path] = []
    copied: dict[str, Path] = {}
    plugins = {f"plugins/{index}/{path.name}": path for index, path in enumerate(loaded.plugins)}
    copied |= plugins
    for index, path in enumerate(loaded.plugins):
        helpers = helper_files(path, path.read_bytes())
        copied |= {f"plugins/{index}/{helper}": file for helper, file in helpers.items()}
    if plugins:
        settings["plugins"] = list(plugins)

    if loaded.published is not None:
        settings["published"] = f"published/{loaded.published.name}"
        copied[settings["published"]] = loaded.published

    for index, reference in enumerate(named_files.named(settings)):
        source = reference.resolve(file.parent)
        reference.options[reference.key] = f"files/{index}/{source.name}"
        contents = (
            {"": source} if source.is_file() else {f"/{path.name}": path for path in checkpoints.counted_files(source)}
        )
        copied |= {f"{reference.options[reference.key]}{name}": path for name, path in contents.items()}

    for index, dataset in enumerate(loaded.datasets):
        if dataset.source is not None:
            raw_files = _named_data(Path(dataset.source), dataset.build().files(), links)
            copied |= {f"data/{index}/{name}": path for name, path in raw_files.items()}
            settings["datasets"][index]["source"] = f"data/{index}" if raw_files else dataset.source

    for path in include:
        copied |= _included(path, links)
    if with_code:
        code_files = _code()
        for clash in {name.split("/")[0] for name in code_files} & {name.split("/")[0] for name in copied}:
            raise UserError(f"--include brings another {clash}, which --with-code takes along; rename it")
        copied |= code_files

    name = f"{file.stem}.yaml"
    if name in copied:
        raise UserError(f"--include brings another {name}; rename it, the experiment has that name")
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return Package(loaded, name, copied, {name: text}, tuple(links))


def check_secrets(*addresses: str | None) -> None:
    """Raise `UserError` for a password: everybody on a cluster may read its jobs' commands and packages."""
    for address in filter(None, addresses):
        if without_secrets(address) != address:
            raise UserError(
                f"{address} has a password, which everybody on the cluster could read in the job; leave it out and set "
                "MLFLOW_TRACKING_URI, or the variables of the service, on the cluster"
            )


def _named_data(source: Path, names: Iterable[str], links: list[Path]) -> dict[str, Path]:
    """Return the raw data that a data set's options name; nothing unless all of them are here."""
    raw_files: dict[str, Path] = {}
    for name in names:
        path = source / name
        if not path.exists():
            return {}
        files_below = [path] if path.is_file() else _files(path, links)
        raw_files |= {str(Path(name, file.relative_to(path))): file for file in files_below}
    return raw_files


def _included(path: Path, links: list[Path]) -> dict[str, Path]:
    if not path.exists():
        raise UserError(f"--include {path} does not exist")
    if _never(path.absolute().name) or path.resolve() in _kept_apart():
        raise UserError(f"--include {path}: data, results, histories and hidden files are never packed")
    if path.is_file():
        return {path.name: path}
    return {f"{path.absolute().name}/{file.relative_to(path)}": file for file in _files(path, links)}


def _code() -> dict[str, Path]:
    from mtlscale.config.registry import import_order

    code_files: dict[str, Path] = {}
    for folder in (Path(__file__).parents[2], import_order.FOLDER):
        code_files |= {f"{folder.name}/{file.relative_to(folder)}": file for file in _files(folder, [])}
    return code_files


def _files(folder: Path, links: list[Path]) -> Iterator[Path]:
    """Yield the files below a folder that may be packed; add to `links` what is left out since it may lead anywhere."""
    excluded = _kept_apart()
    for parent, folders, names in os.walk(folder):
        permitted = [Path(parent, name) for name in sorted((*folders, *names)) if not _never(name)]
        links += [path for path in permitted if path.is_symlink()]
        real = [path for path in permitted if not path.is_symlink()]
        folders[:] = [path.name for path in real if path.name in folders and path.resolve() not in excluded]
        yield from (path for path in real if path.name in names)


def _never(name: str) -> bool:
    return name.startswith(".") or name in NEVER or name.endswith((".pyc", ".egg-info"))


def _kept_apart() -> set[Path]:
    """Return the folders of data and results that the environment names."""
    configured = (os.environ.get("MTLSCALE_HOME"), os.environ.get("MTLSCALE_DATA"))
    return {local_path(name).resolve() for name in configured if name}
