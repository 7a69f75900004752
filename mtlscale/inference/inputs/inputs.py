"""Conversion of raw or prepared inputs into a network's tensors, as the pipeline of its data made them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.data.tables.table_format import TableFormat
from mtlscale.inference.description import TOKENIZER, VOCABULARY, Description
from mtlscale.inference.inputs.features import Unfamiliar, listed, read_features, unfamiliar

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class ConvertedInputs:
    """Inputs [N, *shape] as prepared sets store them, their positions among the given inputs, and the skipped ones."""

    inputs: Tensor
    positions: list[int]
    skipped: list[str] = field(default_factory=list)
    unfamiliar: Unfamiliar = field(default_factory=Unfamiliar)


class InputReader:
    """Converter of inputs into those of an exported model.

    A bad input raises a `UserError` that names it or, with `skip_bad`, is left out.
    """

    def __init__(self, folder: Path, description: Description) -> None:
        self.folder, self.suite, self.description = folder, description.suite, description.input
        options = description.spec["dataset"]
        self.form = TableFormat.of(options)
        self.white = float(options.get("white", 0.0))

    @property
    def file_form(self) -> TableFormat:
        """How files to predict are written: words such as NA stay texts until the columns of the model are known."""
        return replace(self.form, missing=self.form.missing or ())

    @property
    def text_columns(self) -> set[str]:
        """The columns of categories and molecules, which are read as texts."""
        kinds = ("category", "smiles")
        return {str(entry["name"]) for entry in self.description.columns if entry["kind"] in kinds}

    @functools.cached_property
    def vocabulary(self) -> list[str]:
        """The words by token id; raises `UserError` if the model's token ids have no words."""
        path = self.folder / VOCABULARY
        if not path.is_file():
            raise UserError(f"{self.folder} has no words of {self.suite.name}; give token ids {self._expected_form()}")
        return path.read_text(encoding="utf-8").split("\n")[:-1]

    def tensor(self, inputs: Any) -> Tensor:
        """Convert all inputs, and warn of those unlike the training data."""
        converted = self.read(inputs)
        for line in converted.unfamiliar.warnings(len(converted.inputs)):
            warnings.warn(line, stacklevel=3)
        return converted.inputs

    def read(self, inputs: Any, *, skip_bad: bool = False) -> ConvertedInputs:
        """Convert the inputs that can be read; raise `UserError` if there are none."""
        converted = self.convert(inputs, skip_bad=skip_bad)
        if not len(converted.inputs):
            cause = f": {converted.skipped[0]}" if converted.skipped else ""
            raise UserError(f"there is nothing to predict{cause}; give at least one input")
        return converted

    def convert(self, inputs: Any, *, skip_bad: bool = False, rows: Sequence[Any] | None = None) -> ConvertedInputs:
        """Convert the inputs that can be read, possibly none.

        `rows` are the numbers of a table's rows in messages; by default they count from 1.
        """
        converted = self._convert(inputs, skip_bad, rows)
        if self.description.low:
            row_numbers = [index + 1 if rows is None else rows[index] for index in converted.positions]
            numbers, of_table = converted.inputs.numpy(), not isinstance(inputs, Tensor | np.ndarray | list | tuple)
            converted.unfamiliar.add(unfamiliar(self.description, numbers, row_numbers, of_table=of_table))
        return converted

    def _convert(self, inputs: Any, skip_bad: bool, rows: Sequence[Any] | None) -> ConvertedInputs:
        if hasattr(inputs, "columns") and not isinstance(inputs, Tensor) and not hasattr(inputs, "schema"):
            import pyarrow as pa

            inputs = pa.Table.from_pandas(inputs, preserve_index=False)
        elif isinstance(inputs, Mapping):
            import pyarrow as pa

            inputs = pa.table(dict(inputs))

        if hasattr(inputs, "schema"):
            return self._table(inputs, skip_bad, range(1, len(inputs) + 1) if rows is None else rows)

        if isinstance(inputs, str | bytes | Path) or _is_image(inputs):
            inputs = [inputs]
        if isinstance(inputs, list | tuple):
            if not inputs:
                return ConvertedInputs(torch.empty(0), [])
            if all(_is_text(item) for item in inputs) and self.description.kind == "tokens":
                return _all_kept(self._convert_texts(inputs))
            if all(isinstance(item, str | bytes | Path) or _is_image(item) for item in inputs):
                return self._images(inputs, skip_bad)
        return _all_kept(self._numbers(inputs))

    # -- what the network reads ------------------------------------------------------------------------------------

    def _expected_form(self) -> str:
        shape = ", ".join(map(str, self.description.shape))
        return f"[N, {shape}] of {self.description.dtype}"

    def _numbers(self, inputs: Any, rows: Sequence[Any] | None = None) -> Tensor:
        """Check an array or tensor, and convert it to the type that prepared sets store."""
        try:
            # A frame's own array cannot be written to, which torch warns of: such ones are copied.
            array = None if isinstance(inputs, Tensor) else np.require(inputs, requirements="W")
            values = inputs.detach().cpu() if array is None else torch.as_tensor(array)
        except (TypeError, ValueError):
            raise UserError(
                f"the inputs are {type(inputs).__name__}, the model reads {self._expected_form()}"
            ) from None
        if tuple(values.shape[1:]) != self.description.shape or values.ndim == 0:
            raise UserError(f"the inputs have shape {list(values.shape)}, the model reads {self._expected_form()}")

        dtype = getattr(torch, self.description.dtype)
        name = str(values.dtype).removeprefix("torch.")
        if self.description.kind == "tokens":
            if values.is_floating_point() or values.dtype == torch.bool:
                raise UserError(f"the inputs are {name}, the model reads token ids {self._expected_form()}")
            size = max(self.suite.vocabulary_size or 0, 2 + len(self.suite.extras.get("characters", ())))
            if len(values) and (int(values.min()) < 0 or int(values.max()) >= size):
                raise UserError(f"the inputs hold token ids outside 0..{size - 1}, the model's vocabulary")
            return values.to(dtype)

        if self.description.kind == "image" and not values.is_floating_point():
            if values.dtype != torch.uint8:
                raise UserError(f"the inputs are {name}, the model reads {self._expected_form()}")
            return values

        not_finite = ~torch.isfinite(values.to(torch.float64)).flatten(1)
        if not_finite.any():
            row, column = not_finite.nonzero()[0].tolist()
            number = row + 1 if rows is None else rows[row]
            raise UserError(f"row {number} has no finite number in place {column + 1}; mend or leave out the row")
        return values.to(torch.float32 if self.description.kind == "image" else dtype)

    # -- texts -----------------------------------------------------------------------------------------------------

    def _convert_texts(self, texts: Sequence[Any]) -> Tensor:
        """Convert texts, or pairs of them as tuples, into token ids."""
        if self.description.kind != "tokens":
            raise UserError(f"the inputs are texts, the model reads {self.description.kind}s: {self._expected_form()}")
        if self.suite.per_token:
            raise UserError(
                f"the model gives tags of tokens, whose words a text does not show; give {self._expected_form()}, or "
                "a set that is prepared as the run's was"
            )

        firsts = [text if isinstance(text, str) else text[0] for text in texts]
        seconds = [None if isinstance(text, str) else text[1] for text in texts]
        if self.description.tokenizer:
            return self._tokenized(firsts, seconds)
        if self.description.words is None:
            raise UserError(
                f"nobody knows how texts become the token ids of {self.suite.name}; give {self._expected_form()}"
            )

        from mtlscale.data.format.texts import SEPARATOR, encode, join_pairs, words_in

        words, length = self.vocabulary, self.description.shape[0]
        tokens = words_in(firsts, self.description.words)
        paired = [second is not None for second in seconds]
        if any(paired):
            if SEPARATOR not in words:
                raise UserError(f"the inputs are pairs of texts, {self.suite.name} has single ones")
            tokens = join_pairs(
                tokens, words_in([second or "" for second in seconds], self.description.words), paired, length
            )
        return torch.from_numpy(encode(tokens, words, length).flatten().to_numpy().reshape(len(texts), length).copy())

    def _tokenized(self, firsts: Sequence[str], seconds: Sequence[str | None]) -> Tensor:
        import importlib.util

        from mtlscale.data.format.tokenizer import tokenize

        if importlib.util.find_spec("transformers") is None:
            raise UserError("this model's texts need transformers; pip install transformers")
        length = self.description.shape[0]
        ids = torch.from_numpy(tokenize(str(self.folder), self.folder / TOKENIZER, firsts, seconds, length).ids)
        return torch.nn.functional.pad(ids, (0, length - ids.shape[1]))

    # -- pictures --------------------------------------------------------------------------------------------------

    def _images(self, items: Sequence[Any], skip_bad: bool) -> ConvertedInputs:
        """Decode pictures of any size, given by path, by their bytes, or as Pillow images."""
        if self.description.kind != "image" or self.description.dtype != "uint8":
            given_kind = "pictures" if not all(isinstance(entry, str) for entry in items) else "texts"
            raise UserError(
                f"the inputs are {given_kind}, the model reads {self.description.kind}s: {self._expected_form()}"
            )

        from mtlscale.data.format.image_decoding import BadImage

        pictures, positions, skipped = [], [], []
        for position, item in enumerate(items):
            name = str(item) if isinstance(item, str | Path) else f"picture {position + 1}"
            try:
                pictures.append(torch.from_numpy(_pixels(item, self.description.shape, self.white)))
                positions.append(position)
            except (BadImage, OSError) as error:
                cause = error.strerror if isinstance(error, OSError) and error.strerror else error
                problem = f"{name} {'cannot be read: ' if isinstance(error, OSError) else ''}{cause}"
                if not skip_bad:
                    raise UserError(f"{problem}; mend it, or pass --skip-bad") from None
                skipped.append(problem)

        return ConvertedInputs(torch.stack(pictures) if pictures else torch.empty(0), positions, skipped)

    # -- tables ----------------------------------------------------------------------------------------------------

    def _table(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> ConvertedInputs:
        """Read the prepared column `input`, or texts, pictures or features by the names of their columns."""
        names = table.column_names
        if "input" in names:
            return self._prepared_column(table, skip_bad, rows)

        if self.description.kind == "tokens" and "text" in names:
            texts: list[Any] = table["text"].to_pylist()
            if "second" in names:
                texts = list(zip(texts, table["second"].to_pylist(), strict=True))
            rows_without_text = [row for row, text in enumerate(texts) if not _is_text(text)]
            if rows_without_text and not skip_bad:
                raise UserError(f"row {rows[rows_without_text[0]]} has no text; mend it, or pass --skip-bad")
            readable_rows = [row for row in range(len(texts)) if row not in set(rows_without_text)]
            skipped = [f"row {rows[row]} has no text" for row in rows_without_text]
            return ConvertedInputs(
                self._convert_texts([texts[row] for row in readable_rows]) if readable_rows else torch.empty(0),
                readable_rows,
                skipped,
            )

        if self.description.kind == "image" and "image" in names:
            cells = [cell.get("bytes") if isinstance(cell, dict) else cell for cell in table["image"].to_pylist()]
            return self._images([b"" if cell is None else cell for cell in cells], skip_bad)

        if self.description.kind == "vector":
            return self._features(table, skip_bad, rows)

        column = {"tokens": "text", "image": "image"}[self.description.kind]
        raise UserError(
            f"the table has columns {listed(names)}, the model reads a column {column!r}, or the prepared {'input'!r} "
            f"{self._expected_form()}"
        )

    def _prepared_column(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> ConvertedInputs:
        import numpy as np
        import pyarrow as pa

        column = table["input"].combine_chunks()
        kind = column.type
        if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
            return self._images(column.to_pylist(), skip_bad)

        if column.null_count:
            raise UserError("column 'input' has rows without a value; leave them out")
        if pa.types.is_fixed_size_binary(kind):
            flat = np.frombuffer(b"".join(column.to_pylist()), self.description.dtype)
        elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
            flat = column.flatten().to_numpy(zero_copy_only=False)
        else:
            raise UserError(f"column 'input' holds {kind}, the model reads {self._expected_form()}")

        size = int(np.prod(self.description.shape))
        if len(flat) != size * len(table):
            per_row = f"{len(flat) / max(1, len(table)):g}"
            raise UserError(f"column 'input' has {per_row} numbers to a row, the model reads {self._expected_form()}")
        return _all_kept(self._numbers(flat.reshape(len(table), *self.description.shape), rows))

    def _features(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> ConvertedInputs:
        from mtlscale.data.tables.arrow_types import plain_table

        features = read_features(self.description, plain_table(table), rows, self.form)
        values, problems = features.values, features.problems
        if problems and not skip_bad:
            raise UserError(f"{problems[min(problems)]}; mend it, or pass --skip-bad")
        complete_rows = [row for row in range(len(values)) if row not in problems]
        skipped = [problems[row] for row in sorted(problems)]
        inputs = torch.from_numpy(values[complete_rows].astype(np.dtype(self.description.dtype)))
        return ConvertedInputs(inputs, complete_rows, skipped, features.unfamiliar)


def _all_kept(inputs: Tensor) -> ConvertedInputs:
    return ConvertedInputs(inputs, list(range(len(inputs))))


def _is_text(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str | None)
    return isinstance(value, str)


def _is_image(value: Any) -> bool:
    return hasattr(value, "convert") and hasattr(value, "size") and hasattr(value, "mode")


def _pixels(item: Any, shape: Sequence[int], white: float) -> Any:
    """Return a picture as uint8 [channels, height, width], scaled as pipelines scale; may raise `BadImage`."""
    import numpy as np

    from mtlscale.data.format.image_decoding import BadImage, array_picture, in_colour, is_array, open_image, scaled

    channels, size = shape[0], (shape[1], shape[2])
    image = item
    if not _is_image(item):
        raw = item if isinstance(item, bytes) else Path(item).read_bytes()
        if channels == 3 and is_array(raw):
            return np.ascontiguousarray(array_picture(raw, size)[0])
        image = open_image(raw)

    if channels == 3:
        return np.ascontiguousarray(scaled(in_colour(image, white), size).transpose(2, 0, 1))
    if channels != 1:
        raise BadImage(f"has 1 or 3 channels, the model reads {channels}")
    return scaled(in_colour(image, white).convert("L"), size).copy()[None]
