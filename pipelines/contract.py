"""The contract of a pipeline: raw files of one data set to tables of samples, ready to be written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import pyarrow as pa

from mtlscale.config import Component, TaskSuite, UserError
from pipelines._engine.actor_map import ActorFunction, actor_map
from pipelines._engine.blocks import Blocks, Engine, Tell, TellPlan, blocks
from pipelines._engine.fingerprint import content, folder_fingerprint
from pipelines._formats.hub import HubFolder, is_hub_folder


@dataclass(frozen=True)
class Download:
    """The archive of a set that can be fetched without an account."""

    url: str
    filename: str
    sha256: str


Deliver = Callable[[Path, str], None]


@dataclass(frozen=True)
class PrepareContext:
    """The settings of one preparation: engine, handling of unusable rows, listeners, storage."""

    engine: Engine = "local"
    skip_bad: bool = False
    progress: Tell = lambda stage, done, total, size=0: None
    plan: TellPlan = lambda stages: None
    rows_per_block: int = 2048
    deliver: Deliver | None = None  # stores a file of a worker under its name in the set's folder
    cache: Path | None = None  # a folder that several preparations share

    def blocks(self, table: pa.Table) -> Blocks:
        """Return the table in blocks whose `map` runs on the chosen engine."""
        parts = [table.slice(start, self.rows_per_block) for start in range(0, len(table), self.rows_per_block)]
        return blocks(parts, self.engine, self.progress, self.plan)

    def held(
        self,
        function: type[ActorFunction],
        arguments: tuple[Any, ...],
        tables: Sequence[pa.Table],
        most: int | None = None,
    ) -> Generator[pa.Table]:
        """Yield the results of `function(*arguments)` on each table, in the order of the tables.

        The function object is built once on each of `most` actors, or once in this process, which calls it from
        threads.
        """
        return actor_map(function, arguments, tables, self.engine, most, self.plan)

    def settle(self, problems: Iterable[tuple[str, str]], what: str) -> dict[str, Any]:
        """Raise `UserError` naming the first unusable row, or return a note on them if `skip_bad` is set.

        Args:
            problems: (name, problem) of each row that cannot be used.
            what: Plural noun for the rows, as in "images".
        """
        bad = sorted(problems)
        if bad and not self.skip_bad:
            name, problem = min(bad, key=lambda row: (len(row[0]), row))  # row 4 before row 10
            count = f"{len(bad)} {what if len(bad) > 1 else what.removesuffix('s')}"
            raise UserError(f"{count} cannot be used, the first: {name} {problem}; mend or pass --skip-bad")

        return {"skipped": {"count": len(bad), "first": [" ".join(row) for row in bad[:20]]}} if bad else {}


@dataclass(frozen=True)
class ComputedRows:
    """Some computed rows of a set.

    Attributes:
        table: The rows as `Prepared` has them, arrays as fixed-size lists and encoded pictures as large binaries.
        problems: (name, problem) of each row that was left out.
        told: Statistics of these rows for `ShardedTable.finish`.
    """

    table: pa.Table
    problems: list[tuple[str, str]] = field(default_factory=list)
    told: Any = None


Compute = Callable[[pa.Table], ComputedRows]


class ShardedTable(Protocol):
    """The rows of a set that is too large for memory: computed and written by many tasks."""

    @property
    def what(self) -> str:
        """The noun for one row in messages."""
        ...

    @property
    def index(self) -> Mapping[str, pa.Table]:
        """The index of each split: a table of everything known about its rows beforehand.

        It has `id`, the columns that `compute` reads and, if the suite has several streams, the `stream` of each row.
        """
        ...

    @property
    def row_bytes(self) -> int:
        """The approximate size in bytes of a computed row."""
        ...

    @property
    def compute(self) -> Compute:
        """The function from some rows of the index to their samples, in the same order.

        A row's sample must not depend on the rows beside it. The function is pickled and must be importable where it
        runs.
        """
        ...

    def finish(
        self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the additions to the suite's extras and to the notes.

        Args:
            told: (split, `ComputedRows.told`) of all parts.
            problems: (name, problem) of the rows that were left out.
        """
        ...


