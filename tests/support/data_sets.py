"""One entry for each data set that ships, or each layout: `tests/pipelines/test_conformance.py` asks them all."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fake_sets import (
    FakeSet,
    Rng,
    Sample,
    classes,
    each,
    grey,
    idx,
    lines,
    numbers,
    picture_of,
    sentence,
    vectors,
)
from image_sets import picture
from PIL import Image

from pipelines.image.celeba import NINE
from pipelines.image.chestxray14 import FINDINGS, NO_FINDING
from pipelines.image.cifar10 import Cifar10
from pipelines.image.taskonomy import BUILDINGS
from pipelines.text.amazon import PRODUCTS
from pipelines.text.newsgroups import LABELS
from pipelines.text.sentences import SETS
from pipelines.vectors import adult, census_income, parkinsons


@dataclass(frozen=True)
class Entry:
    """A data set as it is asked for, and what is expected of it.

    Attributes:
        counts: Rows of train, val and test, in all streams.
        files: The schema of its files; None if it has none.
        options: The options that it is prepared with.
        redraw: Options that draw other splits of the same rows; empty if the files say all splits.
        needed: Files without which it is refused, and what the line says then.
        packed: The name of an archive in which the same files are the same set.
        damaged: A picture or line file of one sample that is spoilt: it is named, and can be skipped.
        through_ray: Whether its rows are written by many tasks.
    """

    counts: tuple[int, int, int]
    files: FakeSet | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    redraw: Mapping[str, Any] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)
    packed: str = ""
    damaged: str = ""
    through_ray: bool = False

    def write(self, folder: Path) -> Path:
        """Write its files."""
        assert self.files is not None
        return self.files.write(folder)


def named(*paths: str) -> dict[str, str]:
    """Files that are named where they are missing."""
    return {path: path.rpartition("/")[2].partition(".")[0] for path in paths}


DATA_SETS: dict[str, Entry] = {}  # name of the set, or name and layout


# -- images ------------------------------------------------------------------------------------------------------------


def pixels(rng: Rng, samples: list[Sample]) -> np.ndarray:
    """[N, 32, 32, 3]"""
    return np.stack([picture(rng, 32, 32) for _ in samples])


def cifar_rows(*labels: str, **where: Any) -> Any:
    """Records of CIFAR's binary form: the labels, then red before green before blue."""

    def content(rng: Rng, samples: list[Sample]) -> bytes:
        chosen = [sample for sample in samples if all(sample[name] == value for name, value in where.items())]
        heads = np.array([[sample[label] for label in labels] for sample in chosen], np.uint8)
        return np.concatenate([heads, pixels(rng, chosen).transpose(0, 3, 1, 2).reshape(len(chosen), -1)], 1).tobytes()

    return content


def attributes(rng: Rng, samples: list[Sample]) -> str:
    rows = [f"{sample['n']:06d}.jpg {' '.join(map(str, rng.choice([-1, 1], len(NINE))))}" for sample in samples]
    return "\n".join([str(len(rows)), " ".join(NINE), *rows]) + "\n"


DATA_SETS["celeba"] = Entry(
    (20, 20, 20),
    FakeSet(
        each(n=range(1, 61), part=lambda sample: sample["n"] % 3),
        {
            "img_align_celeba/{n:06d}.jpg": picture_of(55, 44),
            "list_attr_celeba.txt": attributes,
            "list_eval_partition.txt": lines("{n:06d}.jpg {part}"),
        },
    ),
    {"size": 16},
    needed=named("list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba/000002.jpg"),
    packed="celeba.zip",
    damaged="img_align_celeba/000004.jpg",
    through_ray=True,
)


def findings(sample: Sample) -> str:
    number = 2 * sample["patient"] + sample["visit"]
    named = {FINDINGS[number % 14], FINDINGS[(number * 5 + 3) % 14]} if number % 4 else set()
    return "|".join(sorted(named)) or NO_FINDING


