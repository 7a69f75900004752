"""Tasks with a label for every token: losses and scores count what has one, for any workers, balancer and method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen.cases import NEEDED, SGD, TOKEN_LAYERS, WORD_CHAR, Case
from frozen.compute import in_memory, run_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import MISSING_CLASS, UserError, names
from mtlscale.data import Batch, Samples, Workers
from mtlscale.data.format.sequences import RaggedSamples, cut, lengths
from mtlscale.data.readers.random_access import DeviceReader
from mtlscale.report.formats.tag_page import sentences_page
from mtlscale.training import Trainer, build_model, finish
from mtlscale.training.batches import Batches
from mtlscale.training.losses import task_loss
from mtlscale.training.probes.features import features
from mtlscale.training.tagged_text import tagged

ALIKE = {**SGD, "checkpoint_seconds": 0, "epochs": 2}
PLAIN = {**WORD_CHAR, "dropout": 0.0}


def case(method: Any = "equal", **more: Any) -> Case:
    method = {"name": method, **NEEDED.get(method, {})} if isinstance(method, str) else method
    return Case("tags", method, {**ALIKE, **more.pop("training", {})}, **{"encoder": PLAIN, **more})


def vectors(method: Any, **more: Any) -> Case:
    return case(method, encoder=TOKEN_LAYERS, options={"form": "vectors", "rows": 8}, **more)


def end_of(one: Case, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Tensor]:
    """Parameters, losses and scores at the end."""
    trainer = Trainer(run_of(one), in_memory(one), workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    scores = [list(found.values()) for found in record.metrics["test"].values()]
    items = record.items.means if record.items else []
    return {
        **trainer.model.state_dict(),
        "losses": torch.tensor(losses, dtype=torch.float64),
        "scores": torch.tensor(scores, dtype=torch.float64),
        "items": torch.tensor(items, dtype=torch.float64),
    }


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        torch.testing.assert_close(value, right[key], rtol=1e-8, atol=1e-10, msg=key)


# -- one step ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 7), st.integers(2, 4))
@settings(max_examples=30)
def test_the_loss_is_a_sum_over_tokens_with_a_label(seed: int, rows: int, length: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, classes, length, generator=generator, dtype=torch.float64)
    target = torch.randint(MISSING_CLASS, classes, (rows, length), generator=generator)
    total, count = task_loss("cross_entropy", scores, target)
    by_hand, counted = 0.0, 0
    for row in range(rows):
        for place in range(length):
            if (tag := int(target[row, place])) != MISSING_CLASS:
                chances = scores[row, :, place].exp()
                by_hand -= float((chances[tag] / chances.sum()).log())
                counted += 1
    assert float(total) == pytest.approx(by_hand, abs=1e-9)
    assert int(count) == counted


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=40)
def test_what_is_taken_ends_with_its_longest_sentence_and_labels_stay_with_their_tokens(
    sizes: list[int], words: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(1, 9, (len(sizes), 8, *([3] if words else [])), generator=generator)
    there = torch.arange(8) < torch.tensor(sizes)[:, None]
    inputs[~there] = 0
    ids = inputs[..., 0] if words else inputs
    found = cut(Samples(inputs, {"a": torch.where(there, ids, MISSING_CLASS)}))
    longest = max(1, max(sizes))
    assert found.inputs.shape[1] == found.targets["a"].shape[1] == longest
    assert lengths(found.inputs).tolist() == sizes
    shown = found.inputs[..., 0] if words else found.inputs
    assert torch.equal(torch.where(shown == 0, MISSING_CLASS, shown), found.targets["a"])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
@settings(max_examples=30)
def test_ragged_sequences_are_padded_to_the_longest_of_what_is_taken(sizes: list[int], data: st.DataObject) -> None:
    content = torch.arange(1.0, 1 + 2 * sum(sizes)).reshape(-1, 2)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    index = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=7))
    samples = RaggedSamples(content, offsets, {"a": torch.zeros(len(sizes), 5)}, None)
    found = samples.take(torch.tensor(index, dtype=torch.int64)).inputs
    assert found.shape == (len(index), max([1, *(sizes[row] for row in index)]), 2)
    for place, row in enumerate(index):
        assert torch.equal(found[place, : sizes[row]], content[offsets[row] : offsets[row + 1]])
        assert not found[place, sizes[row] :].any()


def model_of(one: Case) -> tuple[MultiTaskModule, Any]:
    data = in_memory(one)
    return build_model(run_of(one), data.suite)[0], data


@pytest.mark.parametrize("chars", ["cnn", "bilstm"])
@pytest.mark.parametrize("form", ["words", "pieces", "vectors"])
def test_a_sentence_gets_the_same_tags_alone_and_beside_longer_ones(form: str, chars: str) -> None:
    encoder = {
        "words": {**PLAIN, "chars": chars},
        "pieces": {"name": "pretrained_layers", "hidden": [4]},
        "vectors": TOKEN_LAYERS,
    }[form]
    model, data = model_of(case(encoder=encoder, options={"form": form, **({"words": 16} if form == "pieces" else {})}))
    model = model.eval().double()
    inputs = data.splits["train"]["a"].inputs
    inputs = inputs.double() if form == "vectors" else inputs
    sizes = (inputs.abs().sum(2) > 0).sum(1).tolist() if form == "vectors" else lengths(inputs).tolist()
    together = model(Batch("a", Samples(inputs, {"a": torch.zeros(0)}), len(inputs))).predictions["a"]
    assert together.shape == (len(inputs), 5, inputs.shape[1])
    for row, size in enumerate(sizes):
        alone = Samples(inputs[row : row + 1, :size], {"a": torch.zeros(0)})
        found = model(Batch("a", alone, 1)).predictions["a"]
        torch.testing.assert_close(found[0], together[row, :, :size], rtol=1e-10, atol=1e-12)


def test_scores_do_not_depend_on_the_batches() -> None:
    found = [end_of(case(training={"epochs": 1, "eval_batch_size": size})) for size in (1, 3, 100)]
    for other in found[1:]:
        torch.testing.assert_close(other["scores"], found[0]["scores"], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(other["items"], found[0]["items"], rtol=1e-5, atol=1e-4)


# -- whole runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", sorted(names("balancers")))
def test_every_balancer_trains_on_tokens(name: str, shared: bool) -> None:
    options = {"form": "vectors", "shared": shared, "rows": 8, "tasks": 3}
    encoder = {**TOKEN_LAYERS, "hidden": [3]}
    found = end_of(replace(case(name, training={"epochs": 1}, encoder=encoder), options=options))
    assert bool(found["losses"].isfinite().all())
    assert bool(found["scores"].isfinite().all())


def test_methods_that_look_at_all_features_see_a_row_for_each_token() -> None:
    one = vectors({"name": "svd_reweighting", "inputs": "features"})
    assert bool(end_of(one)["scores"].isfinite().all())
    data = in_memory(one)
    whole = Batches(
        DeviceReader(data.splits, torch.device("cpu"), torch.float64), data.suite, device=torch.device("cpu"),
        dtype=torch.float64, workers=Workers(), eval_batch_size=3,
    )  # fmt: skip
    model = build_model(run_of(one), data.suite)[0]
    found = features(model, data.suite, whole, "a test")
    for task in ("a", "b"):
        samples = data.splits["train"][task]
        there = samples.targets[task] != MISSING_CLASS
        wanted = model(Batch(task, Samples(samples.inputs.double(), {task: torch.zeros(0)}), len(samples)))
        assert wanted.representation is not None
        kept = found[task].targets[task] != MISSING_CLASS
        torch.testing.assert_close(found[task].inputs[kept], wanted.representation[there.flatten()])
        assert torch.equal(found[task].targets[task][kept], samples.targets[task][there].long())


METHODS: dict[str, dict[str, Any]] = {
    "stl": {},
    "hps": {},
    "branched": {"points": [1, 3]},
    "conal": {"search_epochs": 1},
    "dsmtl_al": {"search_epochs": 1},
    "ltb": {"search_epochs": 2},
    "mmoe": {"experts": 2, "top": 3},
    "cross_stitch": {"top": 3},
    "ple": {"top": 3},
    "constant": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_architectures_of_vectors_and_of_stages_train_on_tokens(name: str) -> None:
    found = end_of(vectors({"architecture": {"name": name, **METHODS[name]}, "balancer": "equal"}))
    assert bool(found["scores"].isfinite().all())


# -- the floor -----------------------------------------------------------------------------------------------------


def test_the_floor_gives_each_word_its_most_frequent_tag() -> None:
    one = case({"architecture": "frequent_tag"})
    trainer = Trainer(run_of(one), in_memory(one))
    finish(trainer)
    data = in_memory(one).splits
    for task in ("a", "b"):
        train, test = data["train"][task], data["test"][task]
        counts = torch.zeros(30, 5)
        for word, tag in zip(
            train.inputs[..., 0].flatten().tolist(), train.targets[task].flatten().tolist(), strict=True
        ):
            if tag != MISSING_CLASS:
                counts[word, tag] += 1
        usual = counts.sum(0)
        found = trainer.model(Batch(task, test, len(test))).predictions[task].argmax(1)
        for row, place in (test.targets[task] != MISSING_CLASS).nonzero().tolist():
            of_word = counts[int(test.inputs[row, place, 0])]
            best = of_word + 1e-3 * usual / usual.sum()
            assert int(found[row, place]) == int(best.argmax())


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "encoder", "message"),
    [
        ("equal", {"name": "lstm"}, "lstm gives features of whole samples, the tasks of tags are per token; choose"),
        ("amtrl", PLAIN, "amtrl looks at features of whole samples"),
        ({"architecture": "linear"}, PLAIN, "linear looks at whole samples"),
        ({"architecture": "mtan"}, PLAIN, "mtan works between the stages"),
    ],
)
def test_what_knows_nothing_of_tokens_is_refused(method: Any, encoder: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        model_of(case(method, encoder=encoder))


def test_encoders_of_tokens_refuse_whole_samples() -> None:
    with pytest.raises(UserError, match="word_char gives features of tokens, task a of text is of whole samples"):
        model_of(Case("text", {"name": "equal"}, ALIKE, encoder=PLAIN))
    with pytest.raises(UserError, match="frequent_tag counts the tags of words"):
        model_of(vectors({"architecture": "frequent_tag"}))


def test_sentences_are_shown_with_their_words_and_tags() -> None:
    one = in_memory(case("equal", training={"epochs": 1}))
    words = [f"w{code}" for code in range(30)]
    data = replace(one, suite=replace(one.suite, extras={**one.suite.extras, "vocabulary": words}))
    trainer = Trainer(run_of(case("equal", training={"epochs": 1})), data)
    finish(trainer)
    found = tagged(trainer.session, data.suite, trainer.batches, count=3)
    assert list(found) == ["a", "b"]
    samples = data.splits["test"]["a"]
    known = data.suite.tasks[0].classes
    there = samples.targets["a"][-1] != MISSING_CLASS
    last = found["a"][-1]
    assert list(last.truth) == [known[code] for code in samples.targets["a"][-1][there].tolist()]
    assert list(last.words) == [words[code] for code in samples.inputs[-1, :, 0][there].tolist()]
    page = sentences_page("<tags>", found)
    assert "&lt;tags&gt;" in page
    assert page.count("class=wrong") == sum(
        guess != truth
        for rows in found.values()
        for row in rows
        for guess, truth in zip(row.guess, row.truth, strict=True)
    )