@dataclass
class Prepared:
    """The result of a pipeline: tables as `mtlscale.data.readers.prepared` describes them, or `pieces` instead.

    Rows may be in any order.
    """

    suite: TaskSuite
    tables: dict[str, dict[str, pa.Table]]  # split -> stream -> id, input, target.<task>
    target_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    vocabulary: list[str] | None = None
    extra: dict[str, pa.Table] = field(default_factory=dict)  # file name -> table with an id
    notes: dict[str, Any] = field(default_factory=dict)
    pieces: ShardedTable | None = None


class Pipeline(Component):
    """Data set: the place of its files and their conversion to tables; its knobs are the YAML options."""

    kind: ClassVar[str] = "datasets"
    needs_source: ClassVar[bool] = True
    made_in_seconds: ClassVar[bool] = True  # a set without a source: whether a dry run may make it to look at it
    folder: ClassVar[str] = ""  # below $MTLSCALE_DATA, where no source is named
    archives: ClassVar[tuple[str, ...]] = ()  # file names the set is known by
    roots: ClassVar[tuple[str, ...]] = ("",)  # folders below the source that an extracted archive may put its files in
    download: ClassVar[Download | None] = None
    # The metrics, or `<task>.<metric>`, that enter Δ and η; names that are not measured are ignored. Default: all.
    delta: ClassVar[tuple[str, ...]] = ()
    # Default floors of an experiment that are left out for this set. Forests and boosting are for tables: numbers,
    # categories and molecules.
    without_floors: ClassVar[tuple[str, ...]] = ("forest", "boosting")
    # Rule of `data.format.texts` that splits texts into words, for users who apply the vocabulary to raw texts.
    words: ClassVar[str | None] = None
    hub: ClassVar[bool] = False  # whether it reads sets that the `datasets` library wrote
    # "ray": Ray Data prepares the set always; "auto": from `ray_from_bytes` of source on.
    engine: ClassVar[Literal["ray", "auto"]] = "auto"
    # With the engine "auto" a source of at least this many bytes goes through Ray Data, a smaller one through this
    # process: starting Ray costs more than small sets do.
    ray_from_bytes: ClassVar[float] = float("inf")
    # Whether it makes whole tables of what Ray's tasks return: a process of its own then does, not the driver, which
    # lives as long as the experiment and would keep the memory.
    collects: ClassVar[bool] = False

    def options(self) -> dict[str, Any]:
        """Return the knobs that distinguish this preparation from another."""
        return self.knob_values()

    def expected(self) -> tuple[str, ...]:
        """Return the paths that an extracted archive must have, relative to its root."""
        return ()

    def files(self) -> tuple[str, ...]:
        """Return the files below the source that its options name.

        They are looked for beside the experiment file and travel with it.
        """
        return ()

    def locate(self, source: Path) -> Path:
        """Return the archive, or the folder with the expected files, that `source` is or contains."""
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

        expected_names = [*expected[:1], *self.archives]
        problem = f"neither {' nor '.join(expected_names)}" if len(expected_names) > 1 else f"no {expected_names[0]}"
        raise UserError(f"{self.name}: {source} has {problem}")

    def source_fingerprint(self, located: Path | None) -> str:
        """Return a hash of the source.

        An archive is hashed by its bytes. A folder is hashed by all names and sizes, and by the content of small files
        that are no pictures: labels, lists, texts.
        """
        if located is None:
            return hashlib.sha256().hexdigest()
        if located.is_file():
            return content(located)
        if self.hub and is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()
        return folder_fingerprint(located)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        """Read the source that `locate` returned.

        The rows must not depend on the engine or on the size of its blocks.
        """
        raise NotImplementedError
