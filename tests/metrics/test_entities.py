"""Entities in sequences of tags, beside `seqeval`."""

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from sklearn.metrics import f1_score as macro_f1

from mtlscale.config import MISSING_CLASS, Task, UserError
from mtlscale.metrics import check_task, item_sums, read_sums, task_metrics
from mtlscale.metrics.shipped.entities import entity_counts

NER = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
OTHERS = ("O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "E-LOC", "I-B-LOC", "PER", ".")
POS = ("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ")


def tagging(classes: tuple[str, ...]) -> Task:
    metrics = ("entity_f1", "accuracy", "f1")
    return Task(name="en", loss="cross_entropy", outputs=len(classes), metrics=metrics, classes=classes, per="token")


def sequences(seed: int, classes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random tags and guesses that are often right, some places not counted: [count, 12]."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, (count, 12))
    guess = np.where(rng.random(truth.shape) < 0.3, rng.integers(0, classes, truth.shape), truth)
    truth[rng.random(truth.shape) < 0.2] = MISSING_CLASS
    truth[np.arange(12)[None] >= rng.integers(0, 13, count)[:, None]] = MISSING_CLASS
    return truth, guess


def scores(guess: np.ndarray, classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.from_numpy(guess), classes).movedim(-1, 1).float()


def named(codes: np.ndarray, counted: np.ndarray, classes: tuple[str, ...]) -> list[list[str]]:
    return [[classes[code] for code in row[kept]] for row, kept in zip(codes, counted, strict=True)]


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag:UserWarning")
@pytest.mark.parametrize("classes", [NER, OTHERS, POS])
def test_entity_f1_is_that_of_seqeval_on_random_sequences(classes: tuple[str, ...]) -> None:
    truth, guess = sequences(len(classes), len(classes), 1000)
    metric = task_metrics(tagging(classes))
    for part in np.array_split(np.arange(1000), 7):
        longest = 1 + int((truth[part] >= 0).nonzero()[1].max(initial=0))  # of each batch its own
        metric.update(scores(guess[part, :longest], len(classes)), torch.from_numpy(truth[part, :longest]))
    found = metric.compute()
    counted = truth >= 0
    wanted = f1_score(named(truth, counted, classes), named(guess, counted, classes))
    assert found["entity_f1"] == pytest.approx(100 * wanted, abs=1e-9)
    assert found["accuracy"] == pytest.approx(100 * (truth == guess)[counted].mean())
    assert found["f1"] == pytest.approx(100 * macro_f1(truth[counted], guess[counted], average="macro"), abs=1e-3)


def test_every_sequence_alone_counts_as_in_seqeval() -> None:
    truth, guess = sequences(1, len(NER), 200)
    counts = entity_counts(NER, scores(guess, len(NER)), torch.from_numpy(truth))
    counted = truth >= 0
    true, guessed = named(truth, counted, NER), named(guess, counted, NER)
    for row in range(200):
        right, predicted, there = counts[row].tolist()
        found = 2 * right / (predicted + there) if predicted + there else 0.0
        assert found == pytest.approx(f1_score([true[row]], [guessed[row]], zero_division=0))
    sums = item_sums(tagging(NER), scores(guess, len(NER)), torch.from_numpy(truth)).sum(0)
    assert float(read_sums(tagging(NER), sums)) == pytest.approx(100 * f1_score(true, guessed))


def test_a_sequence_that_starts_inside_an_entity_is_read_as_its_beginning() -> None:
    inside, begun = torch.tensor([[2, 2, 0]]), scores(np.array([[1, 2, 0]]), len(NER))
    assert entity_counts(NER, begun, inside).tolist() == [[1, 1, 1]]


def test_no_entity_anywhere_is_zero_and_no_label_is_nan() -> None:
    metric = task_metrics(tagging(NER))
    metric.update(scores(np.zeros((2, 3), int), len(NER)), torch.zeros(2, 3, dtype=torch.int64))
    assert metric.compute()["entity_f1"] == 0.0
    metric.reset()
    metric.update(scores(np.zeros((2, 3), int), len(NER)), torch.full((2, 3), MISSING_CLASS))
    assert np.isnan(metric.compute()["entity_f1"])


def test_entities_are_of_tokens_whose_tags_have_names() -> None:
    with pytest.raises(UserError, match="is defined for tags of tokens that have names"):
        check_task(Task(name="a", loss="cross_entropy", outputs=2, metrics=("entity_f1",), classes=("O", "B-X")))
