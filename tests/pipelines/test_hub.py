"""Sets that the `datasets` library wrote, in each of its forms, against the official files of the same content."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from image_sets import IN_PROCESS, WITH_RAY, assert_same_bytes, by_id, encoded, picture
from in_process import prepare
from PIL import Image

from mtlscale.config import UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from pipelines import PrepareContext
from pipelines._formats import hub as _hub
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images.hub_images import labelled_images
from pipelines.image.celeba import NINE, Celeba
from pipelines.text.newsgroups import LABELS, Newsgroups

datasets = pytest.importorskip("datasets")
FORMS = ("saved", "parquet", "cache")
Columns = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bars, and a cache of its own."""
    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(folder: Path, splits: dict[str, Columns], features: Any = None, form: str = "saved") -> Path:
    """A set as `save_to_disk` leaves it, as Parquet in the hub's layout, or as the library's own cache."""
    made = {name: datasets.Dataset.from_dict(columns, features=features) for name, columns in splits.items()}
    if form == "saved":
        datasets.DatasetDict(made).save_to_disk(folder, num_shards=dict.fromkeys(made, 2))
        return folder
    (folder / "data").mkdir(parents=True)
    for name, one in made.items():
        for shard in range(2):
            one.shard(2, shard).to_parquet(folder / "data" / f"{name}-{shard:05d}-of-00002.parquet", batch_size=3)
    if form == "parquet":
        return folder
    loaded = datasets.load_dataset(str(folder))
    return Path(next(iter(loaded.values())).cache_files[0]["filename"]).parent


def image_features(**others: Any) -> Any:
    return datasets.Features({"image": datasets.Image(), **others})


# -- faces -------------------------------------------------------------------------------------------------------------


