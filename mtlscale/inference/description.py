"""The description of an exported model, `model.json`, and the check that its folder is unchanged.

<folder>/model.safetensors   parameters and buffers of the chosen epoch
<folder>/model.json          the `Description`, with the sha256 of every file but the card
<folder>/README.md           the model card, which may be edited
<folder>/vocabulary.txt      the words in the order of their token ids, for text models
<folder>/tokenizer/          configuration and tokenizer of a pretrained model
<folder>/found.safetensors   tensors of a search's output, if it has any
<folder>/plugins/            sources of components that are not shipped
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mtlscale.config import TaskSuite, UserError
from mtlscale.data.remote import sha256_of
from mtlscale.records import Metrics

FORMAT = 1
DESCRIPTION, MODEL, CARD = "model.json", "model.safetensors", "README.md"
VOCABULARY, TOKENIZER, FOUND, PLUGINS = "vocabulary.txt", "tokenizer", "found.safetensors", "plugins"

Words = Literal["latin1", "unicode", "spaces"]  # rule that splits a text into words (`mtlscale.data.format.texts`)
_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')
_OPEN = b'"seal": "' + b"0" * 64 + b'"'


class PluginSource(BaseModel):
    """Source file of components that are not shipped."""

    file: str  # path below the folder
    source: str  # the hash that the run's spec names
    components: list[str]  # "architecture planted"


class InputDescription(BaseModel):
    """Inputs that a network reads, and the conversion of raw inputs into them."""

    kind: Literal["vector", "tokens", "image"]
    shape: tuple[int, ...]
    dtype: str  # of prepared inputs
    words: Words | None = None  # texts: rule that splits them into words; None if it is unknown
    tokenizer: bool = False  # texts: split by the tokenizer in `tokenizer/`
    features: list[str] = []  # vectors: the names of the columns, if known
    mean: list[float] = []  # subtracted from raw features before they are divided by `deviation`; empty: neither
    deviation: list[float] = []
    categories: dict[str, list[str]] = {}  # vectors: column -> its values in the order of their codes, from 1
    # Vectors: the conversion of raw columns, as `TableColumn.as_json` writes it; empty: numbers and codes.
    columns: list[dict[str, Any]] = []
    low: list[float] = []  # vectors: the range of the training inputs, as prepared; empty: unknown
    high: list[float] = []


class RunFacts(BaseModel):
    """The run that a model comes from."""

    run_id: str
    experiment: str
    dataset: str
    method: str
    seed: int
    fingerprint: str
    chosen_epoch: int | None
    chosen_epochs: dict[str, int]
    threads: int  # of the measurement: another number may change the last digits of sums
    hardware: str
    revision: str
    versions: dict[str, str]
    finished: str


class Description(BaseModel):
    """The content of `model.json`."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    format: int = FORMAT
    seal: str = "0" * 64  # sha256 of the file with zeros as its seal
    mtlscale: str
    results_version: int  # of the training loop; those of components are in the spec
    run: RunFacts
    spec: dict[str, Any]  # as hashed into the run's id
    suite: TaskSuite  # with the tasks and metrics that the run had
    target_shapes: dict[str, tuple[int, ...]] = {}
    phase: str  # the method's last phase
    found: Any = None  # output of the phase before it, as `nested.plain` encodes it
    input: InputDescription
    metrics: dict[str, Metrics]  # split -> task -> metric -> value
    main_metrics: dict[str, str]
    plugins: list[PluginSource] = []
    files: dict[str, str]  # path -> sha256

    def sealed(self) -> bytes:
        """Return the bytes of `model.json`, with their seal."""
        text = self.model_copy(update={"seal": "0" * 64}).model_dump_json(indent=1).encode() + b"\n"
        return _with_seal(text, hashlib.sha256(text).hexdigest())


def read_description(folder: Path) -> Description:
    """Read the description of an exported model, after checking the hash of every file but the card.

    Raises:
        UserError: A file is missing or changed (the message names it), or a newer version wrote the format.
    """
    path = folder / DESCRIPTION
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no exported model (no {DESCRIPTION}); write one with `mtlscale export`") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); make it readable") from None

    _check_format(path, text)

    seal = _SEAL.search(text)
    if seal is None or hashlib.sha256(_with_seal(text, "0" * 64)).hexdigest() != seal[1].decode():
        raise UserError(f"{path} is damaged: its bytes are not those that were written; export the run again")

    try:
        description = Description.model_validate_json(text)
    except ValidationError as error:
        raise UserError(f"{path} cannot be read ({error.errors()[0]['msg']}); export the run again") from None

    for name, digest in description.files.items():
        _check_file(folder / name, digest)
    return description


def _with_seal(text: bytes, seal: str) -> bytes:
    return _SEAL.sub(b'"seal": "' + seal.encode() + b'"', text, count=1)


def _check_format(path: Path, text: bytes) -> None:
    """Raise `UserError` if a newer version wrote the file; checked first, since all else may be laid out otherwise."""
    format_field = re.search(rb'"format": (\d{1,9})', text[:200])
    if format_field is not None and int(format_field[1]) > FORMAT:
        raise UserError(
            f"{path} has format {int(format_field[1])}, this version reads {FORMAT}; install a newer mtlscale"
        )


def _check_file(path: Path, sha256: str) -> None:
    try:
        digest = sha256_of(path)
    except OSError:
        raise UserError(f"{path} is missing; copy the whole folder, or export the run again") from None
    if digest != sha256:
        raise UserError(
            f"{path} is damaged: its bytes are not those that were written (sha256 {digest[:12]}… instead of "
            f"{sha256[:12]}…); export the run again"
        )
