"""`studies/features.py`: how far the features of two domains mix, and whether classes lie together."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from features import Features, picture


def two_domains(shift: float, seed: int = 0) -> Features:
    """Draw 30 samples of each of two classes in each domain; the target's lie `shift` deviations away."""
    rng = np.random.default_rng(seed)
    classes = np.tile(np.repeat([0, 1], 30), 2)
    is_target = np.repeat([False, True], 60)
    places = np.stack([20.0 * classes, shift * is_target], 1)
    return Features((places + rng.normal(size=places.shape)).astype(np.float32), classes, is_target)


def test_domains_in_one_place_mix_and_domains_apart_do_not() -> None:
    assert 35 < two_domains(0.0).mixed() < 65
    assert two_domains(50.0).mixed() == 0.0


def test_a_target_lies_by_its_class_until_it_is_closer_to_another() -> None:
    near = two_domains(5.0)
    assert near.by_class() == 100.0
    exchanged = Features(near.values, np.where(near.is_target, 1 - near.classes, near.classes), near.is_target)
    assert exchanged.by_class() == 0.0


def test_a_picture_has_a_panel_for_each_method(tmp_path: Path) -> None:
    path = picture({"source only": two_domains(5.0), "PC": two_domains(0.0)}, "A-W", tmp_path / "features.svg")
    text = path.read_text(encoding="utf-8")
    assert "source only" in text and "PC" in text
