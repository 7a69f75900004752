"""The contract of a pipeline: raw files of one data set to tables of samples, ready to be written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from mtlscale.spec import Component, TaskSuite, UserError
from pipelines._blocks import Blocks, Engine, Tell, blocks
from pipelines._fingerprint import content, folder_fingerprint
from pipelines._held import Holder, held
from pipelines._hub import HubFolder, is_hub_folder


@dataclass(frozen=True)
class Download:
    """Where a set's archive can be had without an account."""

    url: str
    filename: str
    sha256: str


Deliver = Callable[[Path, str], None]


@dataclass(frozen=True)
class Work:
    """How to work: the engine, what to do about rows that cannot be used, whom to tell."""

    engine: Engine = "local"
    skip_bad: bool = False
    progress: Tell = lambda stage, done, total: None
    rows_per_block: int = 2048
    deliver: Deliver | None = None  # stores a file that a worker wrote, by its name below the folder of the set
    cache: Path | None = None  # a folder for what several preparations have in common

    def blocks(self, table: pa.Table) -> Blocks:
        """The table in blocks, where `map` runs on the chosen engine."""
        parts = [table.slice(start, self.rows_per_block) for start in range(0, len(table), self.rows_per_block)]
        return blocks(parts, self.engine, self.progress)

    def held(
        self, function: type[Holder], arguments: tuple[Any, ...], tables: Sequence[pa.Table], most: int | None = None
    ) -> Generator[pa.Table]:
        """`function(*arguments)`, made once on each of `most` actors, or here, of each table; results in their
        order."""
        return held(function, arguments, tables, self.engine, most)

    def settle(self, problems: Iterable[tuple[str, str]], what: str) -> dict[str, Any]:
        """Rows that cannot be used, as (name, problem): a `UserError` naming the first, or a note with `skip_bad`."""
        found = sorted(problems)
        if found and not self.skip_bad:
            name, problem = found[0]
            raise UserError(f"{len(found)} {what} cannot be used, the first: {name} {problem}; mend or pass --skip-bad")
        return {"skipped": {"count": len(found), "first": [" ".join(row) for row in found[:20]]}} if found else {}


@dataclass(frozen=True)
class Part:
    """Some rows of a set, computed: a table as `Prepared` has it, arrays as fixed-size lists and encoded pictures as
    large binaries; rows that are not in it, as (name, problem); whatever `Pieces.finish` wants to know of them."""

    table: pa.Table
    problems: list[tuple[str, str]] = field(default_factory=list)
    told: Any = None


Compute = Callable[[pa.Table], Part]


class Pieces(Protocol):
    """The rows of a set that is too large to hold: computed and written by many tasks."""

    @property
    def what(self) -> str:
        """A row, as messages have it."""
        ...

    @property
    def index(self) -> Mapping[str, pa.Table]:
        """split -> what is known of its rows beforehand: their `id`, what `compute` wants, and, where the suite has
        several streams, the `stream` of each."""
        ...

    @property
    def row_bytes(self) -> int:
        """About what a computed row takes."""
        ...

    @property
    def compute(self) -> Compute:
        """Some rows of the index, in their order, to their samples: whichever rows come together, the same. It is
        pickled, and importable where it runs."""
        ...

    def finish(
        self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the suite's extras and the notes gain, of the (split, told) of all parts and the rows left out."""
        ...


@dataclass
class Prepared:
    """What a pipeline hands over: tables as `mtlscale.data.prepared` describes them, rows in any order; or `pieces`
    in their place."""

    suite: TaskSuite
    tables: dict[str, dict[str, pa.Table]]  # split -> stream -> id, input, target.<task>
    target_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    vocabulary: list[str] | None = None
    extra: dict[str, pa.Table] = field(default_factory=dict)  # file name -> table with an id
    notes: dict[str, Any] = field(default_factory=dict)
    pieces: Pieces | None = None


class Pipeline(Component):
    """A data set: where its files are, and how they become tables. Its knobs are the options of an experiment file."""

    kind: ClassVar[str] = "datasets"
    needs_source: ClassVar[bool] = True
    folder: ClassVar[str] = ""  # below $MTLSCALE_DATA, where no source is named
    archives: ClassVar[tuple[str, ...]] = ()  # file names the set is known by
    roots: ClassVar[tuple[str, ...]] = ("",)  # where an extracted archive has its files, below the source folder
    download: ClassVar[Download | None] = None
    # The metrics, or `<task>.<metric>`, that enter Δ and η; of those that are not measured nobody speaks. Default: all.
    delta: ClassVar[tuple[str, ...]] = ()
    # Of the floors that experiments have by default those that cannot be computed on it: they are left out.
    without_floors: ClassVar[tuple[str, ...]] = ()
    # How texts fall into words, a rule of `mtlscale.data.texts`, for whoever has the vocabulary and raw texts.
    words: ClassVar[str | None] = None
    hub: ClassVar[bool] = False  # whether it reads what the `datasets` library wrote
    # A source of at least this many bytes goes through Ray Data, a smaller one through this process: starting Ray
    # costs more than small sets do.
    ray_from_bytes: ClassVar[float] = float("inf")

    def options(self) -> dict[str, Any]:
        """The knobs that tell this preparation from another."""
        return asdict(self)

    def expected(self) -> tuple[str, ...]:
        """Paths an extracted archive must have, relative to its root."""
        return ()

    def files(self) -> tuple[str, ...]:
        """The files below the source that its options name: looked for beside the experiment, they travel with it."""
        return ()

    def locate(self, source: Path) -> Path:
        """The archive, or the folder with the expected files, that `source` is or holds."""
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with its folder or archive")
        if source.is_file() or (self.hub and is_hub_folder(source)):
            return source
        for archive in self.archives:
            if (source / archive).is_file():
                return source / archive
        expected = self.expected()
        for root in (source / root for root in self.roots):
            missing = [path for path in expected if not (root / path).exists()]
            if len(missing) < len(expected):
                if missing:
                    raise UserError(f"{self.name}: {missing[0]} is missing in {root}")
                return root
        if not expected and not self.archives:
            return source
        wanted = [*expected[:1], *self.archives]
        lacks = f"neither {' nor '.join(wanted)}" if len(wanted) > 1 else f"no {wanted[0]}"
        raise UserError(f"{self.name}: {source} has {lacks}")

    def source_fingerprint(self, located: Path | None) -> str:
        """A hash of the source: of an archive's bytes; in a folder of all names and sizes, and of the content of files
        that are small and no pictures: labels, lists, texts."""
        if located is None:
            return hashlib.sha256().hexdigest()
        if located.is_file():
            return content(located)
        if self.hub and is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()
        return folder_fingerprint(located)

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        """Read what `locate` found. The same rows whatever the engine and the size of its blocks."""
        raise NotImplementedError