def faces(count: int = 60) -> tuple[dict[str, Columns], dict[str, bytes]]:
    """Splits as flwrlabs/celeba has them, and the same pictures by their official names."""
    rng = np.random.default_rng(0)
    splits: dict[str, Columns] = {}
    files = {}
    for number in range(1, count + 1):
        split = ("train", "train", "train", "train", "valid", "test")[number % 6]
        columns = splits.setdefault(split, {"image": [], "celeb_id": [], **{name: [] for name in NINE}})
        files[f"{number:06d}.jpg"] = encoded(picture(rng, 60, 48), "JPEG")
        columns["image"].append({"bytes": files[f"{number:06d}.jpg"], "path": f"{number:06d}.jpg"})
        columns["celeb_id"].append(number % 20 + 1000)
        for place, name in enumerate(NINE):
            columns[name].append(bool((number * (place + 1) + number // 12) % 2))
    return splits, files


def face_features() -> Any:
    attributes = {name: datasets.Value("bool") for name in NINE}
    return image_features(celeb_id=datasets.Value("int64"), **attributes)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    splits, files = faces()
    root = tmp_path / "official"
    (root / "img_align_celeba").mkdir(parents=True)
    lines, parts, people = [f"{len(files)}", " ".join(NINE)], [], []
    for part, columns in splits.items():
        for row, cell in enumerate(columns["image"]):
            (root / "img_align_celeba" / cell["path"]).write_bytes(cell["bytes"])
            lines.append(f"{cell['path']} {' '.join('1' if columns[name][row] else '-1' for name in NINE)}")
            parts.append(f"{cell['path']} {('train', 'valid', 'test').index(part)}")
            people.append(f"{cell['path']} {columns['celeb_id'][row]}")
    for name, rows in (("list_attr", lines), ("list_eval_partition", parts)):
        (root / f"{name}{'_celeba' if name == 'list_attr' else ''}.txt").write_text("\n".join(rows) + "\n")
    (root / "identity_CelebA.txt").write_text("\n".join(people) + "\n")
    return root


@pytest.mark.parametrize(
    ("form", "options"), list(zip(FORMS, ({}, {"split": "own"}, {"attributes": "all"}), strict=True))
)
def test_celeba_is_that_of_the_official_files(
    official: Path, tmp_path: Path, form: str, options: dict[str, str]
) -> None:
    source = write(tmp_path / "hub", faces()[0], face_features(), form)
    one, other = (read_manifest(prepare("celeba", {"size": 16, **options}, f, tmp_path)) for f in (official, source))
    assert one.fingerprint == other.fingerprint
    assert one.class_counts == other.class_counts


def test_celeba_of_numbers_and_without_file_names(official: Path, tmp_path: Path) -> None:
    splits, _ = faces()
    for columns in splits.values():
        columns["image"] = [{"bytes": cell["bytes"], "path": None} for cell in columns["image"]]
        for name in NINE:
            columns[name] = [1 if value else -1 for value in columns[name]]
    features = image_features(celeb_id=datasets.Value("int64"), **{name: datasets.Value("int64") for name in NINE})
    folder = prepare("celeba", {"size": 16}, write(tmp_path / "hub", splits, features), tmp_path)
    expected = read_manifest(prepare("celeba", {"size": 16}, official, tmp_path))
    assert read_manifest(folder).class_counts == expected.class_counts
    assert "train000000" in by_id(folder)
    splits["test"]["Goatee"][3] = 7
    with pytest.raises(UserError, match="the first: test row 4 has no 1, 0 or -1 in Goatee"):
        prepare("celeba", {"size": 16}, write(tmp_path / "odd", splits, features), tmp_path)


def test_real_faces_are_those_of_the_official_files(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "celeba").is_dir():
        pytest.skip("no celeba in the folder of real data")
    options = {"split": "own", "limit": 120, "size": 32}
    store = Celeba(**options).store(shared_data / "celeba")
    lines = store.read("list_attr_celeba.txt").decode().split("\n")
    names, columns = lines[1].split(), Columns()
    for line in lines[2:122]:
        image, *values = line.split()
        raw = store.read(f"img_align_celeba/{image}")
        columns.setdefault("image", []).append({"bytes": raw, "path": image})
        for name, value in zip(names, values, strict=True):
            columns.setdefault(name, []).append(int(value))
    features = image_features(**{name: datasets.Value("int8") for name in names})
    source = write(tmp_path / "hub", {"train": columns}, features, "parquet")
    folders = (shared_data / "celeba", source)
    one, other = (read_manifest(prepare("celeba", options, folder, tmp_path)) for folder in folders)
    assert one.fingerprint == other.fingerprint


def test_blocks_of_any_size_give_the_same_bytes(tmp_path: Path) -> None:
    for form in ("saved", "parquet"):
        source = write(tmp_path / form, faces()[0], face_features(), form)
        assert_same_bytes("celeba", {"size": 16}, source, tmp_path / f"out-{form}", IN_PROCESS)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ray_gives_the_bytes_of_this_process(tmp_path: Path) -> None:
    source = write(tmp_path / "hub", faces()[0], face_features(), "parquet")
    assert_same_bytes("celeba", {"size": 16}, source, tmp_path / "out", WITH_RAY)


def test_a_corrupt_picture_is_named_by_its_row(tmp_path: Path) -> None:
    splits, _ = faces()
    splits["train"]["image"][5] = {"bytes": b"\xff\xd8\xff no picture", "path": "x.jpg"}
    splits["train"]["image"][9] = {"bytes": None, "path": str(tmp_path / "gone.jpg")}
    source = write(tmp_path / "hub", splits, face_features(), "parquet")
    with pytest.raises(UserError, match=r"^image data/train-00000-of-00002\.parquet, row 6, image is corrupt"):
        prepare("celeba", {"size": 16}, source, tmp_path)
    skipped = read_manifest(prepare("celeba", {"size": 16}, source, tmp_path, skip_bad=True)).notes["skipped"]
    assert skipped["count"] == 2
    assert "row 10, image cannot be read" in " ".join(skipped["first"])


def test_a_picture_kept_as_a_path_is_read_there(tmp_path: Path) -> None:
    splits, files = faces()
    (tmp_path / "000001.jpg").write_bytes(files["000001.jpg"])
    for columns in splits.values():
        for cell in columns["image"]:
            if cell["path"] == "000001.jpg":
                cell.update(bytes=None, path=str(tmp_path / "000001.jpg"))
    one = write(tmp_path / "paths", splits, face_features(), "parquet")
    other = write(tmp_path / "bytes", faces()[0], face_features(), "parquet")
    prints = {read_manifest(prepare("celeba", {"size": 16}, source, tmp_path)).fingerprint for source in (one, other)}
    assert len(prints) == 1


# -- dense sets --------------------------------------------------------------------------------------------------------

HEIGHT, WIDTH = 24, 32
SIZE = {"size": [HEIGHT, WIDTH], "validation": 0.4}


def dense_arrays(root: Path, classes: int, normals: bool) -> dict[str, Columns]:
    """The layout of arrays below `root`, and the same as columns with channels first, as on the hub."""
    rng = np.random.default_rng(0)
    splits: dict[str, Columns] = {}
    for part, count in (("train", 12), ("val", 5)):
        columns = splits.setdefault(part, {"image": [], "segmentation": [], "depth": [], "noise": []})
        for number in range(count):
            label = np.kron(rng.integers(-1, classes, (6, 8)), np.ones((4, 4), int))
            content = {
                "image": rng.random((HEIGHT, WIDTH, 3), np.float32),
                "label": label.astype(np.float32),
                "depth": rng.uniform(1, 9, (HEIGHT, WIDTH, 1)).astype(np.float32),
                "normal": rng.normal(size=(HEIGHT, WIDTH, 3)).astype(np.float32),
            }
            for name, array in content.items():
                if normals or name != "normal":
                    (root / part / name).mkdir(parents=True, exist_ok=True)
                    np.save(root / part / name / f"{number}.npy", array)
                    kept = label if name == "label" else array.transpose(2, 0, 1)
                    columns.setdefault({"label": "segmentation"}.get(name, name), []).append(kept)
            columns["noise"].append(0)
    return splits


def dense_features(splits: dict[str, Columns]) -> Any:
    shapes = {"image": (3, "float32"), "depth": (1, "float32"), "normal": (3, "float32")}
    return datasets.Features(
        {
            name: datasets.Array3D((shapes[name][0], HEIGHT, WIDTH), shapes[name][1])
            if name in shapes
            else datasets.Value("int64")
            if name == "noise"
            else datasets.Array2D((HEIGHT, WIDTH), "int64")
            for name in next(iter(splits.values()))
        }
    )


def tensors(folder: Path) -> dict[str, list[torch.Tensor]]:
    """Inputs and targets of the official parts, in the order of their ids."""
    data = load_prepared(folder)
    where = by_id(folder)
    found: dict[str, list[torch.Tensor]] = {}
    for id in sorted(where):
        split, row = where[id]
        samples = data.splits[split]["all"]
        for name, values in {"input": samples.inputs, **samples.targets}.items():
            found.setdefault(f"{id.partition('/')[0]} {name}", []).append(values[row])
    return found


def assert_same_samples(one: Path, other: Path) -> None:
    expected, got = tensors(one), tensors(other)
    assert list(expected) == list(got)
    for name, values in expected.items():
        torch.testing.assert_close(torch.stack(got[name]), torch.stack(values), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("form", "name", "classes", "normals"),
    [*((form, "nyuv2", 13, True) for form in FORMS), ("parquet", "cityscapes", 7, False)],
)
def test_dense_arrays_are_those_of_npy_files(tmp_path: Path, form: str, name: str, classes: int, normals: bool) -> None:
    splits = dense_arrays(tmp_path / "npy", classes, normals)
    source = write(tmp_path / "hub", splits, dense_features(splits), form)
    folder = prepare(name, SIZE, source, tmp_path)
    assert read_manifest(folder).notes["layout"] == "hub"
    assert_same_samples(prepare(name, SIZE, tmp_path / "npy", tmp_path), folder)


def test_nyuv2_pictures_are_those_of_the_folder(tmp_path: Path) -> None:
    rng, splits = np.random.default_rng(1), dict[str, Columns]()
    for part, count in (("train", 12), ("val", 4)):
        for number in range(1, count + 1):
            depth = np.kron(rng.integers(18, 255, (3, 4)), np.ones((8, 8), int)).astype(np.uint8)
            content = {
                "image": encoded(picture(rng, HEIGHT, WIDTH), "JPEG"),
                "label13": encoded(rng.integers(0, 14, (HEIGHT, WIDTH)).astype(np.uint8), "PNG"),
                "depth": encoded(depth, "PNG"),
            }
            for name, raw in content.items():
                (tmp_path / "pictures" / part / name).mkdir(parents=True, exist_ok=True)
                suffix = "jpg" if name == "image" else "png"
                (tmp_path / "pictures" / part / name / f"{number:04d}.{suffix}").write_bytes(raw)
                column = {"label13": "label"}.get(name, name)
                splits.setdefault(part, {}).setdefault(column, []).append({"bytes": raw, "path": None})
    features = image_features(label=datasets.Image(), depth=datasets.Image())
    source = write(tmp_path / "hub", {"train": splits["train"], "test": splits["val"]}, features)
    options = {**SIZE, "normals": "none"}
    one, other = (prepare("nyuv2", options, folder, tmp_path) for folder in (tmp_path / "pictures", source))
    assert_same_samples(one, other)


@pytest.mark.parametrize(
    ("pixels", "metres"),
    [
        (np.full((HEIGHT, WIDTH), 2.5, np.float32), 2.5),
        (np.full((HEIGHT, WIDTH), 2500, np.uint16), 2.5),
        (np.full((HEIGHT, WIDTH), 63, np.uint8), 63.5 / 25.5),
    ],
)
def test_the_kind_of_a_depth_picture_says_its_unit(tmp_path: Path, pixels: np.ndarray, metres: float) -> None:
    raw, rng = io.BytesIO(), np.random.default_rng(0)
    Image.fromarray(pixels).save(raw, "TIFF")
    row = {
        "rgb": {"bytes": encoded(picture(rng, HEIGHT, WIDTH), "PNG"), "path": None},
        "semantic_segmentation": rng.integers(-1, 13, (HEIGHT, WIDTH)),
        "depth_map": {"bytes": raw.getvalue(), "path": None},
    }
    features = datasets.Features(
        {
            "rgb": datasets.Image(),
            "semantic_segmentation": datasets.Array2D((HEIGHT, WIDTH), "int8"),
            "depth_map": datasets.Image(),
        }
    )
    splits = {part: {name: [value] * 12 for name, value in row.items()} for part in ("train", "validation")}
    data = load_prepared(
        prepare("nyuv2", {**SIZE, "normals": "none"}, write(tmp_path / "hub", splits, features), tmp_path)
    )
    torch.testing.assert_close(data.splits["test"]["all"].targets["depth"], torch.full((12, 1, HEIGHT, WIDTH), metres))


def test_cityscapes_pictures_are_the_official_ones(tmp_path: Path) -> None:
    rng, splits = np.random.default_rng(1), dict[str, Columns]()
    parts = {"leftImg8bit": "leftImg8bit", "gtFine": "gtFine_labelIds", "disparity": "disparity"}
    for part, count in (("train", 12), ("val", 4)):
        for number in range(count):
            content = {
                "leftImg8bit": encoded(picture(rng, HEIGHT, WIDTH), "PNG"),
                "gtFine": encoded(rng.integers(0, 34, (HEIGHT, WIDTH)).astype(np.uint8), "PNG"),
                "disparity": encoded(rng.integers(0, 9000, (HEIGHT, WIDTH)).astype(np.uint16), "PNG"),
            }
            for name, raw in content.items():
                folder = tmp_path / "official" / name / part / "ulm"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"ulm_{number:06d}_000019_{parts[name]}.png").write_bytes(raw)
                column = {"leftImg8bit": "image", "gtFine": "segmentation_19"}.get(name, name)
                splits.setdefault(part, {}).setdefault(column, []).append({"bytes": raw, "path": None})
    features = image_features(segmentation_19=datasets.Image(), disparity=datasets.Image())
    hub = {"train": splits["train"], "validation": splits["val"], "test": splits["val"]}
    options = {**SIZE, "classes": 19}
    source = write(tmp_path / "hub", hub, features, "parquet")
    one, other = (prepare("cityscapes", options, folder, tmp_path) for folder in (tmp_path / "official", source))
    assert_same_samples(one, other)


def test_three_splits_and_columns_only_some_of_them_have(tmp_path: Path) -> None:
    """Test is test where there is validation beside it; of CityScapes it has no labels, so validation is."""
    splits = dense_arrays(tmp_path / "npy", 7, normals=False)
    features = dense_features(splits)
    three = {
        "train": splits["train"],
        "validation": splits["val"],
        "test": {name: values[:3] for name, values in splits["val"].items()},
        "unsupervised": {"image": splits["val"]["image"]},
    }
    made = {
        name: datasets.Dataset.from_dict(columns, datasets.Features({c: features[c] for c in columns}))
        for name, columns in three.items()
    }
    datasets.DatasetDict(made).save_to_disk(tmp_path / "hub")
    for name, options, count in (("nyuv2", {"normals": "none"}, 3), ("cityscapes", {}, 5)):
        folder = prepare(name, {**SIZE, **options}, tmp_path / "hub", tmp_path)
        assert sum(split == "test" for split, _ in by_id(folder).values()) == count
        assert len(by_id(folder)) == 12 + count


def test_a_folder_without_training_part_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "hub", {"test": faces()[0]["test"]}, face_features())
    with pytest.raises(UserError, match=r"^celeba: .* has no split train; it has test$"):
        prepare("celeba", {"size": 16}, source, tmp_path)
    source = write(tmp_path / "two", {part: faces()[0][part] for part in ("train", "test")}, face_features())
    with pytest.raises(UserError, match=r"has the splits train, test alone; use `split: own`"):
        prepare("celeba", {"size": 16}, source, tmp_path)


@pytest.mark.slow  # test_nyuv2_pictures_are_those_of_the_folder holds this for small pictures
def test_real_frames_are_those_of_the_zip(shared_data: Path, tmp_path: Path) -> None:
    from pipelines._sources.file_store import Store
    from pipelines.image.nyuv2 import Nyuv2

    if not (shared_data / "nyuv2").is_dir():
        pytest.skip("no nyuv2 in the folder of real data")
    store = Store(shared_data / "nyuv2" / "nyuv2_288x384.zip", Nyuv2().selects)
    splits: dict[str, Columns] = {}
    for part in ("train", "val"):
        for name in [name for name in store.names if f"/{part}/image/" in name][:16]:
            columns = splits.setdefault(part, {"image": [], "label13": [], "depth": []})
            for column, cells in columns.items():
                file = name.replace("/image/", f"/{column}/")
                file = file if column == "image" else file.replace(".jpg", ".png")
                cells.append({"bytes": store.read(file), "path": None})
    source = write(tmp_path / "hub", splits, image_features(label13=datasets.Image(), depth=datasets.Image()))
    options = {"limit": 16, "size": [72, 96], "normals": "none", "validation": 0.4}
    folders = (shared_data / "nyuv2", source)
    assert_same_samples(*(prepare("nyuv2", options, folder, tmp_path) for folder in folders))


# -- texts and digits --------------------------------------------------------------------------------------------------


def messages(folder: Path) -> dict[str, Columns]:
    splits: dict[str, Columns] = {}
    for part in ("train", "test"):
        columns = splits.setdefault(part, {"text": [], "label_text": []})
        for path in sorted((folder / f"20news-bydate-{part}").glob("*/*")):
            columns["text"].append(path.read_bytes().decode("latin-1"))
            columns["label_text"].append(path.parent.name)
    return splits


@pytest.mark.parametrize("form", FORMS)
def test_newsgroups_are_those_of_the_folder(newsgroups_folder: Path, tmp_path: Path, form: str) -> None:
    source = write(tmp_path / "hub", messages(newsgroups_folder), form=form)
    pipeline = Newsgroups(split="bydate")
    tables = [pipeline.read(newsgroups_folder, PrepareContext())[0], pipeline.read_hub(source)[0]]
    for table in tables:
        assert table.filter(pc.field("split") == "test").num_rows == 16 * 9
    # Ids differ, and with them which training messages are validation.
    one, other = (
        sorted((row["split"] == "test", row["stream"], row["label"], row["raw"]) for row in table.to_pylist())
        for table in tables
    )
    assert one == other
    manifest = read_manifest(prepare("newsgroups", {"split": "bydate"}, source, tmp_path))
    assert {task: counts["test"] for task, counts in manifest.counts.items()} == dict.fromkeys(manifest.counts, 36)


@pytest.mark.slow  # test_newsgroups_are_those_of_the_folder holds this for a few messages
def test_real_messages_are_those_of_the_archive(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "20newsgroups").is_dir():
        pytest.skip("no 20newsgroups in the folder of real data")
    pipeline = Newsgroups(split="bydate")
    expected = pipeline.read(pipeline.locate(shared_data / "20newsgroups"), PrepareContext())[0]
    splits: dict[str, Columns] = {}
    for row in expected.to_pylist():
        columns = splits.setdefault("test" if row["split"] == "test" else "train", {"text": [], "label_text": []})
        columns["text"].append(row["raw"].decode("latin-1"))
        columns["label_text"].append(row["id"].rpartition("/")[0])
    got = pipeline.read_hub(write(tmp_path / "hub", splits, form="parquet"))[0]
    assert len(got) == len(expected) > 14_000
    names = ("stream", "label", "raw")
    for part in (pc.field("split") == "test", pc.field("split") != "test"):
        one, other = (
            Counter(zip(*(table.filter(part)[name].to_pylist() for name in names), strict=True))
            for table in (expected, got)
        )
        assert one == other


def without_last_name(path: Path, column: str) -> None:
    """Take the last class from the description of a Parquet file; its numbers stay."""
    table = pq.read_table(path)
    described = json.loads(table.schema.metadata[b"huggingface"])
    described["info"]["features"][column]["names"].pop()
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(described)}), path)


