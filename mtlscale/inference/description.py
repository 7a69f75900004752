"""The description of an exported model, `model.json`, and the hashes by which its folder is known to be unchanged.

<folder>/model.safetensors   parameters and buffers of the chosen epoch
<folder>/model.json          the `Description`
<folder>/SHA256SUMS          the sha256 of every file but itself and the card, as `sha256sum --check` reads it
<folder>/README.md           the model card, which may be edited
<folder>/vocabulary.txt      the words in the order of their token ids, for text models
<folder>/tokenizer/          configuration and tokenizer of a pretrained model
<folder>/found.safetensors   tensors of a search's output, if it has any
<folder>/plugins/            sources of components that are not shipped
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mtlscale.config import TaskSuite, UserError
from mtlscale.data.remote import sha256_of
from mtlscale.records import Metrics, write_atomically

FORMAT = 2
DESCRIPTION, MODEL, CARD, HASHES = "model.json", "model.safetensors", "README.md", "SHA256SUMS"
VOCABULARY, TOKENIZER, FOUND, PLUGINS = "vocabulary.txt", "tokenizer", "found.safetensors", "plugins"

Words = Literal["latin1", "unicode", "spaces"]  # rule that splits a text into words (`mtlscale.data.format.texts`)
_HASH = re.compile(r"([0-9a-f]{64})  (.+)")


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
    # Vectors: the conversion of raw columns, as `TableColumn.as_json` writes it; empty: numbers without known names.
    columns: list[dict[str, Any]] = []
    fills_empty: bool = True  # vectors: whether an empty cell is filled; if not, its row cannot be predicted
    mean: list[float] = []  # subtracted from raw features before they are divided by `deviation`; empty: neither
    deviation: list[float] = []
    low: list[float] = []  # vectors: the range of the training inputs, as prepared; empty: unknown
    high: list[float] = []

    @property
    def features(self) -> list[str]:
        """The names of the raw columns, if known."""
        return [column["name"] for column in self.columns]


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


def write_hashes(folder: Path) -> None:
    """Write the sha256 of every file of an exported model but the card."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    text = "".join(f"{sha256_of(folder / name)}  {name}\n" for name in names if name not in (CARD, HASHES))
    write_atomically(folder / HASHES, text.encode())


def read_description(folder: Path) -> Description:
    """Read the description of an exported model, after checking the hash of every file but the card.

    Raises:
        UserError: A file is missing or changed (the message names it), or another version wrote the format.
    """
    path = folder / DESCRIPTION
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no exported model (no {DESCRIPTION}); write one with `mtlscale export`") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); make it readable") from None

    _check_format(path, text)

    for name, digest in _hashes(folder).items():
        _check_file(folder / name, digest)

    try:
        return Description.model_validate_json(text)
    except ValidationError as error:
        raise UserError(f"{path} cannot be read ({error.errors()[0]['msg']}); export the run again") from None


def _check_format(path: Path, text: bytes) -> None:
    """Raise `UserError` if another version wrote the file; checked first, since all else may be laid out otherwise."""
    format_field = re.search(rb'"format": (\d{1,9})', text[:200])
    if format_field is not None and (number := int(format_field[1])) != FORMAT:
        mend = "install a newer mtlscale" if number > FORMAT else "export the run again"
        raise UserError(f"{path} has format {number}, this version reads {FORMAT}; {mend}")


def _hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file; `UserError` if the list is missing or damaged."""
    path = folder / HASHES
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError:
        raise UserError(f"{path} is missing; copy the whole folder, or export the run again") from None
    except UnicodeDecodeError:
        lines = []
    matches = [match for line in lines[:-1] if (match := _HASH.fullmatch(line))]
    hashes = {match[2]: match[1] for match in matches}
    if len(hashes) < len(lines) - 1 or lines[-1:] != [""] or not {DESCRIPTION, MODEL} <= hashes.keys():
        raise UserError(f"{path} is damaged: it is not the list that was written; export the run again")
    return hashes


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