DATA_SETS["chestxray14"] = Entry(
    (94, 2, 24),
    FakeSet(
        each(
            patient=range(1, 61),
            visit=range(2),
            name=lambda sample: f"{sample['patient']:08d}_{sample['visit']:03d}.png",
            part=lambda sample: "test" if sample["patient"] > 48 else "train_val",
            at=lambda sample: 1 + sample["i"] % 3,
        ),
        {
            "images_{at:03d}/images/{name}": grey(40, 36),
            "Data_Entry_2017.csv": lines(
                lambda sample: f"{sample['name']},{findings(sample)},0,{sample['patient']},58,M,PA,2682,2749,0.1,0.1,",
                "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
                "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],",
            ),
            "train_val_list.txt": lines("{name}", part="train_val"),
            "test_list.txt": lines("{name}", part="test"),
        },
    ),
    {"size": 16},
    needed=named("Data_Entry_2017.csv", "train_val_list.txt", "test_list.txt", "images_001/images/00000001_000.png"),
    damaged="images_002/images/00000001_001.png",
)
DATA_SETS["cifar10"] = Entry(
    (70, 30, 20),
    FakeSet(
        each(batch=[*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], n=range(20), label=lambda s: s["n"] % 10),
        {
            f"cifar-10-batches-bin/{batch}.bin": cifar_rows("label", batch=batch)
            for batch in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
        },
    ),
    {"validation": 0.3},
    {"split": 1},
    needed=named("cifar-10-batches-bin/data_batch_3.bin", "cifar-10-batches-bin/test_batch.bin"),
    packed="cifar-10-binary.tar.gz",
)
DATA_SETS["cifar10, folders of classes"] = Entry(
    (70, 30, 20),
    FakeSet(
        [*each(part=["train"], n=range(100), label=lambda s: Cifar10.classes[s["n"] % 10]),
         *each(part=["test"], n=range(20), label=lambda s: Cifar10.classes[s["n"] % 10])],
        {"{part}/{label}/{n:04d}.png": picture_of(32, 32)},
    ),
    {"validation": 0.3},
    {"split": 1},
    packed="pictures.zip",
)  # fmt: skip
DATA_SETS["cifar100"] = Entry(
    (188, 12, 100),
    FakeSet(
        [*each(part=["train"], n=range(200), fine=lambda s: s["n"] % 100, coarse=lambda s: s["n"] % 20),
         *each(part=["test"], n=range(100), fine=lambda s: s["n"] % 100, coarse=lambda s: s["n"] % 20)],
        {f"cifar-100-binary/{part}.bin": cifar_rows("coarse", "fine", part=part) for part in ("train", "test")},
    ),
    {"validation": 0.05},
    {"split": 1},
    needed=named("cifar-100-binary/test.bin"),
    packed="cifar-100-binary.tar.gz",
)  # fmt: skip
DATA_SETS["svhn"] = Entry(
    (36, 4, 12),
    FakeSet(
        [],
        {
            f"{part}_32x32.mat": lambda rng, _, count=count: {
                "X": np.moveaxis(pixels(rng, [{}] * count), 0, 3),
                "y": (1 + np.arange(count) % 10).astype(np.uint8)[:, None],
            }
            for part, count in (("train", 40), ("test", 12))
        },
    ),
    {},
    {"split": 1},
    needed=named("train_32x32.mat", "test_32x32.mat"),
)


def mnist_files(side: int = 28, **parts: int) -> dict[str, Any]:
    """Part -> number of its pictures, in MNIST's files."""
    files: dict[str, Any] = {}
    for part, count in parts.items():
        files[f"{part}-images-idx3-ubyte.gz"] = lambda rng, _, n=count: idx(pixels(rng, [{}] * n)[:, :side, :side, 0])
        files[f"{part}-labels-idx1-ubyte.gz"] = lambda rng, _, n=count: idx(np.arange(n) % 10)
    return files