def test_newsgroups_by_class_numbers(newsgroups_folder: Path, tmp_path: Path) -> None:
    splits = messages(newsgroups_folder)
    names = sorted({*LABELS, "alt.atheism"})
    numbered = {
        part: {"text": columns["text"], "label": [names.index(group) for group in columns["label_text"]]}
        for part, columns in splits.items()
    }
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
    prints = [
        read_manifest(prepare("newsgroups", {}, source, tmp_path)).fingerprint
        for source in (write(tmp_path / "names", splits), write(tmp_path / "numbers", numbered, features, "parquet"))
    ]
    assert prints[0] == prints[1]
    with pytest.raises(UserError, match=r"label of .* holds numbers without names; add label_text"):
        prepare("newsgroups", {}, write(tmp_path / "bare", numbered), tmp_path)
    short = write(tmp_path / "short", numbered, features, "parquet")
    for path in (short / "data").glob("*.parquet"):
        without_last_name(path, "label")
    with pytest.raises(UserError, match=r"label of .* holds numbers without names; add label_text"):
        prepare("newsgroups", {}, short, tmp_path)


def digits(count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(10), count)).astype(np.uint8)
    return (rng.integers(0, 100, (10 * count, 28, 28)) + 10 * labels[:, None, None]).astype(np.uint8), labels


