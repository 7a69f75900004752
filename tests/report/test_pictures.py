"""The grid of predictions beside truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtlscale.report.charts.chart import Image
from mtlscale.report.charts.prediction_grids import Maps, colours, picture_chart
from mtlscale.report.charts.vega import save

COUNT, HEIGHT, WIDTH = 3, 8, 10


def maps() -> list[Maps]:
    rng = np.random.default_rng(0)
    classes = rng.integers(-1, 4, (COUNT, HEIGHT, WIDTH))
    depth = rng.uniform(1, 5, (COUNT, HEIGHT, WIDTH))
    depth[0, 0] = np.nan
    normals = rng.normal(size=(COUNT, 3, HEIGHT, WIDTH))
    normals[1, :, 2] = np.nan
    return [
        Maps("segmentation", "classes", classes.clip(0), classes, ("wall", "floor", "chair", "table")),
        Maps("depth", "numbers", np.nan_to_num(depth) + 1, depth),
        Maps("normals", "normals", np.nan_to_num(normals) * 3, normals),
    ]


def test_equal_maps_have_equal_colours_and_absent_truth_is_grey() -> None:
    for of, absent in zip(maps(), ("classes", "depth", "normals"), strict=True):
        guess, truth = colours(of)
        assert guess.shape == truth.shape == (COUNT, HEIGHT, WIDTH, 3)
        assert guess.min() >= 0 and guess.max() <= 1
        missing = of.truth == -1 if absent == "classes" else np.isnan(of.truth)
        missing = missing.any(1) if absent == "normals" else missing
        assert missing.any() and (truth[missing] == 0.85).all()
        if absent != "depth":
            np.testing.assert_allclose(guess[~missing], truth[~missing])


def test_normals_are_told_by_direction_alone() -> None:
    up = np.zeros((1, 3, 1, 2))
    up[:, 2] = [[5.0, 0.1]]
    guess, _ = colours(Maps("normals", "normals", up, up))
    np.testing.assert_allclose(guess[0, 0], [[0.5, 0.5, 1.0]] * 2)


def test_numbers_use_the_range_of_the_truth() -> None:
    truth = np.array([[[1.0, 3.0]]])
    guess, of_truth = colours(Maps("depth", "numbers", np.array([[[0.0, 9.0]]]), truth))
    np.testing.assert_allclose(guess, of_truth)  # beyond the range: its ends


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_grid_has_a_row_per_image_and_two_columns_per_task(dtype: type, tmp_path: Path) -> None:
    inputs = np.random.default_rng(1).uniform(0, 255, (COUNT, 3, HEIGHT, WIDTH)).astype(dtype)
    chart = picture_chart(inputs, maps(), "nyuv2, hps, seed 0")
    assert len(chart.panels) == COUNT * 7 and chart.across == 7
    assert [panel.title for panel in chart.panels[:3]] == ["image", "segmentation\npredicted", "segmentation\ntrue"]
    assert [text for _, text in chart.key] == ["wall", "floor", "chair", "table"]
    [image] = chart.panels[0].of(Image)
    assert image.pixels.shape == (HEIGHT, WIDTH, 3)
    if dtype is np.uint8:
        np.testing.assert_allclose(image.pixels, np.moveaxis(inputs[0], 0, -1) / 255)
    assert save([chart], tmp_path / "pictures.png").read_bytes().startswith(b"\x89PNG")


def test_classes_beyond_the_palette_and_maps_without_truth_are_drawn() -> None:
    many = np.arange(40).reshape(1, 4, 10)
    nothing = np.full((1, 4, 10), np.nan)
    shown = [
        Maps("many", "classes", many, np.full_like(many, -1)),
        Maps("depth", "numbers", np.zeros_like(nothing), nothing),
    ]
    assert len(picture_chart(np.zeros((1, 1, 4, 10), np.uint8), shown).panels) == 5
