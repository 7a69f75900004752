"""Decoding and resizing: which pixel stays, and what is no image of the expected kind."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from image_sets import encoded
from PIL import Image

from mtlscale.config import UserError
from pipelines._images import pixels as pixels
from pipelines._sources.file_store import Store, Unreadable, read_file


def test_nearest_takes_the_pixel_under_the_new_centre() -> None:
    column = np.arange(6)[:, None]
    assert pixels.nearest(column, (3, 1)).ravel().tolist() == [1, 3, 5]
    assert pixels.nearest(column, (2, 1)).ravel().tolist() == [1, 4]
    assert pixels.nearest(column, (4, 1)).ravel().tolist() == [0, 2, 3, 5]
    assert pixels.nearest(column[:2], (4, 1)).ravel().tolist() == [0, 0, 1, 1]
    both = np.arange(12).reshape(3, 4)
    assert pixels.nearest(both, (1, 2)).tolist() == [[5, 7]]
    assert pixels.nearest(both, (3, 4)) is both
    turned = np.stack([both, both + 100], axis=-1)
    assert pixels.nearest(turned, (1, 2)).tolist() == [[[5, 105], [7, 107]]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_nearest_agrees_with_pillow(dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 200, (47, 61)).astype(dtype)
    wide = Image.fromarray(values.astype(np.float32)).resize((23, 19), Image.Resampling.NEAREST)
    assert np.array_equal(pixels.nearest(values, (19, 23)), np.asarray(wide).astype(dtype))


def test_colour_is_averaged_when_it_shrinks() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[::2] = 200
    shrunk, before = pixels.colour(encoded(stripes, "PNG"), (8, 8))
    assert before == (64, 64)
    assert shrunk.shape == (3, 8, 8)
    assert abs(shrunk.astype(int) - 100).max() <= 10  # picking pixels would give 0 or 200
    assert np.array_equal(pixels.resize_colour(stripes, (8, 8)), shrunk)


def test_labels_outside_the_table_are_refused() -> None:
    table = pixels.table_of({1: 0, 3: 1}, void=(0,))
    assert pixels.classes(np.array([[0, 1, 3]]), table, "x").tolist() == [[-1, 0, 1]]
    for label in (2, 4, 255):
        with pytest.raises(pixels.BadImage, match=f"has the label {label}, outside x"):
            pixels.classes(np.array([[0, 1, label]]), table, "x")
    with pytest.raises(pixels.BadImage, match="has the label -1"):
        pixels.classes(np.array([[0, -1]]), table, "x")


def test_filtered_maps_keep_their_mean() -> None:
    numbers = np.random.default_rng(0).random((40, 40))
    shrunk = pixels.filtered(numbers, (10, 10))
    assert shrunk.dtype == np.float32
    assert shrunk.mean() == pytest.approx(numbers.mean(), abs=0.01)
    assert shrunk.std() < numbers.std() / 2


@pytest.mark.parametrize("raw", [b"", b"no image", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"])
def test_what_is_no_image_is_said_to_be_corrupt(raw: bytes) -> None:
    with pytest.raises(pixels.BadImage, match="is corrupt"):
        pixels.open_image(raw)


def test_files_that_change_after_they_were_listed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content")
    (tmp_path / ".hidden").write_text("x")
    store = Store(tmp_path, lambda name: name.endswith(".txt"))
    assert store.names == ["a.txt"]
    assert store.read("a.txt") == b"content"
    (tmp_path / "a.txt").unlink()
    with pytest.raises(Unreadable, match="cannot be read"):
        read_file(str(tmp_path), store.location("a.txt"))
    (tmp_path / "set.tar").write_bytes(b"x" * 1024)
    with pytest.raises(UserError, match=r"set\.tar is truncated or is no tar or zip archive"):
        Store(tmp_path / "set.tar", lambda name: True)
    (tmp_path / "set.tar").write_bytes(gzip.compress(b"x" * 1024))
    with pytest.raises(UserError, match=r"set\.tar is a compressed tar, .*; extract it and pass its folder"):
        Store(tmp_path / "set.tar", lambda name: True)
