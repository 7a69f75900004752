"""Good experiments, plugins and archives, and what may happen to them: a function of a seed alone."""

from __future__ import annotations

import datetime
import gzip
import io
import math
import random
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from image_sets import encoded, picture
from scipy.io import savemat

from pipelines.image.celeba import NINE
from pipelines.text.amazon import PRODUCTS
from pipelines.text.newsgroups import LABELS, OFFICIAL_SPLITS

Tree = dict[str, bytes]  # name below the source -> content

# -- texts and bytes ---------------------------------------------------------------------------------------------------


def spoil_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flipped, cut off, repeated, emptied, or with something in it."""
    if not content:
        return bytes([rng.randrange(256)])
    place = rng.randrange(len(content))
    match rng.randrange(6):
        case 0:
            flipped = bytearray(content)
            for _ in range(rng.randint(1, 4)):
                flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 1:
            return content[:place]
        case 2:
            return content[:place] + rng.randbytes(rng.randint(1, 9)) + content[place:]
        case 3:
            return content[place:]
        case 4:
            return b""
        case _:
            return content[:place] + content[place + rng.randint(1, 30) :]


def spoil_lines(rng: random.Random, text: str) -> str:
    """Lines that are missing, there twice, in another order, further in, or cut."""
    lines = text.splitlines(keepends=True) or [""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = "  " + lines[one]
        case 4:
            lines[one] = lines[one][: rng.randrange(len(lines[one]) + 1)]
        case _:
            ends = ["\t", " #", ": ", "\0", "é", "\u2028", "]", "}", "'", "&"]
            lines[one] = lines[one].rstrip("\n") + rng.choice(ends)
    return "".join(lines)


TOKEN = re.compile(r"\w+|[^\w\s]")
ODD_TOKENS = [
    "None",
    "-1",
    "0",
    "1",
    "2.5",
    "'x'",
    "True",
    "()",
    "[]",
    "float('nan')",
    "1e400",
    "nothing",
    "self",
    "",
    "(",
]


def spoil_tokens(rng: random.Random, text: str) -> str:
    """One token of a program replaced by another of it, or by an odd one."""
    found = list(TOKEN.finditer(text))
    one = rng.choice(found)
    new = rng.choice(ODD_TOKENS) if rng.random() < 0.6 else rng.choice(found)[0]
    return text[: one.start()] + new + text[one.end() :]


def spoil_program(rng: random.Random, text: str) -> bytes:
    """Most are still Python: what does not compile is all told in the same place."""
    compiles, changed = rng.random() < 0.9, text
    for _ in range(50):
        changed = text
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            changed = spoil_tokens(rng, changed) if rng.random() < 0.7 else spoil_lines(rng, changed)
        if not compiles or (changed != text and _compiles(changed)):
            break
    return changed.encode() if rng.random() < 0.97 else spoil_bytes(rng, changed.encode())


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "mine.py", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


# -- experiments -------------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2.5, 1e308, -1e308, 10**9, 10**30, -(10**30), math.inf, -math.inf, math.nan, "", " ",
    "x" * 400, "../x", "a/b", ".hidden", "é\n", "1e-3", "true", "mgda", "stl", "uneven", [], {}, [[]], [None], [{}],
    {"a": 1},
    {"name": "mgda"}, {"name": 3}, {1: 2}, [1, "a"], datetime.date(2020, 1, 1), b"\xff\x00", {"low": 1, "high": 0},
]  # fmt: skip


def _places(tree: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [above, *(place for key, value in items for place in _places(value, (*above, key)))]


def spoil_settings(rng: random.Random, tree: Any) -> Any:
    """A setting that is missing, there twice, renamed, of another type, huge, no number, nested, or elsewhere."""
    places = [place for place in _places(tree) if place]
    if not places:
        return rng.choice(ODD)
    *above, key = rng.choice(places)
    parent = tree
    for part in above:
        parent = parent[part]
    match rng.randrange(8):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            name = str(key)
            parent[rng.choice([name + "s", name[:-1], name.upper(), "name", "label", ""])] = parent.pop(key)
        case 2 if isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), parent[key])
        case 3:
            parent[key] = [parent[key]]
        case 4:
            parent[key] = {str(rng.choice(["name", "options", "low", "x"])): parent[key]}
        case _:
            parent[key] = rng.choice(ODD)
    return tree


def spoil_experiment(rng: random.Random, text: str) -> bytes:
    if rng.random() < 0.75:
        tree = yaml.safe_load(text)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            if isinstance(tree, dict | list):
                tree = spoil_settings(rng, tree)
        content = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode()
        return content if rng.random() < 0.95 else content.decode().encode(rng.choice(["utf-16", "latin-1"]), "replace")
    for _ in range(rng.choice([1, 1, 2])):
        text = spoil_tokens(rng, text) if rng.random() < 0.4 else spoil_lines(rng, text)
    return spoil_bytes(rng, text.encode()) if rng.random() < 0.4 else text.encode()


# -- archives ----------------------------------------------------------------------------------------------------------


def _words(rng: np.random.Generator, count: int) -> str:
    words = np.array([f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nrst"])
    return " ".join(words[rng.zipf(1.5, count) % len(words)])


def newsgroups() -> Tree:
    rng, tree = np.random.default_rng(0), Tree()
    for start, part in ((10_000, OFFICIAL_SPLITS[0]), (20_000, OFFICIAL_SPLITS[1])):
        for group in (*LABELS, "alt.atheism"):
            for number in range(start, start + 7):
                text = f"From: {_words(rng, 1)}@x.org\nSubject: {group}\n\n{_words(rng, 12)} caf\xe9\n"
                tree[f"{part}/{group}/{number}"] = text.encode("latin-1")
    return tree


def amazon() -> Tree:
    rng, tree = np.random.default_rng(1), Tree()
    for domain in PRODUCTS:
        for part, count in (("train", 20), ("test", 8), ("unlabel", 3)):
            lines = [_words(rng, 10) for _ in range(count)]
            if part != "unlabel":
                lines = [f"{number % 2}\t{line}" for number, line in enumerate(lines)]
            tree[f"mtl-dataset/{domain}.task.{part}"] = "".join(f"{line}\n" for line in lines).encode()
    return tree


def celeba() -> Tree:
    rng, images = np.random.default_rng(0), [f"{number:06d}.jpg" for number in range(1, 46)]
    tree = {f"img_align_celeba/{image}": encoded(picture(rng, 27, 22), "JPEG") for image in images}
    rows = [f"{image} {' '.join(str(value) for value in rng.choice([-1, 1], len(NINE)))}" for image in images]
    tree["list_attr_celeba.txt"] = ("\n".join([str(len(images)), " ".join(NINE), *rows]) + "\n").encode()
    parts = [f"{image} {number % 3}" for number, image in enumerate(images)]
    tree["list_eval_partition.txt"] = ("\n".join(parts) + "\n").encode()
    return tree


def mnist() -> Tree:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), 30))
    images = (rng.integers(0, 100, (300, 4, 4)) + 10 * labels[:, None, None]).astype(np.uint8)

    def idx(values: np.ndarray) -> bytes:
        return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()

    return {
        "train-images-idx3-ubyte.gz": gzip.compress(idx(images)),
        "train-labels-idx1-ubyte": idx(labels),
    }


def cityscapes() -> Tree:
    rng, tree = np.random.default_rng(1), Tree()

    def npy(array: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()

    for part, count in (("train", 9), ("val", 3)):
        for number in range(count):
            tree[f"{part}/image/{number}.npy"] = npy(picture(rng, 16, 32).astype(np.float64) / 255)
            tree[f"{part}/label/{number}.npy"] = npy(rng.integers(-1, 7, (16, 32)).astype(np.float64))
            tree[f"{part}/depth/{number}.npy"] = npy(rng.uniform(0, 0.4, (16, 32, 1)))
    return tree


def school() -> Tree:
    rng, x, y = np.random.default_rng(0), np.empty((1, 3), object), np.empty((1, 3), object)
    for place in range(3):
        x[0, place] = rng.integers(0, 2, (30, 28)).astype(float)
        y[0, place] = rng.integers(1, 71, (30, 1)).astype(float)
    buffer = io.BytesIO()
    savemat(buffer, {"X": x, "Y": y})
    return {"school.mat": buffer.getvalue()}


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    content = {"task": ["a", "b"] * 30, "size": rng.normal(size=60), "kind": list("xyz") * 20}
    return pd.DataFrame({**content, "weight": rng.integers(0, 9, 60), "target": rng.normal(size=60)})[
        ["task", "size", "weight", "target"]
    ]


def csv() -> Tree:
    return {"x.csv": _frame().to_csv(index=False).encode()}


def parquet() -> Tree:
    buffer = io.BytesIO()
    _frame().to_parquet(buffer)
    return {"x.parquet": buffer.getvalue()}


# name, options, whether it is read out of archives, its files
SOURCES: list[tuple[str, list[str], tuple[str, ...], Callable[[], Tree]]] = [
    ("newsgroups", ["length=16"], ("zip", "tar", "tar.gz"), newsgroups),
    ("amazon", ["length=16"], ("zip", "tar", "tar.gz"), amazon),
    ("celeba", ["size=16"], ("zip", "tar"), celeba),
    ("cityscapes", ["size=[16, 32]", "validation=0.3"], ("zip", "tar"), cityscapes),
    ("mnist_mtl", ["positives=10", "negatives=2", "components=4"], (), mnist),
    ("school", [], (), school),
    ("table", [], (), csv),
    ("table", [], (), parquet),
]


def write_source(rng: random.Random, tree: Tree, forms: tuple[str, ...], folder: Path) -> Path:
    """A spoilt source: a file of it, its members, or the archive itself. The folder, or the archive."""
    tree = dict(tree)
    form = rng.choice(["folder", *forms])
    if form == "folder" or rng.random() < 0.4:
        _spoil_tree(rng, tree)
    root = folder / "source"
    root.mkdir()
    if form == "folder":
        for name, content in tree.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return root
    archive = folder / f"source.{form}"
    content = _zipped(rng, tree) if form == "zip" else _tarred(rng, tree, form)
    if rng.random() < 0.5:
        content = spoil_bytes(rng, content)
    archive.write_bytes(content)
    return archive


def _spoil_tree(rng: random.Random, tree: Tree) -> None:
    name = rng.choice(sorted(tree))
    if rng.random() < 0.3 and (lists := [other for other in tree if len(tree) > 9 and "list" in other]):
        name = rng.choice(lists)
    match rng.randrange(6):
        case 0:
            del tree[name]
        case 1:
            tree[f"{name}x"] = tree.pop(name)
        case 2:
            tree[name] = tree[rng.choice(sorted(tree))]
        case 3:
            text = tree[name].decode("latin-1")
            changed = (
                spoil_lines(rng, text) if rng.random() < 0.5 or not TOKEN.search(text) else spoil_tokens(rng, text)
            )
            tree[name] = changed.encode("latin-1", "replace")
        case _:
            tree[name] = spoil_bytes(rng, tree[name])


BOMB = bytes(20_000_000)  # packed, a few thousand


def _extra(rng: random.Random, names: list[str]) -> tuple[str, bytes]:
    """A member that should not be there."""
    return rng.choice(
        [
            ("/etc/passwd", b"x"),
            ("../../outside", b"x"),
            ("a/../../outside", b"x"),
            ("C:\\windows", b"x"),
            ("x" * 300, b"x"),
            ("bomb", BOMB),
            (rng.choice(names), BOMB),
            (rng.choice(names), b""),
            ("list_attr_celeba.csv", b"\xff,\n"),
            ("é\u2028", b"x"),
        ]
    )


def _zipped(rng: random.Random, tree: Tree) -> bytes:
    buffer, names = io.BytesIO(), sorted(tree)
    with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, content in tree.items():
            archive.writestr(name, content)
        if rng.random() < 0.5:
            extra, content = _extra(rng, names)
            info = zipfile.ZipInfo(extra)
            info.compress_type = zipfile.ZIP_DEFLATED
            if rng.random() < 0.3:
                info.external_attr = 0o120777 << 16  # a link
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a name that is there twice
                archive.writestr(info, content)
    return buffer.getvalue()


def _tarred(rng: random.Random, tree: Tree, form: str) -> bytes:
    buffer, names = io.BytesIO(), sorted(tree)
    members = list(tree.items())
    with tarfile.open(fileobj=buffer, mode="w:gz" if form.endswith("gz") else "w") as archive:
        if rng.random() < 0.5:
            members.insert(rng.randrange(len(members) + 1), _extra(rng, names))
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if rng.random() < 0.3:
            info = tarfile.TarInfo(rng.choice([*names, "link"]))
            info.type = rng.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
            info.linkname = rng.choice(["/etc/passwd", names[0], info.name, "../x"])
            archive.addfile(info)
    return buffer.getvalue()
