"""Files written in the layout of GLUE's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids
from mtlscale.execution.preparing.prepare import prepare
from pipelines.text.glue import LAYOUTS

HEADERS = {
    "CoLA": "",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "SST-2": "sentence\tlabel",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
}
COUNTS = {"train": 60, "dev": 20}


def label(task: str, number: int) -> str:
    classes = LAYOUTS[task].classes
    return classes[number % len(classes)] if classes else f"{number % 26 / 5:.3f}"


def line(task: str, part: str, number: int) -> str:
    """A quote that is never closed is in every third."""
    quote = "" if number % 3 else '"'
    one, two = f"{quote}One {part} {number}", f"two's {number}"
    said = label(task, number)
    return {
        "CoLA": f"gj04\t{said}\t{'' if number % 2 else '*'}\t{one}",
        "MRPC": f"{said}\t1\t2\t{one}\t{two}",
        "QNLI": f"{number}\t{one}\t{two}\t{said}",
        "RTE": f"{number}\t{one}\t{two}\t{said}",
        "SST-2": f"{one} \t{said}",
        "STS-B": f"{number}\tmain\tfile\t2012\t1\tnone\tnone\t{one}\t{two}\t{said}",
        "QQP": f"{number}\t1\t2\t{one}\t{two}\t{said}",
        "MNLI": f"{number}\tp\tp\tfiction\tx\tx\tx\tx\t{one}\t{two}\tneutral\t{said}",
    }[task]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "glue_data"
    for task, header in HEADERS.items():
        (root / task).mkdir(parents=True)
        for part, count in COUNTS.items():
            name = "dev_matched" if (task, part) == ("MNLI", "dev") else part
            lines = [header] * bool(header) + [line(task, part, number) for number in range(count)]
            (root / task / f"{name}.tsv").write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
        (root / task / "test.tsv").write_text("index\tsentence\n0\tno label here\n")
    return root


@pytest.mark.parametrize("tasks", [["CoLA", "MRPC", "QNLI", "RTE", "SST-2"], ["STS-B", "QQP", "MNLI"]])
def test_texts_labels_and_parts(tasks: list[str], source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("glue", {"tasks": tasks}, source.parent, tmp_path / "home"))
    words = data.suite.extras["vocabulary"]
    assert [task.name for task in data.suite.tasks] == tasks
    for task in data.suite.tasks:
        seen = 0
        for split in SPLITS:
            samples = data.splits[split][task.name]
            found = zip(
                read_ids(data.folder, split, task.name), samples.inputs.tolist(),
                samples.targets[task.name].tolist(), strict=True,
            )  # fmt: skip
            for id, tokens, target in found:
                part, number = id.split("/")[1], int(id.split("/")[2]) - 1 - bool(HEADERS[task.name])
                assert (split == "test") == (part == "dev")
                assert (task.classes[target] if task.classes else f"{target:.3f}") == label(task.name, number)
                said = [words[token] for token in tokens if token]
                assert said[0] == "one" and said[1] in (part, "<unk>")
                assert ("<sep>" in said) == bool(LAYOUTS[task.name].second)
                seen += 1
        assert seen == sum(COUNTS.values()) and data.manifest.counts[task.name]["test"] == COUNTS["dev"]


def test_each_has_its_own_metric(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("glue", {"tasks": list(LAYOUTS)}, source, tmp_path / "home"))
    assert {task.name: task.metrics[0] for task in data.suite.tasks} == {
        "CoLA": "matthews", "MRPC": "binary_f1", "QNLI": "accuracy", "RTE": "accuracy", "SST-2": "accuracy",
        "STS-B": "pearson", "QQP": "binary_f1", "MNLI": "accuracy",
    }  # fmt: skip


def test_the_same_words_are_not_in_training_and_validation(source: Path, tmp_path: Path) -> None:
    path = source / "SST-2" / "train.tsv"
    path.write_text(path.read_text() + "".join(f"{line('SST-2', 'train', n).upper()}\n" for n in range(60)))
    folder = prepare("glue", {"tasks": ["SST-2"]}, source, tmp_path / "home")
    where = {id: split for split in SPLITS for id in read_ids(folder, split, "SST-2")}
    for number in range(2, 62):
        assert where[f"SST-2/train/{number:09d}"] == where[f"SST-2/train/{number + 60:09d}"]


def test_known_by_the_files_it_reads(source: Path, tmp_path: Path) -> None:
    folder = prepare("glue", {"tasks": ["RTE"]}, source, tmp_path / "home")
    (source / "RTE" / "test.tsv").unlink()
    (source / "QNLI" / "dev.tsv").unlink()
    assert prepare("glue", {"tasks": ["RTE"]}, source, tmp_path / "home") == folder
    with pytest.raises(UserError, match=r"^glue: QNLI/dev\.tsv is missing in"):
        prepare("glue", {}, source, tmp_path / "home")


@pytest.mark.parametrize(
    ("file", "more", "said"),
    [
        ("RTE/train.tsv", "9\ta\tb", r"1 row .* first: RTE/train\.tsv line 62 has 3 fields, not 4; mend or pass"),
        ("RTE/dev.tsv", "9\ta\tb\tmaybe", r"RTE/dev\.tsv line 22 has the label 'maybe', which RTE has not"),
        ("STS-B/dev.tsv", "\t".join("x" * 10), r"STS-B/dev\.tsv line 22 has the label 'x', which STS-B has not"),
    ],
)
def test_rows_that_cannot_be_used(file: str, more: str, said: str, source: Path, tmp_path: Path) -> None:
    (source / file).write_text((source / file).read_text() + f"{more}\n")
    options = {"tasks": [file.partition("/")[0]]}
    with pytest.raises(UserError, match=said):
        prepare("glue", options, source, tmp_path / "home")
    data = load_prepared(prepare("glue", options, source, tmp_path / "home", skip_bad=True))
    assert data.manifest.notes["skipped"]["count"] == 1


def test_other_files_get_one_line(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="glue: tasks has 'SST2'; did you mean SST-2"):
        prepare("glue", {"tasks": ["SST2"]}, source, tmp_path)
    (source / "RTE" / "dev.tsv").write_text("index\ttext\n0\tx\n")
    with pytest.raises(
        UserError, match=r"glue: RTE/dev\.tsv has no column 'sentence1'; it has index, text; fetch the of"
    ):
        prepare("glue", {}, source, tmp_path)