def write_idx(folder: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    folder.mkdir(parents=True)
    for name, values in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes()
        (folder / f"train-{name}-ubyte").write_bytes(head + values.tobytes())
    return folder


def digit_columns(images: np.ndarray, labels: np.ndarray) -> Columns:
    cells = [{"bytes": encoded(image, "PNG"), "path": None} for image in images]
    return {"image": cells, "label": labels.tolist()}


MNIST = {"positives": 10, "negatives": 2, "components": 4}


@pytest.mark.parametrize("form", FORMS)
def test_mnist_is_that_of_the_idx_files(tmp_path: Path, form: str) -> None:
    images, labels = digits()
    features = image_features(label=datasets.ClassLabel(names=[str(digit) for digit in range(10)]))
    source = write(tmp_path / "hub", {"train": digit_columns(images, labels)}, features, form)
    folders = (write_idx(tmp_path / "idx", images, labels), source)
    one, other = (read_manifest(prepare("mnist_mtl", MNIST, folder, tmp_path)) for folder in folders)
    assert one.fingerprint == other.fingerprint


def test_real_digits_are_those_of_the_idx_files(shared_data: Path, tmp_path: Path) -> None:
    import gzip

    if not (shared_data / "mnist").is_dir():
        pytest.skip("no mnist in the folder of real data")
    raw = [gzip.decompress((shared_data / "mnist" / f"train-{name}.gz").read_bytes())
           for name in ("images-idx3-ubyte", "labels-idx1-ubyte")]  # fmt: skip
    images = np.frombuffer(raw[0][16:], np.uint8).reshape(-1, 28, 28)[:2000]
    labels = np.frombuffer(raw[1][8:], np.uint8)[:2000]
    source = write(tmp_path / "hub", {"train": digit_columns(images, labels)}, image_features(
        label=datasets.ClassLabel(names=[str(digit) for digit in range(10)])))  # fmt: skip
    options = {"positives": 60, "negatives": 5, "components": 16}
    folders = (write_idx(tmp_path / "idx", images, labels), source)
    one, other = (read_manifest(prepare("mnist_mtl", options, folder, tmp_path)) for folder in folders)
    assert one.fingerprint == other.fingerprint


def test_small_pictures_of_colour(tmp_path: Path) -> None:
    """CIFAR as on the hub: `img` and `label`, or `fine_label` among two kinds of label."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3)).astype(np.uint8)
    columns = {
        "img": [{"bytes": encoded(image, "PNG"), "path": None} for image in pixels],
        "fine_label": list(range(8)),
        "coarse_label": [0] * 8,
    }
    features = datasets.Features(
        {"img": datasets.Image(), "fine_label": datasets.Value("int64"), "coarse_label": datasets.Value("int64")}
    )
    hub = HubFolder("cifar", write(tmp_path / "hub", {"train": columns, "test": columns}, features, "parquet"))
    images, labels = labelled_images(hub, "test", (32, 32, 3))
    assert np.array_equal(images, pixels)
    assert labels.tolist() == list(range(8))
    with pytest.raises(UserError, match=r"row 1, img has shape \[32, 32\], expected \[16, 16\]"):
        labelled_images(hub, "train", (16, 16))
    with pytest.raises(UserError, match=r"has no split val; it has train, test|has no split val; it has test, train"):
        labelled_images(hub, "val", (32, 32, 3))


# -- by name -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def digits_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `load_dataset` takes for a name, from where the test runs."""
    monkeypatch.chdir(tmp_path)
    features = image_features(label=datasets.ClassLabel(names=[str(digit) for digit in range(10)]))
    return write(tmp_path / "my" / "mnist", {"train": digit_columns(*digits())}, features, "parquet")


@pytest.mark.parametrize(
    "source", [pytest.param("hf:my/mnist", marks=pytest.mark.slow), Path("hf:my/mnist"), "hf:my/mnist:default"]
)
def test_a_name_goes_through_the_library(
    digits_on_the_hub: Path, tmp_path: Path, source: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "_answers", lambda address: False)
    manifest = read_manifest(prepare("mnist_mtl", MNIST, source, tmp_path / "home"))
    assert manifest.source.description == str(source)
    expected = read_manifest(prepare("mnist_mtl", MNIST, digits_on_the_hub, tmp_path / "home"))
    assert manifest.fingerprint == expected.fingerprint


def test_a_name_in_the_cache_needs_no_network(
    digits_on_the_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "_answers", lambda address: False)
    prepare("mnist_mtl", MNIST, "hf:my/mnist", tmp_path / "home")
    digits_on_the_hub.rename(tmp_path / "away")
    (tmp_path / "cache" / "mnist").rename(tmp_path / "cache" / "my___mnist")
    prepare("mnist_mtl", MNIST, "hf:my/mnist", tmp_path / "home")


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        (
            "mnist_mtl",
            "hf:nobody/has_this",
            r"hf:nobody/has_this cannot be loaded \(.*\); check name and network",
        ),
        ("mnist_mtl", "hf:", r"--source hf: should be hf:NAME, hf:NAME:CONFIG or hf:NAME@REVISION"),
        ("mnist_mtl", "hf:my/mnist:other", r"hf:my/mnist:other cannot be loaded \(.*other.*\)"),
        ("school", "hf:my/mnist", r"hf:my/mnist is a set of the hub, which school does not read; pass its files"),
    ],
)
def test_a_name_that_cannot_be_loaded_is_one_line(
    digits_on_the_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, message: str
) -> None:
    monkeypatch.setattr(_hub, "_answers", lambda address: False)
    with pytest.raises(UserError, match=f"^{name}: {message}") as caught:
        prepare(name, {}, source, tmp_path / "home")
    assert "\n" not in str(caught.value)


