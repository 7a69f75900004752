"""Multi-label sets of Mulan: every label is a binary task on the same input."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import carve_validation
from mtlscale.data.tables.arff import read_arff, read_labels
from mtlscale.data.tables.raw_files import Problems, decoded, unpacked
from pipelines._steps.features import lists, standardised
from pipelines.contract import Pipeline, PrepareContext, Prepared

OFFICIAL_SPLITS = ("train", "test")
_MAX_NAME_LENGTH = 100  # letters of a task's name, at most


class Multilabel(Pipeline):
    """Mulan's yeast, emotions or medical: binary tasks, one per label, on one shared vector.

    The source has `<set>-train.arff`, `<set>-test.arff` and `<set>.xml`, which names the labels, plain or packed with
    gzip, with dense or sparse rows; `set` may name other sets of this form. The test part is the official one; a share
    of train is held out for validation by a hash of the features, so that equal rows stay together. Features have mean
    0 and variance 1 over the training rows; a feature that is constant there becomes 0.

    A label that is always 0 or always 1 in a split cannot be learnt, measured or used for model selection; most of
    medical's 45 labels are that rare. `rare: drop` leaves such labels out, `keep` keeps those that vary in training.
    """

    name: ClassVar[str] = "multilabel"
    source: ClassVar[str] = "Mulan: Elisseeff & Weston 2001 (yeast); Trohidis 2008 (emotions); Pestian 2007 (medical)"
    folder: ClassVar[str] = "multilabel"
    without_floors: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[tuple[str, ...]] = ("auroc",)

    set: str = knob("yeast", help="yeast, emotions, medical, or the name of other files of this form")
    rare: str = knob("refuse", choices=("refuse", "drop", "keep"), help="labels that a split has not, or has alone")
    standardise: bool = knob(True, help="features to mean 0 and variance 1 over the training part")
    validation: float = knob(0.2, low=0.0, high=0.5, open_low=True, open_high=True, help="share held out of train")
    split: int = knob(0, low=0, help="which random validation part")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.-]+", self.set):
            raise UserError(f"multilabel: set = {self.set!r} should be the name that its files begin with")

    def locate(self, source: Path) -> Path:
        if not source.is_dir():
            problem = "is a file" if source.exists() else "does not exist"
            raise UserError(f"multilabel: source {source} {problem}; name the folder with {self._names()[0]}")
        for name in self._names():
            self._file(source, name)
        return source

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the files of this set alone."""
        assert located is not None
        digest = hashlib.sha256()
        for name in self._names():
            digest.update(f"{name}\0{hashlib.sha256(self._bytes(located, name)).hexdigest()}\n".encode())
        return digest.hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        labels = read_labels(f"multilabel: {self.set}.xml", self._text(source, f"{self.set}.xml"))

        problems: Problems = []
        ids, splits, rows = [], [], []
        names: list[str] = []

        for part in OFFICIAL_SPLITS:
            file = f"{self.set}-{part}.arff"
            header, values = read_arff(f"multilabel: {file}", self._text(source, file))
            if names and header != names:
                raise UserError(f"multilabel: {file} has other attributes than the training part; fetch both again")
            names = header
            for number, row in enumerate(values):
                problem = _problem(row, names, labels)
                if problem:
                    problems.append((f"{file} row {number + 1}", problem))
                    continue
                ids.append(f"{part}/{number:06d}")
                splits.append(part)
                rows.append(row)

        missing = next((label for label in labels if label not in names), None)
        if missing is not None:
            raise UserError(
                f"multilabel: label {missing} of {self.set}.xml is no attribute of its files; fetch them again"
            )

        notes = context.settle(problems, "rows")
        if not rows:
            raise UserError(f"multilabel: {self.set} has no row; fetch its files again")
        return self._prepared(names, labels, np.array(ids), np.array(splits), np.array(rows), notes)

    def _prepared(
        self,
        names: list[str],
        labels: list[str],
        ids: np.ndarray,
        splits: np.ndarray,
        rows: np.ndarray,
        notes: dict[str, Any],
    ) -> Prepared:
        positions = {label: names.index(label) for label in labels}
        inputs = rows[:, [position for position, name in enumerate(names) if name not in positions]]

        keys = [row.tobytes().hex() for row in inputs + 0.0]  # adding 0.0 removes negative zeros
        salt = f"{self.name}/{self.set}/{self.split}"
        drawn_splits = [carve_validation(key, self.validation, salt) for key in keys]
        splits = np.where(splits == "train", drawn_splits, splits)
        train_or_val_keys = {key for key, split in zip(keys, splits, strict=True) if split != "test"}
        repeated_count = sum(
            key in train_or_val_keys for key, split in zip(keys, splits, strict=True) if split == "test"
        )
        notes |= {"test_inputs_in_train_or_val": repeated_count} if repeated_count else {}

        train = np.flatnonzero(splits == "train")
        if self.standardise and len(train):
            inputs, notes["standardised"] = standardised(inputs, train)

        tasks = {
            (re.sub(r"[^\w.-]", "_", label)[:_MAX_NAME_LENGTH].lstrip(".") or "_"): rows[:, position].astype(np.int8)
            for label, position in positions.items()
        }
        if len(tasks) < len(labels):
            raise UserError("multilabel: two labels have one name but for odd letters; rename one")
        notes |= self._rare(tasks, splits)
        notes["features"] = [name for name in names if name not in positions]

        tables = {}
        for split in SPLITS:
            chosen = np.flatnonzero(splits == split)
            columns = {"id": pa.array(ids[chosen], pa.string()), "input": lists(inputs[chosen])}
            tables[split] = {
                "all": pa.table(
                    columns | {f"target.{name}": pa.array(values[chosen]) for name, values in tasks.items()}
                )
            }

        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=name, loss="bce", outputs=1, metrics=("auroc", "accuracy", "f1", "matthews"))
                for name in tasks
            ),
            inputs="shared",
            input_kind="vector",
            input_shape=(inputs.shape[1],),
        )
        return Prepared(suite, tables, notes=notes)

    def _rare(self, tasks: dict[str, np.ndarray], splits: np.ndarray) -> dict[str, Any]:
        """Remove the labels that cannot be used, and return a note of them."""
        unusable = {}
        for name, values in tasks.items():
            for split in SPLITS if self.rare != "keep" else ("train",):
                positive = values[splits == split].sum()
                if positive in (0, np.count_nonzero(splits == split)):
                    unusable[name] = f"has no {'negative' if positive else 'positive'} sample in {split}"
                    break

        if unusable and self.rare == "refuse":
            name, problem = next(iter(unusable.items()))
            raise UserError(f"multilabel: {len(unusable)} of {len(tasks)} labels cannot be used, the first: {name} "
                            f"{problem}; set `rare` to drop, or to keep what training has")  # fmt: skip
        if len(unusable) == len(tasks):
            raise UserError("multilabel: no label can be used; raise `validation`, or fetch the files again")

        for name in unusable:
            del tasks[name]
        return {"labels_left_out": unusable} if unusable else {}

    def _names(self) -> tuple[str, ...]:
        return (*(f"{self.set}-{part}.arff" for part in OFFICIAL_SPLITS), f"{self.set}.xml")

    def _file(self, source: Path, name: str) -> Path:
        for path in (source / name, source / f"{name}.gz"):
            if path.is_file():
                return path
        sets = sorted(path.name.partition("-train.arff")[0] for path in source.glob("*-train.arff*"))
        raise UserError(f"multilabel: {name} is missing in {source}; it has the sets {', '.join(sets) or '(none)'}")

    def _bytes(self, source: Path, name: str) -> bytes:
        return unpacked(f"multilabel: {name}", self._file(source, name))

    def _text(self, source: Path, name: str) -> str:
        return decoded(f"multilabel: {name}", self._bytes(source, name))[0]


def _problem(row: np.ndarray, names: list[str], labels: list[str]) -> str:
    """Return the reason that a row cannot be used, or "" if it can."""
    not_finite = np.flatnonzero(~np.isfinite(row))
    if len(not_finite):
        return f"has no finite number in {names[not_finite[0]]}"
    invalid_label = next((label for label in labels if label in names and row[names.index(label)] not in (0, 1)), None)
    return f"has neither 0 nor 1 in {invalid_label}" if invalid_label else ""