DATA_SETS["mnist"] = Entry(
    (38, 2, 12), FakeSet([], mnist_files(train=40, t10k=12)), {"image_size": 16}, {"split": 1},
    needed=named("train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"),
)  # fmt: skip
DATA_SETS["cityscapes"] = Entry(
    (15, 3, 9),
    FakeSet(
        [*each(part=["train"], city=["aachen", "bochum"], n=range(9)),
         *each(part=["val"], city=["frankfurt"], n=range(9))],
        {
            "leftImg8bit/{part}/{city}/{city}_{n:06d}_000019_leftImg8bit.png": picture_of(64, 128),
            "gtFine/{part}/{city}/{city}_{n:06d}_000019_gtFine_labelIds.png": classes(range(34), 64, 128),
            "gtFine/{part}/{city}/{city}_{n:06d}_000019_gtFine_instanceIds.png": numbers(0, 34, 64, 128),
            "disparity/{part}/{city}/{city}_{n:06d}_000019_disparity.png": numbers(0, 20_000, 64, 128, gaps=(0, 1)),
        },
    ),
    {"size": [32, 64], "validation": 0.3},
    needed={
        "disparity/train/aachen/aachen_000003_000019_disparity.png": "_gtFine_labelIds.png has no depth beside it",
        "gtFine/val/frankfurt/frankfurt_000003_000019_gtFine_labelIds.png": "_disparity.png has no label beside it",
    },
    packed="cityscapes.zip",
    damaged="leftImg8bit/train/aachen/aachen_000004_000019_leftImg8bit.png",
    through_ray=True,
)  # fmt: skip
DATA_SETS["cityscapes, arrays"] = Entry(
    (10, 5, 4),
    FakeSet(
        [*each(part=["train"], n=range(15)), *each(part=["val"], n=range(4))],
        {
            "{part}/image/{n}.npy": lambda rng, _: picture(rng, 32, 64).astype(np.float64) / 255,
            "{part}/label/{n}.npy": lambda rng, _: rng.integers(-1, 7, (32, 64)).astype(np.float64),
            "{part}/depth/{n}.npy": lambda rng, _: rng.uniform(0.1, 0.4, (32, 64, 1)),
        },
    ),
    {"size": [32, 64], "validation": 0.3},
    needed=named("train/depth/3.npy"),
    damaged="val/image/2.npy",
)


def box(top: int, left: int, bottom: int, right: int) -> np.ndarray:
    mask = np.zeros((40, 60), np.uint8)
    mask[top:bottom, left:right] = 1
    return mask


HEAD, HAND = box(0, 0, 10, 10), box(10, 20, 20, 40)


