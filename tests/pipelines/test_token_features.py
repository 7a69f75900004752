"""Features of tokens: computed once, the same in any blocks, stored as they are and read back padded to the longest."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
import torch
from checkpoints import WORDS, write_checkpoint

from mtlscale.config import MISSING_CLASS, SPLITS, Task, TaskSuite, UserError, named_files
from mtlscale.data import load_prepared
from mtlscale.data.format.manifest import SourceInfo
from mtlscale.data.format.sequences import RaggedSamples
from mtlscale.data.readers.random_access import open_reader
from mtlscale.data.readers.views import viewed
from mtlscale.encoders.text.pretrained_layers import PretrainedLayers
from pipelines._texts.token_features import TokenFeatures, standardised, with_token_features
from pipelines._writing.write import write_prepared
from pipelines.contract import Pipeline, PrepareContext, Prepared

pytest.importorskip("transformers")

LENGTH, ROWS = 9, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


def suite_of(folder: Path) -> TaskSuite:
    task = Task(name="en", loss="cross_entropy", outputs=3, metrics=("accuracy",), classes=("A", "B", "C"), per="token")
    told = {"sha256": named_files.tokenizer_hash(folder), "padding": 0, "separator": None}
    return TaskSuite(
        name="tagged",
        tasks=(task,),
        inputs="per_task",
        input_kind="tokens",
        input_shape=(LENGTH,),
        vocabulary_size=len(WORDS),
        extras={"tokenizer": told},
    )


def pieces() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(2, len(WORDS), (ROWS, LENGTH)).astype(np.int32)
    ids[np.arange(LENGTH) >= rng.integers(1, LENGTH + 1, ROWS)[:, None]] = 0
    tags = rng.integers(-1, 3, ids.shape).astype(np.int16)
    tags[ids == 0] = MISSING_CLASS
    tags[3] = MISSING_CLASS  # not one tag
    return ids, tags


def table() -> pa.Table:
    ids, tags = (pa.FixedSizeListArray.from_arrays(part.ravel(), LENGTH) for part in pieces())
    return pa.table({"id": [f"{row:02}" for row in range(ROWS)], "input": ids, "label": tags})


def test_features_are_those_of_the_model_alone_whatever_the_blocks(folder: Path) -> None:
    found, size = with_token_features(table(), suite_of(folder), folder, PrepareContext(rows_per_block=7))
    again, _ = with_token_features(table(), suite_of(folder), folder, PrepareContext(rows_per_block=ROWS))
    assert found.equals(again)
    encoder = PretrainedLayers(checkpoint=str(folder), hidden=(1,)).build(suite_of(folder)).double()
    ids, tags = pieces()
    for row in range(ROWS):
        kept = tags[row] != MISSING_CLASS
        stored = np.frombuffer(found["input"][row].as_py(), np.float16).reshape(-1, size)
        with torch.no_grad():
            alone = encoder.prepare(torch.from_numpy(ids[row : row + 1])).numpy()  # type: ignore[operator]
        assert np.array_equal(stored, alone[kept].astype(np.float16))
        packed = np.asarray(found["label"][row].as_py())
        assert packed[: kept.sum()].tolist() == tags[row][kept].tolist()
        assert (packed[kept.sum() :] == MISSING_CLASS).all()


def test_the_model_sees_no_place_behind_the_longest_sentence_of_a_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = TokenFeatures(suite_of(folder), PretrainedLayers(checkpoint=str(folder), hidden=(1,)), "label")
    prepare, widths = function._module.prepare, []

    def noted(ids: torch.Tensor) -> torch.Tensor:
        assert bool((ids[:, -1] != 0).any())
        widths.append(ids.shape[1])
        result: torch.Tensor = prepare(ids)
        return result

    monkeypatch.setattr(function._module, "prepare", noted)
    monkeypatch.setattr("pipelines._texts.token_features._AT_ONCE", 12)
    function(table())
    longest = ((pieces()[0] != 0) * np.arange(1, LENGTH + 1)).max(1)
    assert widths == sorted(widths) and len(set(widths)) > 2 and max(widths) == longest.max()


def test_features_have_mean_0_and_deviation_1_over_the_tokens_of_training(folder: Path) -> None:
    found, size = with_token_features(table(), suite_of(folder), folder, PrepareContext())
    train = np.arange(ROWS) % 2 == 0
    scaled = standardised(found, size, train)
    assert scaled.drop(["input"]).equals(found.drop(["input"]))
    before, after = ([np.frombuffer(row.as_py(), np.float16).reshape(-1, size).astype(float) for row in one["input"]]
                     for one in (found, scaled))  # fmt: skip
    its = np.concatenate([rows for rows, kept in zip(after, train, strict=True) if kept])
    assert np.abs(its.mean(0)).max() < 2e-3
    assert np.abs(its.std(0) - 1).max() < 2e-3
    own = np.concatenate([rows for rows, kept in zip(before, train, strict=True) if kept])
    for rows, wanted in zip(after, before, strict=True):  # validation and test by the same figures
        assert np.allclose(rows, (wanted - own.mean(0)) / own.std(0), atol=5e-3, rtol=2e-3)


class Tagged(Pipeline):
    """Nothing but a name."""

    name: ClassVar[str] = "tagged_features"


def written(folder: Path, out: Path) -> tuple[Path, pa.Table, int]:
    found, size = with_token_features(table(), suite_of(folder), folder, PrepareContext())
    rows = found.rename_columns(["id", "input", "target.en"])
    suite = TaskSuite(
        name="tagged", tasks=suite_of(folder).tasks, inputs="per_task", input_kind="vector", input_shape=(LENGTH, size)
    )
    parts = {"train": rows[:10], "val": rows[10:15], "test": rows[15:]}
    prepared = Prepared(suite, {split: {"en": parts[split]} for split in SPLITS}, target_shapes={"en": (LENGTH,)})
    write_prepared(out, Tagged(), SourceInfo(description="", fingerprint=""), prepared)
    return out, rows, size


@pytest.mark.parametrize("reader", ["device", "memory", "mapped"])
def test_what_is_read_back_is_padded_to_the_longest_of_a_batch(folder: Path, tmp_path: Path, reader: str) -> None:
    place, rows, size = written(folder, tmp_path)
    data = load_prepared(place)
    opened, _ = open_reader(data, reader, device=torch.device("cpu"), dtype=torch.float32)
    counts = [len(value.as_py()) // (2 * size) for value in rows["input"][:10]]
    index = torch.tensor([4, 3, 4, 7])
    samples = opened.take("train", "en", index)
    assert samples.inputs.shape == (4, max(counts[row] for row in index), size)
    for place_, row in enumerate(index.tolist()):
        wanted = np.frombuffer(rows["input"][row].as_py(), np.float16).reshape(-1, size)
        assert np.array_equal(samples.inputs[place_, : counts[row]].numpy(), wanted)
        assert not samples.inputs[place_, counts[row] :].any()
        assert samples.targets["en"][place_].tolist() == rows["target.en"][row].as_py()
    whole = opened.whole("train", "a test")["en"] if reader != "mapped" else data.splits["train"]["en"]
    assert isinstance(whole, RaggedSamples)
    assert whole.inputs.shape == (10, LENGTH, size)  # as labels are


def test_a_share_of_a_task_s_sentences_is_read(folder: Path, tmp_path: Path) -> None:
    place, _, _ = written(folder, tmp_path)
    data = viewed(load_prepared(place), None, None, {"en": 0.4})
    opened, _ = open_reader(data, "memory", device=torch.device("cpu"), dtype=torch.float32)
    assert opened.sizes("train") == {"en": 4} and opened.sizes("val") == {"en": 5}
    assert len(opened.take("train", "en", torch.arange(4)).inputs) == 4


def test_a_sequence_longer_than_the_suite_says_is_refused(folder: Path, tmp_path: Path) -> None:
    found, size = with_token_features(table(), suite_of(folder), folder, PrepareContext())
    rows = found.rename_columns(["id", "input", "target.en"])
    longest = max(len(value.as_py()) for value in rows["input"]) // (2 * size)
    suite = TaskSuite(name="tagged", tasks=suite_of(folder).tasks, inputs="per_task", input_kind="vector",
                      input_shape=(longest - 1, size))  # fmt: skip
    prepared = Prepared(suite, {split: {"en": rows} for split in SPLITS}, target_shapes={"en": (LENGTH,)})
    with pytest.raises(UserError, match=rf"has {2 * size * longest} bytes; it wants {2 * size} for each of at most"):
        write_prepared(tmp_path, Tagged(), SourceInfo(description="", fingerprint=""), prepared)
