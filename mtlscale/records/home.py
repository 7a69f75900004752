"""The home folder: prepared data, runs, ledgers and MLflow below one root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from mtlscale.config import UserError
from mtlscale.config.places import local_folder, storage_url
from mtlscale.records.files import is_full, no_space
from mtlscale.records.record import Epoch, read_epochs


@dataclass(frozen=True)
class Home:
    """The folder layout of a home; runs are shared by all experiments, so a finished run is never repeated.

    `storage` is a URL that fsspec knows (`Storage`), for clusters whose nodes have no folder in common; every node then
    has its own home.
    """

    root: Path
    storage: str | None = None

    @classmethod
    def default(cls) -> Home:
        """Return the home of the environment.

        The root is $MTLSCALE_HOME, or `outputs` in the working folder; in a Ray job it is `~/mtlscale`, since the job's
        working folder is removed with it. The storage is $MTLSCALE_STORAGE.
        """
        return cls.at()

    @classmethod
    def at(cls, root: Path | None = None, storage: str | None = None) -> Home:
        """Return the home with this root and storage URL; None is replaced as in `default`.

        Raises:
            UserError: If the root is no folder, or the storage no URL.
        """
        if root is None:
            in_job = "runtime_resources" in Path.cwd().parts
            usual_root = "~/mtlscale" if in_job else "outputs"
            root_folder = local_folder(os.environ.get("MTLSCALE_HOME") or usual_root, "MTLSCALE_HOME")
        else:
            root_folder = local_folder(root, "--home")

        setting = "--storage" if storage else "MTLSCALE_STORAGE"
        url = storage or os.environ.get("MTLSCALE_STORAGE")
        return cls(root_folder, storage_url(url, setting) if url else None)

    def run(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def epochs(self, run_id: str) -> list[Epoch]:
        """Return the epochs that a run has behind it; none where the home has no file of them."""
        return read_epochs(self.run(run_id))

    def experiment(self, name: str) -> Path:
        return self.root / "experiments" / name

    def ledger(self, name: str) -> Path:
        return self.experiment(name) / "ledger.jsonl"

    def trials(self, name: str, file: str = "trials.jsonl") -> Path:
        """Return the ledger of a search's trials, apart from the runs that the leaderboard compares."""
        return self.experiment(name) / file

    @property
    def tables(self) -> Path:
        """The folder with arrays and data frames that were compared, as files."""
        return self.root / "tables"

    @property
    def phases(self) -> Path:
        """The folder with the output of finished phases, for every run that shares them."""
        return self.root / "phases"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def artifacts(self) -> Path:
        return self.root / "mlartifacts"


def check_folder(root: Path) -> None:
    """Raise `UserError` if nothing can be written below a folder.

    The folder need not exist yet; its nearest existing parent is checked then.
    """
    existing = root
    try:
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir():
            problem = "a file" if existing == root else f"below the file {existing}"
            raise UserError(f"--home {root} is {problem}; name a folder")

        with tempfile.TemporaryFile(dir=existing):  # permissions are not enough: a file system may be read-only
            pass
    except OSError as error:
        if is_full(error):
            raise UserError(no_space(error, str(existing))) from None
        raise UserError(
            f"--home {str(root)[:200]} cannot be written: {error.strerror}; name a folder that can"
        ) from None


@contextmanager
def new_folders(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; remove the new ones again if the body raises an exception."""
    missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)

    try:
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):  # the folder is not empty
                path.rmdir()
        raise