def annotation(*objects: tuple[int, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """PASCAL-Part's annotation of people, 15, and others: the number of each one's class, and its parts."""
    fields = np.empty((1, len(objects)), [(name, object) for name in ("class", "class_ind", "mask", "parts")])
    for column, (number, masks) in enumerate(objects):
        parts = np.empty((1, len(masks)), [("part_name", object), ("mask", object)])
        for place, part in enumerate(masks.items()):
            parts[0, place] = part
        whole = np.maximum.reduce([box(0, 0, 0, 0), *masks.values()])
        fields[0, column] = ("person", number, whole, parts if masks else np.zeros((0, 0)))
    return {"anno": {"imname": "", "objects": fields}}


def people(_: Rng, sample: Sample) -> dict[str, Any]:
    """A person with a head and a hand, in two of three pictures; one without parts, and something else."""
    others: list[tuple[int, dict[str, np.ndarray]]] = [(15, {}), (12, {"tail": HEAD})]
    return annotation(*([(15, {"head": HEAD, "lhand": HAND})] if sample["n"] % 3 else []), *others)


def voc_or_context(sample: Sample) -> str:
    return "VOC12" if sample["n"] % 2 else "pascal-context"


def palette(rng: Rng, _: Sample) -> bytes:
    """VOC's classes as a picture of colours that mean nothing."""
    indexed, buffer = Image.new("P", (60, 40)), io.BytesIO()
    indexed.putdata(rng.choice([*range(21), 255], 40 * 60).tolist())
    indexed.putpalette(rng.integers(0, 256, 768).tolist())
    indexed.save(buffer, "PNG")
    return buffer.getvalue()


def context_labels(rng: Rng, _: Sample) -> dict[str, Any]:
    labels = np.kron(rng.integers(1, 460, (4, 6)), np.ones((10, 10), int)).astype(np.uint16)
    labels[:10, :10] = 360
    return {"LabelMap": labels}


DATA_SETS["pascal_context"] = Entry(
    (13, 5, 4),
    FakeSet(
        [*each(part=["train"], n=range(2, 20), id=lambda s: f"2008_{s['n']:06d}", kind=voc_or_context),
         *each(part=["val"], n=range(1, 5), id=lambda s: f"2010_{s['n']:06d}", kind=voc_or_context)],
        {
            "JPEGImages/{id}.jpg": picture_of(40, 60),
            "semseg/{kind}/{id}.png": palette,
            "human_parts/{id}.mat": people,
            "sal_distill/{id}.png": numbers(0, 256, 40, 60, kind=np.uint8),
            "normals_distill/{id}.png": vectors([(255, 127, 127), (127, 127, 0), (127, 127, 127)], 40, 60),
             "pascal-context/trainval/{id}.mat": context_labels,
            "ImageSets/Context/train.txt": lines("{id}", part="train"),
            "ImageSets/Context/val.txt": lines("{id}", part="val"),
        },
    ),
    {"size": [20, 30], "validation": 0.3},
    needed=named("ImageSets/Context/val.txt", "sal_distill/2008_000003.png", "human_parts/2010_000002.mat"),
    damaged="JPEGImages/2008_000003.jpg",
    through_ray=True,
)  # fmt: skip
DATA_SETS["taskonomy"] = Entry(
    (26, 22, 12),
    FakeSet(
        each(building=[*BUILDINGS, "wiconisco"], point=range(6), view=range(2)),
        {
            f"{{building}}/{domain}/point_{{point}}_view_{{view}}_domain_{domain}.png": content
            for domain, content in {
                "rgb": picture_of(64, 64),
                "segment_semantic": classes(range(18), 64, 64),
                "depth_zbuffer": numbers(300, 5000, 64, 64, gaps=(0, 65535)),
                "keypoints2d": numbers(0, 65536, 64, 64),
                "edge_texture": numbers(0, 65536, 64, 64),
                "normal": vectors([(255, 127, 127), (127, 0, 127), (127, 127, 127)], 64, 64),
                "edge_occlusion": numbers(0, 1, 64, 64),
            }.items()
        },
    ),
    {"size": [32, 32], "validation": 0.3},
    needed={"onaga/keypoints2d/point_3_view_1_domain_keypoints2d.png": "has no keypoints2d beside it"},
    damaged="onaga/rgb/point_3_view_1_domain_rgb.png",
    through_ray=True,
)
NYU = [*each(part=["train"], n=range(1, 25)), *each(part=["val"], n=range(25, 31))]
DATA_SETS["nyuv2"] = Entry(
    (19, 5, 6),
    FakeSet(
        NYU,
        {
            "nyuv2/{part}/image/{n:04d}.jpg": picture_of(48, 64),
            "nyuv2/{part}/label13/{n:04d}.png": classes(range(14), 48, 64),
            "nyuv2/{part}/label40/{n:04d}.png": classes([*range(40), 255], 48, 64),
            "nyuv2/{part}/depth/{n:04d}.png": classes(range(18, 255), 48, 64, 16),
        },
    ),
    {"size": [24, 32]},
    needed=named("nyuv2/train/depth/0003.png", "nyuv2/val/label13/0026.png"),
    packed="nyuv2_288x384.zip",
    damaged="nyuv2/train/image/0003.jpg",
    through_ray=True,
)
DATA_SETS["nyuv2, arrays"] = Entry(
    (19, 5, 6),
    FakeSet(
        NYU,
        {
            "{part}/image/{n}.npy": lambda rng, _: picture(rng, 48, 64).astype(np.float32) / 255,
            "{part}/label/{n}.npy": lambda rng, _: rng.integers(-1, 13, (48, 64)).astype(np.float32),
            "{part}/depth/{n}.npy": lambda rng, _: rng.uniform(1, 9, (48, 64, 1)).astype(np.float32),
            "{part}/normal/{n}.npy": lambda rng, _: rng.choice(np.eye(3, dtype=np.float32), (48, 64)),
        },
    ),
    {"size": [24, 32]},
    needed=named("train/normal/3.npy"),
    damaged="train/image/3.npy",
)
DATA_SETS["imagenet"] = Entry(
    (28, 8, 9),
    FakeSet(
        [*each(part=["train"], name=["n01440764", "n01443537", "n01484850"], n=range(12)),
         *each(part=["val"], name=["n01440764", "n01443537", "n01484850"], n=range(3))],
        {"{part}/{name}/{name}_{n}.jpg": picture_of(20, 30)},
    ),
    {"size": 16, "validation": 0.3},
    {"split": 1},
    packed="imagenet.zip",
    damaged="train/n01440764/n01440764_3.jpg",
)  # fmt: skip
DATA_SETS["image_folder"] = Entry(
    (38, 10, 12),
    FakeSet(
        each(n=range(60), kind=lambda s: ("cat", "dog", "owl")[s["n"] % 3], weight=lambda s: 40 + s["n"] % 7),
        {
            "all/{n:03d}.jpg": picture_of(20, 24),
            "labels.csv": lines("{n:03d}.jpg,{kind},{weight}", "photo,kind,weight"),
        },
    ),
    {"size": 16},
    {"split": 1},
    needed=named("all/007.jpg"),
    damaged="all/007.jpg",
)

# -- transfers between domains -----------------------------------------------------------------------------------------


def domains(*places: str, names: tuple[str, ...] = ("back_pack", "bike", "mug"), suffix: str = "jpg") -> FakeSet:
    samples = [sample for place, count in zip(places, (6, 4, 5, 3), strict=False)
               for sample in each(place=[place], label=names, n=range(1, count + 1))]  # fmt: skip
    return FakeSet(samples, {f"{{place}}/{{label}}/frame_{{n:04d}}.{suffix}": picture_of(42, 52)})


PIXELS = {"features": "images", "image_size": 16}
DATA_SETS["office31"] = Entry(
    (30, 3, 15), domains("amazon/images", "dslr/images", "webcam/images"), PIXELS, {"split": 1},
    packed="office31.zip", damaged="amazon/images/bike/frame_0002.jpg",
)  # fmt: skip
DATA_SETS["office_home"] = Entry(
    (24, 3, 9), domains("Art", "Clipart", "Product", "Real World"), PIXELS, {"split": 1},
    packed="OfficeHomeDataset.zip", damaged="Art/bike/frame_0002.jpg",
)  # fmt: skip
DATA_SETS["office_caltech10"] = Entry(
    (24, 3, 9), domains("amazon", "caltech", "dslr", "webcam", names=("bike", "laptop", "mug")), PIXELS, {"split": 1},
    packed="office_caltech10.zip", damaged="amazon/bike/frame_0002.jpg",
)  # fmt: skip
DATA_SETS["visda"] = Entry(
    (27, 3, 12), domains("train", "validation", names=("aeroplane", "train", "truck"), suffix="png"),
    PIXELS, {"split": 1},
    damaged="train/truck/frame_0002.png",
)  # fmt: skip

# -- texts -------------------------------------------------------------------------------------------------------------


def message(_: Rng, sample: Sample) -> bytes:
    return f"From: a@x.org\nSubject: {sample['group']}\n\n{sentence(sample)} café\n".encode("latin-1")


DATA_SETS["newsgroups"] = Entry(
    (188, 48, 52),
    FakeSet(
        [*each(part=["20news-bydate-train"], group=[*LABELS, "alt.atheism"], n=range(10_000, 10_009)),
         *each(part=["20news-bydate-test"], group=[*LABELS, "alt.atheism"], n=range(20_000, 20_009))],
        {"{part}/{group}/{n}": message},
    ),
    {},
    {"split": "bydate"},
    packed="20news-bydate.tar.gz",
)  # fmt: skip


def reviews(domain: str, part: str) -> Any:
    mark = "" if part == "unlabel" else "\t"
    return lines(
        lambda sample: (str(sample["i"] % 2) + mark if mark else "") + sentence(sample, 11), domain=domain, part=part
    )


DATA_SETS["amazon"] = Entry(
    (368, 52, 140),
    FakeSet(
        [sample for part, count in (("train", 30), ("test", 10), ("unlabel", 5))
         for sample in each(domain=PRODUCTS, part=[part], n=range(count))],
        {f"mtl-dataset/{domain}.task.{part}": reviews(domain, part)
         for domain in PRODUCTS for part in ("train", "test", "unlabel")},
    ),
    {},
    {"split": "aamtrl"},
    needed=named(f"mtl-dataset/{PRODUCTS[1]}.task.test"),
    packed="fdu-mtl-dataset.tar.xz",
)  # fmt: skip
DATA_SETS["sentences"] = Entry(
    (566, 82, 72),
    FakeSet(
        each(n=range(80)),
        {
            file: (lambda _, samples, task=task, part=part: "".join(
                f"{s['n'] // 2 % len(SETS[task].classes)} {task} {part} has the sentence {s['n']} .\n" for s in samples
            ))
            for task, known in SETS.items() for part, file in known.files.items()
        },
    ),
    {},
    {"split": "official"},
    needed=named("mpqa.all"),
    packed="sentence_tasks.tar.gz",
)  # fmt: skip
DATA_SETS["glue"] = Entry(
    (118, 2, 40),
    FakeSet(
        [*each(part=["train"], n=range(60)), *each(part=["dev"], n=range(20))],
        {
            f"{task}/{part}.tsv": lines(lambda s: f"{s['n']}\tone {s['part']} {s['n']}\ttwo\t"
                                        f"{('entailment', 'not_entailment')[s['n'] % 2]}", head, part=part)
            for task, head in (("RTE", "index\tsentence1\tsentence2\tlabel"),
                               ("QNLI", "index\tquestion\tsentence\tlabel"))
            for part in ("train", "dev")
        },
    ),
    {"tasks": ["RTE", "QNLI"]},
    needed=named("QNLI/dev.tsv"),
)  # fmt: skip
DATA_SETS["text"] = Entry(
    (100, 12, 8),
    FakeSet(
        each(n=range(60)),
        {f"{name}.tsv": lines(lambda s: f"{sentence(s)}\t{('no', 'yes')[s['n'] % 2]}", "text\tlabel")
         for name in ("reviews", "mails")},
    ),
    {"tasks": {"reviews": "reviews.tsv", "mails": "mails.tsv"}},
    {"split": 1},
    needed=named("mails.tsv"),
)  # fmt: skip
WORDS = [*each(part=["train"], n=range(6)), *each(part=["dev"], n=range(3)), *each(part=["test"], n=range(4))]
DATA_SETS["ud"] = Entry(
    (12, 6, 8),
    FakeSet(
        WORDS,
        {
            f"UD_{code}/{code}-ud-{part}.conllu.gz": lines(
                lambda s: "# sent_id = 1\n1\tw\t_\tNOUN\t_\t_\t0\t_\t_\t_\n"
                f"2\tx{s['n']}\t_\tVERB\t_\t_\t0\t_\t_\t_\n", part=part)
            for code in ("en_ewt", "te_mtg") for part in ("train", "dev", "test")
        },
    ),
    {"languages": ["en", "te"], "treebanks": {"en": "en_ewt", "te": "te_mtg"}},
    needed=named("UD_te_mtg/te_mtg-ud-dev.conllu.gz"),
    packed="ud-treebanks.tgz",
)  # fmt: skip
DATA_SETS["wikiann"] = Entry(
    (12, 6, 8),
    FakeSet(
        WORDS,
        {
            f"{language}/{part}": lines(f"{language}:w{{n}}\tB-PER\n{language}:Rome\tB-LOC\n", part=part)
            for language in ("en", "de") for part in ("train", "dev", "test")
        },
    ),
    {"languages": ["en", "de"]},
    needed={"de/dev": "de has no val file"},
)  # fmt: skip
DATA_SETS["conll"] = Entry(
    (37, 3, 4),
    FakeSet(
        [*each(part=["train"], n=range(40)), *each(part=["test"], n=range(4))],
        {f"{part}.txt": lines("word{n} NN I-LOC\n, , O\n", part=part) for part in ("train", "test")},
    ),
    {"tasks": {"ner": {"train": "train.txt", "test": "test.txt"}}},
    needed=named("test.txt"),
)

# -- tables and vectors ------------------------------------------------------------------------------------------------


def census_row(sample: Sample) -> str:
    row, rng = sample["i"], np.random.default_rng(sample["i"] + 1000 * (sample["part"] == "test"))
    education = ("Bachelors degree(BA AB BS)", "Children", "Masters degree(MA MS MEng MEd MSW MBA)")[row % 3]
    values = {name: str(rng.integers(0, 3)) for name in census_income.COLUMNS}
    values |= {"age": str(20 + row % 40), "education": education, "instance_weight": f"{1000 + row}.38"}
    values |= {"marital": "Divorced" if row % 4 else "Never married", "father_birth": "?" if row % 7 else "Peru"}
    values["income"] = "- 50000." if row % 5 else "50000+."
    return ", ".join(values.values())


def adult_row(sample: Sample) -> str:
    rng = np.random.default_rng(sample["i"] + 1000 * (sample["part"] == "test"))
    values = {key: "abc"[rng.integers(0, 3)] for key in adult.COLUMNS}
    for key in ("weight", "education_years", "capital_gain", "capital_loss", "hours"):
        values[key] = str(rng.integers(0, 9))
    values |= {"age": str(20 + sample["i"] % 9), "country": "?" if sample["i"] % 9 else "Peru"}
    values |= {"marital": "Divorced" if sample["i"] % 4 else "Never-married"}
    values["income"] = ("<=50K" if sample["i"] % 5 else ">50K") + "." * (sample["part"] == "test")
    return ", ".join(values.values())


PEOPLE = [*each(part=["train"], n=range(120)), *each(part=["test"], n=range(60))]
DATA_SETS["census_income"] = Entry(
    (96, 24, 60),
    FakeSet(PEOPLE, {"census-income.data": lines(census_row, part="train"),
                     "census-income.test.gz": lines(census_row, part="test")}),
    {}, {"split": 1},
)  # fmt: skip
DATA_SETS["adult"] = Entry(
    (96, 24, 60),
    FakeSet(PEOPLE, {"adult.data": lines(adult_row, part="train"),
                     "adult.test": lines(adult_row, "|1x3 Cross validator", part="test")}),
    {}, {"split": 1},
)  # fmt: skip
DATA_SETS["movielens"] = Entry(
    (154, 38, 48),
    FakeSet(
        each(n=range(240), user=lambda s: 1 + s["n"] % 20,
              item=lambda s: 1 + s["n"] // 20, stars=lambda s: s["n"] % 5 + 1),
        {
            "u.data": lines("{user}\t{item}\t{stars}\t{n}"),
            "u.user": lambda *_: "".join(f"{u}|{20 + u}|{'MF'[u % 2]}|writer|12345\n" for u in range(1, 21)),
            "u.item": lambda *_: "".join(
                f"{i}|Film {i}|01-Jan-{1980 + i}||http://x|{'|'.join('01'[(i + g) % 3 == 0] for g in range(19))}\n"
                for i in range(1, 16)
            ),
        },
    ),
    {}, {"split": 1}, needed=named("u.item", "u.user", "u.data"),
)  # fmt: skip
DATA_SETS["table"] = Entry(
    (77, 19, 24),
    FakeSet(each(n=range(120)), {"own.csv": lines(
        lambda s: f"{s['n'] * 37 % 101 / 10},{'uv'[s['n'] % 2]},{'yes' if s['n'] % 3 else 'no'},{s['n'] % 11}",
        "size,kind,like,price")}),
    {"targets": {"like": "class", "price": "regression"}}, {"split": 1},
)  # fmt: skip
DATA_SETS["multilabel"] = Entry(
    (97, 23, 25),
    FakeSet(
        [*each(part=["train"], n=range(120)), *each(part=["test"], n=range(25))],
        {
            **{f"mine-{part}.arff": lines(
                lambda s: f"{s['n'] * 37 % 101 / 10},{s['n'] % 2},{int(s['n'] * 37 % 101 > 50)},{int(s['n'] % 3 == 0)}",
                "@relation 'x: -C 2'\n@attribute size numeric\n@attribute wide numeric\n@attribute loud {0,1}\n"
                "@attribute calm {0,1}\n@data", part=part) for part in ("train", "test")},
            "mine.xml": '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="loud"></label>'
            '<label name="calm"></label></labels>',
        },
    ),
    {"set": "mine"}, {"split": 1}, needed=named("mine.xml", "mine-test.arff", "mine-train.arff"),
)  # fmt: skip


def school(rng: Rng, _: Any) -> dict[str, Any]:
    cells = {"X": np.empty((1, 3), object), "Y": np.empty((1, 3), object)}
    for place, size in enumerate((30, 22, 40)):
        cells["X"][0, place] = rng.integers(0, 2, (size, 28)).astype(np.uint8)
        cells["X"][0, place][:, -1] = 1
        cells["Y"][0, place] = rng.integers(1, 71, (size, 1)).astype(np.uint8)
    return cells


DATA_SETS["school"] = Entry(
    (59, 15, 18), FakeSet([], {"school.mat": school}), {}, {"split": 1}, needed=named("school.mat")
)
DATA_SETS["mnist_mtl"] = Entry(
    (180, 40, 60),
    FakeSet([], mnist_files(5, train=300)),
    {"positives": 10, "negatives": 2, "components": 4}, {"split": 1},
    needed=named("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
)  # fmt: skip
DATA_SETS["awa2"] = Entry(
    (36, 8, 12),
    FakeSet(
        each(n=range(80), label=lambda s: 1 + s["n"] % 4),
        {
            "AwA2-labels.txt": lines("{label}"),
            "AwA2-features.txt": lambda rng, samples: "".join(
                " ".join(f"{value:.4f}" for value in rng.normal(size=6) + s["label"]) + "\n" for s in samples
            ),
        },
    ),
    {"positives": 8, "negatives": 2, "components": 3}, {"split": 1},
    needed=named("AwA2-labels.txt", "AwA2-features.txt"),
    packed="AwA2-features.zip",
)  # fmt: skip
DATA_SETS["mcsem"] = Entry(
    (42, 10, 13),
    FakeSet([], {
        f"{channel}.npz": lambda rng, _, n=size: {
            "features": rng.normal(size=(n, 7)), "shares": rng.integers(1, 9, (n, 5)).astype(float)
        } for channel, size in (("email", 40), ("phone", 25))
    }),
    {}, {"split": 1},
)  # fmt: skip
MOLECULES = ("C", "N", "O", "C#C", "C#N", "C=O", "CC", "CO", "CC#C", "CC#N", "CC=O", "NC=O", "CCC", "CCO", "C1CC1",
             "C1CO1", "CC(C)=O", "NC(N)=O", "c1ccoc1", "c1cc[nH]c1", "FC(F)F", "CN1CC1", "OC1CC1",
             "N#CC#N")  # fmt: skip
DATA_SETS["qm9"] = Entry(
    (20, 2, 2),
    FakeSet(each(smiles=MOLECULES), {"qm9.csv": lines(
        lambda s: f"gdb_{s['i'] + 1},{s['smiles']}," + ",".join(
            f"{value:.5f}" for value in np.random.default_rng(s["i"]).normal(size=15)),
        "mol_id,smiles,A,B,C,mu,alpha,homo,lumo,gap,r2,zpve,u0,u298,h298,g298,cv")}),
    {}, {"split": 1}, needed=named("qm9.csv"),
)  # fmt: skip
DATA_SETS["molecules"] = Entry(
    (46, 12, 14),
    FakeSet(each(smiles=MOLECULES, twin=range(3)), {"tox21.csv": lines(
        lambda s: f"{s['smiles']}{'C' * s['twin']},{s['i'] % 2},{s['i'] % 3 % 2 if s['i'] % 5 else ''}",
        "smiles,NR-AR,SR-p53")}),
    {}, {"split": 1}, needed=named("tox21.csv"),
)  # fmt: skip
DATA_SETS["multi_target"] = Entry(
    (96, 24, 30),
    FakeSet(each(n=range(150)), {"edm.arff.gz": lines(
        lambda s: ",".join(f"{value:.4f}" for value in np.random.default_rng(s["i"]).normal(size=5)),
        "@relation edm\n" + "".join(f"@attribute {name} numeric\n" for name in ("a", "b", "c", "D", "E")) + "@data")}),
    {"set": "edm"}, {"split": 1}, needed=named("edm.arff.gz"),
)  # fmt: skip
DATA_SETS["parkinsons"] = Entry(
    (95, 25, 30),
    FakeSet(each(person=range(1, 31), visit=range(5)), {"parkinsons_updrs.data": lines(
        lambda s: f"{s['person']}," + ",".join(
            f"{value:.4f}" for value in np.random.default_rng(s["i"]).normal(size=len(parkinsons.COLUMNS) - 1)),
        "subject#,age,sex,test_time,motor_UPDRS,total_UPDRS,and,the,other,columns")}),
    {}, {"split": 1}, needed=named("parkinsons_updrs.data"),
)  # fmt: skip

# -- sets without files ------------------------------------------------------------------------------------------------

DATA_SETS["activations"] = Entry((120, 120, 120), options={"samples": 40})
DATA_SETS["fonseca"] = Entry((32, 32, 32))
DATA_SETS["synthetic"] = Entry(
    (1152, 288, 360),
    options={"features": 16, "tasks": 6, "samples": 300, "topics": 3, "special": 2},
    redraw={"split": 1},
)
DATA_SETS["transfer"] = Entry((80, 40, 40), options={"held_out": 20, "samples": 40, "source_samples": 40})
DATA_SETS["digits"] = Entry((2244, 594, 759))
DATA_SETS["digit_pairs"] = Entry((60, 12, 12), options={"pairs": 60})
