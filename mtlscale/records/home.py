"""Where things are kept: prepared data, runs, ledgers and MLflow below one home folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from mtlscale.records.files import is_full, no_space
from mtlscale.spec import UserError


@dataclass(frozen=True)
class Home:
    """The folder layout. Runs are shared by all experiments, so what one finished no other runs again.

    storage: a URL that fsspec knows (`Storage`), where the nodes of a cluster have no folder in common; every
    node then has its own home.
    """

    root: Path
    storage: str | None = None

    @classmethod
    def default(cls) -> Home:
        """$MTLSCALE_STORAGE, and $MTLSCALE_HOME, or `outputs` in the working folder; `~/mtlscale` in a Ray job, whose
        working folder is removed with it."""
        in_job = "runtime_resources" in Path.cwd().parts
        return cls(
            Path(os.environ.get("MTLSCALE_HOME") or (Path.home() / "mtlscale" if in_job else "outputs")).absolute(),
            os.environ.get("MTLSCALE_STORAGE") or None,
        )

    @classmethod
    def at(cls, root: Path | None = None, storage: str | None = None) -> Home:
        """This folder and URL; what is None is as in `default`."""
        usual = cls.default()
        return cls(usual.root if root is None else root.absolute(), storage or usual.storage)

    def run(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def experiment(self, name: str) -> Path:
        return self.root / "experiments" / name

    def ledger(self, name: str) -> Path:
        return self.experiment(name) / "ledger.jsonl"

    def trials(self, name: str, file: str = "trials.jsonl") -> Path:
        """The ledger of a search's trials, apart from the runs that the leaderboard compares."""
        return self.experiment(name) / file

    @property
    def phases(self) -> Path:
        """What the finished phases of methods handed over, for every run that shares them."""
        return self.root / "phases"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def artifacts(self) -> Path:
        return self.root / "mlartifacts"


def check_folder(root: Path) -> None:
    """`UserError` where nothing can be written below this folder, which need not be there yet: what is above it is."""
    there = root
    try:
        while not there.exists():
            there = there.parent
        if not there.is_dir():
            what = "a file" if there == root else f"below the file {there}"
            raise UserError(f"--home {root} is {what}; name a folder")
        with tempfile.TemporaryFile(dir=there):  # what rights say is not all: a file system may be read-only
            pass
    except OSError as error:
        if is_full(error):
            raise UserError(no_space(error, str(there))) from None
        raise UserError(
            f"--home {str(root)[:200]} cannot be written: {error.strerror}; name a folder that can"
        ) from None


@contextmanager
def new_folders(folder: Path) -> Iterator[None]:
    """The folder and those above it; where nothing came of it, those that were not there before go."""
    missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):  # something is in it
                path.rmdir()
        raise