def test_without_network_the_hub_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _hub._answers("http://127.0.0.1:9")
    from huggingface_hub import constants

    monkeypatch.setattr(_hub.urllib.request, "getproxies", lambda: {})
    monkeypatch.setattr(_hub, "_answers", lambda address: False)
    with _hub._within_reach():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


# -- what is wrong with a folder ---------------------------------------------------------------------------------------


def test_columns_that_are_not_there_are_named_with_those_that_are(tmp_path: Path) -> None:
    cells = [{"bytes": encoded(np.zeros((28, 28), np.uint8), "PNG"), "path": None}]
    source = write(tmp_path / "hub", {"train": {"image": cells * 2, "species": [1, 2]}}, form="parquet")
    expected = r"train of .* has no column for label \(label, .*\); it has image, species; rename one$"
    with pytest.raises(UserError, match=expected):
        prepare("mnist_mtl", MNIST, source, tmp_path)


def damage_split(root: Path) -> None:
    for path in root.glob("data/train-*"):
        path.rename(path.with_name(path.name.replace("train", "unsupervised")))


def damage_shard(root: Path) -> None:
    (root / "data" / "train-00001-of-00002.parquet").unlink()


def damage_bytes(root: Path) -> None:
    (root / "data" / "train-00000-of-00002.parquet").write_bytes(b"PAR1 cut")


