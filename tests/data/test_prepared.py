import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from mtlscale.config import MISSING_CLASS, SPLITS, Task, TaskSuite, UserError
from mtlscale.data.readers.prepared import MANIFEST, SourceInfo, load_prepared, read_ids, read_manifest
from pipelines import Pipeline, Prepared, write_prepared
from pipelines._writing.write import VOCABULARY

WORDS = ["<pad>", "<unk>", "the", "a", "is", "it", "of", "to"]
TASKS = (
    Task(name="kind", loss="cross_entropy", outputs=3, metrics=("accuracy",), classes=("x", "y", "z")),
    Task(name="size", loss="mse", outputs=1, metrics=("mse",)),
    Task(name="mask", loss="cross_entropy", outputs=2, metrics=("accuracy",)),
)
SUITE = TaskSuite(
    name="toy", tasks=TASKS, inputs="shared", input_kind="tokens", input_shape=(2, 3), vocabulary_size=len(WORDS)
)


class Toy(Pipeline):
    """A data set of this test."""

    name = "toy"


def fixed(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values.ravel(), values[0].size)


def table(split: str, rows: int) -> pa.Table:
    """Rows in reverse order of their ids."""
    number = np.arange(rows)[::-1]
    return pa.table(
        {
            "id": [f"{split}{n:03d}" for n in number],
            "input": fixed((number[:, None, None] * np.ones((2, 3))).astype(np.int32)),
            "target.kind": np.where(number == 1, MISSING_CLASS, number % 3).astype(np.int8),
            "target.size": np.where(number == 2, np.nan, number / 2).astype(np.float32),
            "target.mask": fixed(np.stack([number % 2] * 4, axis=1).astype(np.uint8)),
        }
    )


def write(folder: Path, **changes: pa.Table) -> Path:
    tables = {split: {"all": changes.get(split, table(split, 7))} for split in SPLITS}
    folder.mkdir()
    write_prepared(
        folder,
        Toy(),
        SourceInfo(description="rows of this test", fingerprint="0"),
        Prepared(SUITE, tables, target_shapes={"mask": (2, 2)}, vocabulary=WORDS),
    )
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "toy")


def test_what_was_written_is_read_in_the_order_of_ids(folder: Path) -> None:
    data = load_prepared(folder)
    samples = data.splits["train"]["all"]
    assert read_ids(folder, "train", "all") == [f"train{n:03d}" for n in range(7)]
    assert samples.inputs.dtype == torch.int32
    assert torch.equal(samples.inputs, torch.arange(7, dtype=torch.int32)[:, None, None].expand(7, 2, 3))
    assert samples.targets["kind"].tolist() == [0, MISSING_CLASS, 2, 0, 1, 2, 0]
    assert samples.targets["kind"].dtype == torch.int64
    assert samples.targets["size"].dtype == torch.float32
    assert samples.targets["size"].isnan().nonzero().tolist() == [[2]]
    assert samples.targets["mask"].shape == (7, 2, 2)
    assert data.suite.extras["vocabulary"] == WORDS
    assert samples.take(torch.tensor([3, 3])).targets["size"].tolist() == [1.5, 1.5]


def test_the_manifest_counts_labels_not_rows(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert manifest.suite == SUITE
    assert manifest.counts["kind"] == dict.fromkeys(SPLITS, 6) == manifest.counts["size"]
    assert manifest.class_counts["kind"]["test"] == {"x": 3, "y": 1, "z": 2}
    assert "size" not in manifest.class_counts


def test_only_the_wanted_splits_are_read(folder: Path) -> None:
    assert list(load_prepared(folder, ["val"]).splits) == ["val"]


def test_content_decides_the_fingerprint(tmp_path: Path, folder: Path) -> None:
    same = write(tmp_path / "same", train=table("train", 7).take([3, 2, 6, 5, 1, 0, 4]))
    other = write(tmp_path / "other", train=table("train", 8))
    assert (same / MANIFEST).read_bytes() == (folder / MANIFEST).read_bytes()
    assert read_manifest(other).fingerprint != read_manifest(folder).fingerprint


def test_a_sample_in_two_splits_is_a_bug_of_the_pipeline(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train000 is in train and in test"):
        write(tmp_path / "leak", test=table("train", 3))


def test_an_id_twice_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two samples named val00"):
        write(tmp_path / "twice", val=pa.concat_tables([table("val", 3), table("val", 3)]))


def test_an_empty_class_or_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="class y of task kind is empty"):
        write(tmp_path / "class", train=table("train", 2))
    with pytest.raises(UserError, match="task kind has no sample in val"):
        write(tmp_path / "split", val=table("val", 3).slice(0, 0))


def damage_missing(folder: Path) -> None:
    (folder / "test" / "all.parquet").unlink()


def damage_cut(folder: Path) -> None:
    path = folder / "test" / "all.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def damage_vocabulary(folder: Path) -> None:
    path = folder / VOCABULARY
    path.write_text(path.read_text().replace("a\n", "\n\n"))  # as many bytes, one line more


def damage_format(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "format": 99}))


def damage_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("{")


def damage_no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_missing, "test/all.parquet is missing; delete"),
        (damage_cut, "test/all.parquet has .* bytes instead of"),
        (damage_vocabulary, "does not fit the manifest: 9 words instead of 8"),
        (damage_format, "format 99"),
        (damage_manifest, "cannot be read"),
        (damage_no_manifest, "no prepared data set"),
    ],
)
def test_damage_is_named_with_its_mend(folder: Path, damage: object, message: str) -> None:
    damage(folder)  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        load_prepared(folder)


def test_streams_without_labels_and_weights_of_samples_come_back(tmp_path: Path) -> None:
    kinds = (Task(name="left", loss="mse", outputs=1, metrics=("mse",)),)
    suite = TaskSuite(
        name="toy",
        tasks=kinds,
        inputs="per_task",
        input_kind="vector",
        input_shape=(2,),
        unlabelled=("extra",),
        weighted=True,
    )
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    columns = {"id": list("abcd"), "input": fixed(rows), "weight": np.array([1, 0, 2, 3], dtype=np.float32)}
    labelled = {**columns, "target.left": rows[:, 0]}
    tables = {
        split: {
            "left": pa.table({**labelled, "id": [f"{split}{id}" for id in "abcd"]}),
            "extra": pa.table({**columns, "id": [f"{split}x{id}" for id in "abcd"]}),
        }
        for split in SPLITS
    }
    (tmp_path / "out").mkdir()
    info = SourceInfo(description="rows of this test", fingerprint="0")
    write_prepared(tmp_path / "out", Toy(), info, Prepared(suite, tables))
    data = load_prepared(tmp_path / "out")
    assert data.suite.streams == {"left": ("left",), "extra": ()}
    extra = data.splits["train"]["extra"]
    assert not extra.targets and torch.equal(extra.inputs, torch.from_numpy(rows))
    assert data.splits["val"]["left"].weights is not None
    assert data.splits["val"]["left"].weights.tolist() == [1, 0, 2, 3]
    assert data.manifest.counts == {"left": dict.fromkeys(SPLITS, 4)}
