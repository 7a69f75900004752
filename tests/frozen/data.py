"""Tiny data sets from seeded generators, in plain arrays: nothing here knows the package that is tested.

Builders are called by name with the options of a case. Labels that are not there are -1 or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, dict[str, np.ndarray]]  # inputs, and the targets by task

CLASSES, NUMBER, LABEL = ("cross_entropy", ("accuracy",)), ("mse", ("mse",)), ("bce", ("error",))
MAPS = {
    "kind": ("cross_entropy", 3, ("miou", "pixel_accuracy")),
    "depth": ("l1", 1, ("abs_err", "rel_err")),
    "normals": ("cosine", 3, ("angle_mean", "within_30")),
}
SPLITS = {"train": 1.0, "val": 0.6, "test": 0.6}  # sizes over those of the training set


@dataclass(frozen=True)
class Data:
    """A suite and its samples: task -> (loss, outputs, metrics), split -> stream -> arrays."""

    shared: bool
    kind: str  # of the inputs: vector, tokens, image
    shape: tuple[int, ...]
    tasks: dict[str, tuple[str, int, tuple[str, ...]]]
    splits: dict[str, dict[str, Arrays]]
    vocabulary: int | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    domains: tuple[str, ...] = ()  # source and target of a transfer, whose stream `target` has no labels
    tags: tuple[str, ...] = ()  # the names of the classes of tasks that have one for each token
    unlabelled: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()  # codes of each input column, 0 for numbers


def shop(spent: bool = True, rows: int = 29) -> Data:
    """Customers and goods by their codes, beside a number: is it clicked, is what is clicked bought, and `spent`, how
    much. A code of each column occurs in validation and test alone."""
    rng = np.random.default_rng(9)
    counts = (7, 0, 4)
    tastes, prices = rng.normal(size=counts[0]), rng.normal(size=counts[2])

    def stream(rows: int, first: int) -> Arrays:
        who, what = rng.integers(first, counts[0], rows), rng.integers(first, counts[2], rows)
        number = rng.normal(size=rows)
        score = tastes[who] * prices[what] + 0.5 * number + 0.3 * rng.normal(size=rows)
        click = (score > -0.3).astype(np.int64)
        buy = click * (score + prices[what] > 0.2)
        money = np.where(np.arange(rows) % 5 == 1, np.nan, score + prices[what])
        targets = {"click": click, "buy": buy, **({"spent": money.astype(np.float32)} if spent else {})}
        return np.stack([who, number, what], 1).astype(np.float32), targets

    splits = {
        split: {"all": stream(max(5, int(rows * share)), int(split == "train"))} for split, share in SPLITS.items()
    }
    tasks = dict.fromkeys(("click", "buy"), (LABEL[0], 1, LABEL[1])) | (
        {"spent": (NUMBER[0], 1, NUMBER[1])} if spent else {}
    )
    extras = {"columns": ["user", "number", "item"]}
    return Data(True, "vector", (len(counts),), tasks, splits, extras=extras, categories=counts)


def molecules(positions: bool = False, rows: int = 29) -> Data:
    """Graphs of two to five nodes of two kinds, in rows of their codes and edges, or of their codes and positions: how
    many pairs of neighbours are of one kind, how large it is (every fifth label is missing), is it large."""
    rng, most = np.random.default_rng(10), 5

    def graph() -> tuple[np.ndarray, tuple[float, float]]:
        count = int(rng.integers(2, most + 1))
        codes, edges, places = np.zeros((most, 2)), np.zeros((most, most)), np.zeros((most, 3))
        codes[:count] = np.stack([rng.integers(1, 3, count), rng.integers(1, 4, count)], 1)
        places[:count] = 1.5 * rng.normal(size=(count, 3))
        for node in range(1, count):
            other = int(rng.integers(0, node))
            edges[node, other] = edges[other, node] = rng.integers(1, 4)
        alike = sum(codes[i, 0] == codes[j, 0] for i, j in zip(*np.nonzero(edges), strict=True)) / 2
        row = np.concatenate([codes[:, :1].ravel(), places.ravel()] if positions else [codes.ravel(), edges.ravel()])
        return row, (float(alike), float(codes[:, 1].sum()))

    def stream(rows: int) -> Arrays:
        graphs = [graph() for _ in range(rows)]
        inputs = np.stack([row for row, _ in graphs]).astype(np.float32)
        alike, size = (np.array(values, np.float32) for values in zip(*(labels for _, labels in graphs), strict=True))
        size = (size - 5) / 3
        labels = {"alike": alike, "size": np.where(np.arange(rows) % 5 == 1, np.nan, size).astype(np.float32)}
        return inputs, {**labels, "large": (size > 0).astype(np.int64)}

    splits = {split: {"all": stream(max(5, int(rows * share)))} for split, share in SPLITS.items()}
    tasks = dict.fromkeys(("alike", "size"), (NUMBER[0], 1, NUMBER[1])) | {"large": (LABEL[0], 1, LABEL[1])}
    node_codes, edge_codes, dimensions = ([3], 0, 3) if positions else ([3, 4], 4, 0)
    layout = {"nodes": most, "node_codes": node_codes, "edge_codes": edge_codes, "dimensions": dimensions}
    edges = (edge_codes,) * most**2 if edge_codes else ()
    counts = (*node_codes * most, *edges, *(0,) * (most * dimensions))
    return Data(True, "vector", (len(counts),), tasks, splits, extras={"graph": layout}, categories=counts)


def uneven(shared: bool = False, poison: bool = False) -> Data:
    """Two classifications and a regression of 29, 20 and 11 samples with every fifth label missing; `poison` puts a
    NaN into an input."""
    sizes, features = {"a": 29, "b": 20, "c": 11}, 6
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(features, 3))

    def stream(names: tuple[str, ...], rows: int) -> Arrays:
        inputs = rng.normal(size=(rows, features)).astype(np.float32)
        scores = inputs @ directions + 0.3 * rng.normal(size=(rows, 3))
        places = np.arange(rows)
        targets = {
            "a": np.where(places % 5 == 4, -1, scores[:, 0] > 0).astype(np.int64),
            "b": np.digitize(scores[:, 1], [-1.0, 1.0]),
            "c": np.where(places % 5 == 1, np.nan, scores[:, 2]).astype(np.float32),
        }
        if poison:
            inputs[3, 0] = np.nan
        return inputs, {name: targets[name] for name in names}

    streams = {"all": (tuple(sizes), sizes["a"])} if shared else {name: ((name,), n) for name, n in sizes.items()}
    splits = {
        split: {name: stream(names, max(5, int(n * share))) for name, (names, n) in streams.items()}
        for split, share in SPLITS.items()
    }
    tasks = {"a": (CLASSES[0], 2, CLASSES[1]), "b": (CLASSES[0], 3, CLASSES[1]), "c": (NUMBER[0], 1, NUMBER[1])}
    return Data(shared, "vector", (features,), tasks, splits)


def domains() -> Data:
    """Three classes in a source of 29 samples and a target of 20, which is turned and moved."""
    rng, features = np.random.default_rng(7), 6
    centres, turn = rng.normal(size=(3, features)), np.linalg.qr(rng.normal(size=(features, features)))[0]

    def samples(rows: int, target: bool) -> Arrays:
        labels = np.arange(rows) % 3
        inputs = centres[labels] + 0.5 * rng.normal(size=(rows, features))
        return (inputs @ turn + 0.5 if target else inputs).astype(np.float32), {"class": labels}

    moved = samples(20, True)
    splits = {
        "train": {"class": samples(29, False), "target": (moved[0], {})},
        "val": {"class": samples(9, False), "target": (moved[0][:0], {})},
        "test": {"class": moved, "target": (moved[0][:0], {})},
    }
    task = {"class": (CLASSES[0], 3, CLASSES[1])}
    return Data(False, "vector", (features,), task, splits, domains=("source", "target"))


def many(sizes: tuple[int, ...] = (14, 9, 11), features: int = 8, soft: bool = False) -> Data:
    """Tasks of one kind with inputs of their own: labels of two classes, or `soft` distributions over three."""
    rng = np.random.default_rng(2)
    common = rng.normal(size=(features, 3))
    names = [f"t{index}" for index in range(len(sizes))]
    weights = {name: common + 0.5 * rng.normal(size=common.shape) for name in names}

    def stream(name: str, rows: int) -> Arrays:
        inputs = rng.normal(size=(rows, features)).astype(np.float32)
        scores = inputs @ weights[name] / 2 + 0.3 * rng.normal(size=(rows, 3))
        if not soft:
            return inputs, {name: (scores[:, 0] > scores[:, 1]).astype(np.int64)}
        powers = np.exp(scores)
        return inputs, {name: (powers / powers.sum(1, keepdims=True)).astype(np.float32)}

    splits = {
        split: {name: stream(name, max(5, int(n * share))) for name, n in zip(names, sizes, strict=True)}
        for split, share in SPLITS.items()
    }
    one = ("soft_cross_entropy", 3, ("soft_error",)) if soft else (CLASSES[0], 2, CLASSES[1])
    return Data(False, "vector", (features,), dict.fromkeys(names, one), splits)


def text(shared: bool = False, length: int = 12, rows: int = 12, words: int = 40) -> Data:
    """Documents of unequal length, padded with 0: is a word of the task's own among them?"""
    rng = np.random.default_rng(3)
    tasks = ("a", "b")

    def stream(names: tuple[str, ...], rows: int) -> Arrays:
        tokens = rng.integers(1, words, (rows, length))
        tokens[np.arange(length) >= rng.integers(length // 2, length + 1, rows)[:, None]] = 0
        found = {name: (tokens % 7 == 2 * tasks.index(name)).sum(1) for name in names}
        return tokens.astype(np.int32), {n: (v > np.median(v)).astype(np.int64) for n, v in found.items()}

    streams = {"all": tasks} if shared else {name: (name,) for name in tasks}
    splits = {
        split: {
            name: stream(names, int(rows * share) - 2 * place) for place, (name, names) in enumerate(streams.items())
        }
        for split, share in SPLITS.items()
    }
    one = (CLASSES[0], 2, CLASSES[1])
    return Data(shared, "tokens", (length,), dict.fromkeys(tasks, one), splits, vocabulary=words)


def tags(form: str = "words", shared: bool = False, rows: int = 12, words: int = 30, tasks: int = 2) -> Data:
    """Sentences of unequal length with a tag for most tokens, padded with 0, of three forms: `words` with the ids of
    three characters each, `pieces`, `vectors`. One sentence has no tag at all."""
    rng = np.random.default_rng(6)
    names, length, size = tuple("abcd"[:tasks]), 9, 4
    known = ("O", "B-X", "I-X", "B-Y", "I-Y")
    vectors = rng.normal(size=(words, size)).astype(np.float32)

    def stream(of: tuple[str, ...], rows: int) -> Arrays:
        tokens = rng.integers(2, words, (rows, length))
        there = np.arange(length) < rng.integers(2, length + 1, rows)[:, None]
        tokens[~there] = 0
        targets = {}
        for name in of:
            target = (tokens + names.index(name) * (tokens % 3 == 0)) % len(known)
            target[~there | (rng.random(tokens.shape) < 0.1)] = -1
            target[0] = -1
            targets[name] = target.astype(np.int16)
        if form == "vectors":
            return vectors[tokens] * there[:, :, None], targets
        if form == "words":
            tokens = np.stack([tokens, *(tokens % (5 + place) for place in range(3))], axis=2)
        return tokens.astype(np.int32), targets

    streams = {"all": names} if shared else {name: (name,) for name in names}
    splits = {
        split: {
            name: stream(of, max(2, int(rows * share) - 2 * place)) for place, (name, of) in enumerate(streams.items())
        }
        for split, share in SPLITS.items()
    }
    shape = {"words": (length, 4), "pieces": (length,), "vectors": (length, size)}[form]
    one = ("cross_entropy", len(known), ("entity_f1", "accuracy", "f1"))
    kind, extras = "vector" if form == "vectors" else "tokens", {"characters": list("abcde")}
    found = (shared, kind, shape, dict.fromkeys(names, one), splits)
    return Data(*found, vocabulary=None if form == "vectors" else words, extras=extras, tags=known)


def images(maps: bool = False, shared: bool = True, size: int = 16, rows: int = 10) -> Data:
    """Squares on a noisy ground: two labels of the image, or class, depth and normals by pixel; some are missing."""
    rng = np.random.default_rng(4)
    tasks = MAPS if maps else dict.fromkeys(("red", "high"), (LABEL[0], 1, LABEL[1]))

    def stream(names: tuple[str, ...], rows: int) -> Arrays:
        pixels = rng.integers(20, 90, (rows, 3, size, size))
        row, column = rng.integers(0, size // 2, (2, rows, 1, 1))
        red = rng.integers(0, 2, rows)
        y, x = np.mgrid[:size, :size]
        inside = (row <= y) & (y < row + size // 2) & (column <= x) & (x < column + size // 2)
        pixels[np.arange(rows), 2 * red] += 120 * inside
        slopes = np.ones((rows, 3, size, size))
        slopes[:, 0], slopes[:, 1] = (x - column) / size, (y - row) / size
        targets = {
            "red": red.astype(np.float32),
            "high": (row[:, 0, 0] < size / 4).astype(np.float32),
            "kind": np.where(inside, 1 + red[:, None, None], 0).astype(np.int64),
            "depth": np.where(inside, 1.0, 3.0 - y / size)[:, None].astype(np.float32),
            "normals": (slopes / np.linalg.norm(slopes, axis=1, keepdims=True)).astype(np.float32),
        }
        targets["red"][2], targets["kind"][0, :2], targets["depth"][1, 0, :, :2] = np.nan, -1, np.nan
        return pixels.astype(np.uint8), {name: targets[name] for name in names}

    streams = {"all": tuple(tasks)} if shared else {name: (name,) for name in tasks}
    splits = {
        split: {name: stream(names, max(5, int(rows * share))) for name, names in streams.items()}
        for split, share in SPLITS.items()
    }
    extras = {"mean": [70.0, 60.0, 70.0], "std": [40.0, 30.0, 40.0]}
    return Data(shared, "image", (3, size, size), dict(tasks), splits, extras=extras)


def pictures(rows: int = 24, size: int = 8, elsewhere: bool = True) -> Data:
    """Three classes of stripes by their direction, and checkered pictures of none as a stream `ood`."""
    rng = np.random.default_rng(5)

    def drawn(rows: int, kinds: np.ndarray) -> np.ndarray:
        y, x = np.mgrid[:size, :size]
        waves = np.stack([y, x, x + y, x * y])[kinds]
        pixels = rng.integers(40, 120, (rows, 3, size, size)) + 80 * (waves[:, None] % 4 < 2)
        return pixels.astype(np.uint8)

    splits: dict[str, dict[str, Arrays]] = {}
    for split, share in SPLITS.items():
        count = max(5, int(rows * share))
        labels = rng.integers(0, 3, count)
        splits[split] = {"all": (drawn(count, labels), {"kind": labels.astype(np.int64)})}
        if elsewhere:
            splits[split]["ood"] = (drawn(count, np.full(count, 3)), {})
    tasks = {"kind": ("cross_entropy", 3, ("accuracy",))}
    extras = {"mean": [110.0, 110.0, 110.0], "std": [50.0, 45.0, 55.0]}
    return Data(True, "image", (3, size, size), tasks, splits, extras=extras, unlabelled=("ood",) if elsewhere else ())


def arms(rows: int = 12, task_id: bool = False) -> Data:
    """What two arms see and do, in environments that nobody enters. Each observation differs from the mean in one of
    its numbers: a sum of products would round in another way elsewhere, which `random_actions` makes the most of."""
    names = ("reach", "drawer-close")
    rng, size = np.random.default_rng(8), 39

    def stream(name: str, rows: int) -> Arrays:
        inputs = np.zeros((rows, size + 2 * task_id), dtype=np.float32)
        inputs[np.arange(rows), rng.integers(0, 7, rows)] = rng.normal(size=rows)
        return inputs, {name: rng.uniform(-1.0, 1.0, (rows, 4)).astype(np.float32)}

    splits = {
        split: {name: stream(name, max(5, int(rows * share)) - 2 * place) for place, name in enumerate(names)}
        for split, share in SPLITS.items()
    }
    told = {
        "version": "3.1.1",
        "reward_version": "v2",
        "positions": "random",
        "horizon": 10,
        "tasks": names,
        "task_id": task_id,
        "mean": rng.uniform(0.0, 0.6, size).tolist(),
        "std": rng.uniform(0.05, 0.3, size).tolist(),
        "episodes": {"val": 1, "test": 1},
        "seed": 0,
    }
    one = ("mse", 4, ("mse",))
    shape = (size + 2 * task_id,)
    return Data(False, "vector", shape, dict.fromkeys(names, one), splits, extras={"environments": told})


BUILDERS = {
    "arms": arms,
    "domains": domains,
    "uneven": uneven,
    "many": many,
    "text": text,
    "tags": tags,
    "images": images,
    "pictures": pictures,
    "shop": shop,
    "molecules": molecules,
}