def second_set(root: Path) -> None:
    (root / "other").mkdir()
    for path in root.glob("data/*"):
        (root / "other" / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_split, r"has no split train; it has unsupervised"),
        (damage_shard, r"has 1 of 2 files like data/train-00000-of-00002\.parquet; fetch the others"),
        (damage_bytes, r"train-00000-of-00002\.parquet is damaged or missing"),
        (second_set, r"has train in data, other; pass the folder of one set"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    source = write(tmp_path / "hub", {"train": digit_columns(*digits())}, form="parquet")
    damage(source)
    with pytest.raises(UserError, match=f"^mnist_mtl: .*{message}"):
        prepare("mnist_mtl", MNIST, source, tmp_path)


def test_a_saved_folder_without_one_of_its_files_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "hub", {"train": digit_columns(*digits())})
    assert is_hub_folder(source)
    (source / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(UserError, match=r"train/data-00001-of-00002\.arrow is missing in"):
        prepare("mnist_mtl", MNIST, source, tmp_path)
    (source / "train" / "state.json").write_text("{")
    with pytest.raises(UserError, match=r"train/state\.json cannot be read"):
        prepare("mnist_mtl", MNIST, source, tmp_path)


def test_one_split_saved_alone_and_temporary_files_of_the_cache(tmp_path: Path) -> None:
    datasets.Dataset.from_dict(digit_columns(*digits()), image_features(label=datasets.Value("int8"))).save_to_disk(
        tmp_path / "alone"
    )
    assert list(HubFolder("x", tmp_path / "alone").files) == ["train"]
    cache = write(tmp_path / "hub", {"train": digit_columns(*digits())}, form="cache")
    (cache / "cache-0123456789abcdef.arrow").write_bytes(b"")
    assert list(HubFolder("x", cache).files) == ["train"]


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    source = write(tmp_path / "hub", {"train": digit_columns(*digits())}, form="parquet")
    before = HubFolder("x", source).fingerprint()
    assert HubFolder("x", source).fingerprint() == before
    path = source / "data" / "train-00000-of-00002.parquet"
    raw = bytearray(path.read_bytes())
    pipelines = (Celeba(), Newsgroups())
    told = [pipeline.source_fingerprint(source) for pipeline in pipelines]
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert HubFolder("x", source).fingerprint() != before
    assert all(one.source_fingerprint(source) != its for one, its in zip(pipelines, told, strict=True))


def test_cells_that_are_no_picture_or_array(tmp_path: Path) -> None:
    from pipelines._formats.table_cells import location, read_cell

    table = pa.table(
        {
            "text": ["a", "b"],
            "ragged": [[[1, 2], [3]], [[1], [2]]],
            "holes": [[1, None], [1, 2]],
            "none": pa.array([None, [1]], pa.list_(pa.int8())),
        }
    )
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for column, problem in (("text", "no picture"), ("ragged", "unlike"), ("holes", "empty"), ("none", "is empty")):
        with pytest.raises(ValueError, match=problem):
            read_cell(str(tmp_path), location("x.arrow", 0, column))
    assert np.load(io.BytesIO(read_cell(str(tmp_path), location("x.arrow", 1, "holes")))).tolist() == [1, 2]
    assert (
        json.loads("[[1], [2]]")
        == np.load(io.BytesIO(read_cell(str(tmp_path), location("x.arrow", 1, "ragged")))).tolist()
    )
