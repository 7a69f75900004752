"""From raw or prepared inputs to what a network reads, as the pipeline of its data made it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlscale.exported.description import TOKENIZER, VOCABULARY, Description
from mtlscale.exported.features import Unfamiliar, listed, read_features, unfamiliar
from mtlscale.spec import UserError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Read:
    """Inputs [N, *shape] as prepared sets store them, the places they had among those given, and what was left out."""

    inputs: Tensor
    kept: list[int]
    skipped: list[str] = field(default_factory=list)
    unfamiliar: Unfamiliar = field(default_factory=Unfamiliar)


class Reader:
    """Makes an exported model's inputs. What is wrong with one of them is a `UserError` that names it, or, with
    `skip_bad`, leaves it out."""

    def __init__(self, folder: Path, description: Description) -> None:
        self.folder, self.suite, self.told = folder, description.suite, description.input

    @functools.cached_property
    def vocabulary(self) -> list[str]:
        """The words by token id; `UserError` where token ids are none of words."""
        path = self.folder / VOCABULARY
        if not path.is_file():
            raise UserError(f"{self.folder} has no words of {self.suite.name}; give token ids {self._wanted()}")
        return path.read_text(encoding="utf-8").split("\n")[:-1]

    def tensor(self, inputs: Any) -> Tensor:
        """All of the inputs; a warning says where training has nothing like them."""
        found = self.read(inputs)
        for line in found.unfamiliar.lines(len(found.inputs)):
            warnings.warn(line, stacklevel=3)
        return found.inputs

    def read(self, inputs: Any, *, skip_bad: bool = False) -> Read:
        """The inputs that can be read. `UserError` where there is none."""
        found = self.some(inputs, skip_bad=skip_bad)
        if not len(found.inputs):
            left = f": {found.skipped[0]}" if found.skipped else ""
            raise UserError(f"there is nothing to predict{left}; give at least one input")
        return found

    def some(self, inputs: Any, *, skip_bad: bool = False, rows: Sequence[Any] | None = None) -> Read:
        """The same, though there may be none. rows: how messages number the rows of a table; default: from 1."""
        found = self._some(inputs, skip_bad, rows)
        if self.told.low:
            named = [place + 1 if rows is None else rows[place] for place in found.kept]
            found.unfamiliar.add(unfamiliar(self.told, found.inputs.numpy(), named))
        return found

    def _some(self, inputs: Any, skip_bad: bool, rows: Sequence[Any] | None) -> Read:
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
                return Read(torch.empty(0), [])
            if all(_is_text(one) for one in inputs) and self.told.kind == "tokens":
                return _whole(self._texts(inputs))
            if all(isinstance(one, str | bytes | Path) or _is_image(one) for one in inputs):
                return self._images(inputs, skip_bad)
        return _whole(self._numbers(inputs))

    # -- what the network reads ------------------------------------------------------------------------------------

    def _wanted(self) -> str:
        shape = ", ".join(map(str, self.told.shape))
        return f"[N, {shape}] of {self.told.dtype}"

    def _numbers(self, inputs: Any, rows: Sequence[Any] | None = None) -> Tensor:
        """An array or tensor, checked."""
        import numpy as np

        try:
            found = inputs.detach().cpu() if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs))
        except (TypeError, ValueError):
            raise UserError(f"the inputs are {type(inputs).__name__}, the model reads {self._wanted()}") from None
        if tuple(found.shape[1:]) != self.told.shape or found.ndim == 0:
            raise UserError(f"the inputs have shape {list(found.shape)}, the model reads {self._wanted()}")
        wanted = getattr(torch, self.told.dtype)
        name = str(found.dtype).removeprefix("torch.")
        if self.told.kind == "tokens":
            if found.is_floating_point() or found.dtype == torch.bool:
                raise UserError(f"the inputs are {name}, the model reads token ids {self._wanted()}")
            size = max(self.suite.vocabulary_size or 0, 2 + len(self.suite.extras.get("characters", ())))
            if len(found) and (int(found.min()) < 0 or int(found.max()) >= size):
                raise UserError(f"the inputs hold token ids outside 0..{size - 1}, the model's vocabulary")
            return found.to(wanted)
        if self.told.kind == "image" and not found.is_floating_point():
            if found.dtype != torch.uint8:
                raise UserError(f"the inputs are {name}, the model reads {self._wanted()}")
            return found
        bad = ~torch.isfinite(found.to(torch.float64)).flatten(1)
        if bad.any():
            row, place = bad.nonzero()[0].tolist()
            number = row + 1 if rows is None else rows[row]
            raise UserError(f"row {number} has no finite number in place {place + 1}; mend or leave out the row")
        return found.to(torch.float32 if self.told.kind == "image" else wanted)

    # -- texts -----------------------------------------------------------------------------------------------------

    def _texts(self, texts: Sequence[Any]) -> Tensor:
        """Texts, and pairs of them as tuples, as token ids."""
        if self.told.kind != "tokens":
            raise UserError(f"the inputs are texts, the model reads {self.told.kind}s: {self._wanted()}")
        if self.suite.per_token:
            raise UserError(
                f"the model gives tags of tokens, whose words a text does not show; give {self._wanted()}, or a set "
                "that is prepared as the run's was"
            )
        firsts = [one if isinstance(one, str) else one[0] for one in texts]
        seconds = [None if isinstance(one, str) else one[1] for one in texts]
        if self.told.tokenizer:
            return self._tokenized(firsts, seconds)
        if self.told.words is None:
            raise UserError(f"nobody knows how texts become the token ids of {self.suite.name}; give {self._wanted()}")
        from mtlscale.data.texts import SEPARATOR, encode, join_pairs, words_in

        words, length = self.vocabulary, self.told.shape[0]
        tokens = words_in(firsts, self.told.words)
        paired = [second is not None for second in seconds]
        if any(paired):
            if SEPARATOR not in words:
                raise UserError(f"the inputs are pairs of texts, {self.suite.name} has single ones")
            tokens = join_pairs(tokens, words_in([second or "" for second in seconds], self.told.words), paired, length)
        return torch.from_numpy(encode(tokens, words, length).flatten().to_numpy().reshape(len(texts), length).copy())

    def _tokenized(self, firsts: Sequence[str], seconds: Sequence[str | None]) -> Tensor:
        import importlib.util

        from mtlscale.data.tokenizer import tokenize

        if importlib.util.find_spec("transformers") is None:
            raise UserError("this model's texts need transformers; pip install transformers")
        length = self.told.shape[0]
        ids = torch.from_numpy(tokenize(str(self.folder), self.folder / TOKENIZER, firsts, seconds, length).ids)
        return torch.nn.functional.pad(ids, (0, length - ids.shape[1]))

    # -- pictures --------------------------------------------------------------------------------------------------

    def _images(self, items: Sequence[Any], skip_bad: bool) -> Read:
        """Pictures by path, by their bytes, or as Pillow has them, of whatever size."""
        if self.told.kind != "image" or self.told.dtype != "uint8":
            what = "pictures" if not all(isinstance(one, str) for one in items) else "texts"
            raise UserError(f"the inputs are {what}, the model reads {self.told.kind}s: {self._wanted()}")
        from mtlscale.data.pictures import BadImage

        found, kept, skipped = [], [], []
        for place, item in enumerate(items):
            name = str(item) if isinstance(item, str | Path) else f"picture {place + 1}"
            try:
                found.append(torch.from_numpy(_pixels(item, self.told.shape)))
                kept.append(place)
            except (BadImage, OSError) as error:
                told = error.strerror if isinstance(error, OSError) and error.strerror else error
                problem = f"{name} {'cannot be read: ' if isinstance(error, OSError) else ''}{told}"
                if not skip_bad:
                    raise UserError(f"{problem}; mend it, or pass --skip-bad") from None
                skipped.append(problem)
        return Read(torch.stack(found) if found else torch.empty(0), kept, skipped)

    # -- tables ----------------------------------------------------------------------------------------------------

    def _table(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> Read:
        """The prepared column `input`; or texts, pictures or features by the names of their columns."""
        names = table.column_names
        if "input" in names:
            return self._prepared_column(table, skip_bad, rows)
        if self.told.kind == "tokens" and "text" in names:
            texts: list[Any] = table["text"].to_pylist()
            if "second" in names:
                texts = list(zip(texts, table["second"].to_pylist(), strict=True))
            wrong = [row for row, text in enumerate(texts) if not _is_text(text)]
            if wrong and not skip_bad:
                raise UserError(f"row {rows[wrong[0]]} has no text; mend it, or pass --skip-bad")
            kept = [row for row in range(len(texts)) if row not in set(wrong)]
            skipped = [f"row {rows[row]} has no text" for row in wrong]
            return Read(self._texts([texts[row] for row in kept]) if kept else torch.empty(0), kept, skipped)
        if self.told.kind == "image" and "image" in names:
            cells = [cell.get("bytes") if isinstance(cell, dict) else cell for cell in table["image"].to_pylist()]
            return self._images([b"" if cell is None else cell for cell in cells], skip_bad)
        if self.told.kind == "vector":
            return self._features(table, skip_bad, rows)
        column = {"tokens": "text", "image": "image"}[self.told.kind]
        raise UserError(
            f"the table has columns {listed(names)}, the model reads a column {column!r}, or the prepared {'input'!r} "
            f"{self._wanted()}"
        )

    def _prepared_column(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> Read:
        import numpy as np
        import pyarrow as pa

        column = table["input"].combine_chunks()
        kind = column.type
        if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
            return self._images(column.to_pylist(), skip_bad)
        if column.null_count:
            raise UserError("column 'input' has rows without a value; leave them out")
        if pa.types.is_fixed_size_binary(kind):
            flat = np.frombuffer(b"".join(column.to_pylist()), self.told.dtype)
        elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
            flat = column.flatten().to_numpy(zero_copy_only=False)
        else:
            raise UserError(f"column 'input' holds {kind}, the model reads {self._wanted()}")
        size = int(np.prod(self.told.shape))
        if len(flat) != size * len(table):
            each = f"{len(flat) / max(1, len(table)):g}"
            raise UserError(f"column 'input' has {each} numbers to a row, the model reads {self._wanted()}")
        return _whole(self._numbers(flat.reshape(len(table), *self.told.shape), rows))

    def _features(self, table: pa.Table, skip_bad: bool, rows: Sequence[Any]) -> Read:
        import numpy as np

        values, problems, unknown = read_features(self.told, table, rows)
        if problems and not skip_bad:
            raise UserError(f"{problems[min(problems)]}; mend it, or pass --skip-bad")
        kept = [row for row in range(len(values)) if row not in problems]
        skipped = [problems[row] for row in sorted(problems)]
        inputs = torch.from_numpy(values[kept].astype(np.dtype(self.told.dtype)))
        return Read(inputs, kept, skipped, Unfamiliar(unknown=unknown))


def _whole(inputs: Tensor) -> Read:
    return Read(inputs, list(range(len(inputs))))


def _is_text(one: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], str | None)
    return isinstance(one, str)


def _is_image(one: Any) -> bool:
    return hasattr(one, "convert") and hasattr(one, "size") and hasattr(one, "mode")


def _pixels(item: Any, shape: Sequence[int]) -> Any:
    """uint8 [channels, height, width] of a picture, scaled as pipelines scale. Raises `BadImage`."""
    import io

    import numpy as np
    from PIL import Image

    from mtlscale.data.pictures import BadImage, open_image, picture

    if _is_image(item):
        buffer = io.BytesIO()
        item.save(buffer, "PNG")
        item = buffer.getvalue()
    raw = item if isinstance(item, bytes) else Path(item).read_bytes()
    channels, size = shape[0], (shape[1], shape[2])
    if channels == 3:
        return np.ascontiguousarray(picture(raw, size)[0])
    if channels != 1:
        raise BadImage(f"has 1 or 3 channels, the model reads {channels}")
    image = open_image(raw).convert("L")
    if (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.array(image)[None]
