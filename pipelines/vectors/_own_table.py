"""Settings of tables of a user's own, whatever their targets: the file, its notation, inputs and split."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mtlscale.config import UserError, knob
from mtlscale.data.tables.notations import DECIMALS
from mtlscale.data.tables.raw_files import is_hidden
from mtlscale.data.tables.table_file import TableRead, read_table
from mtlscale.data.tables.table_format import SUFFIXES, TableFormat, is_table_file
from pipelines._formats.hub import HubFolder, is_saved
from pipelines._formats.hub_table import read_hub_table
from pipelines._steps.features import TEST, VALIDATION
from pipelines.contract import Pipeline


class OwnTable(Pipeline):
    """Base of the settings of a user's table."""

    without_floors: ClassVar[tuple[str, ...]] = ()

    file: str = knob("", help="the file's name, where the source is a folder with several")
    id: str = knob("", help="column that names the sample; none: the row number")
    features: tuple[str, ...] = knob((), help="feature columns; none: all others")
    categorical: tuple[str, ...] = knob((), help="those of the features that are categories: texts or whole numbers")
    constant: str = knob("refuse", choices=("refuse", "drop"), help="what to do about a constant feature")
    standardise: bool = knob(True, help="features to mean 0 and variance 1 over the training part")
    test: float = knob(TEST, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the samples for test")
    validation: float = knob(
        VALIDATION, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the rest for validation"
    )
    split: int = knob(0, low=0, help="which random split")

    missing: tuple[str, ...] | None = knob(
        None,
        later=True,
        help="texts and numbers that are empty cells, as ?; none: NA, null, NaN …, unless a value",
    )
    header: bool = knob(True, later=True, help="whether the first line has names; else columns are called 1, 2, …")
    skip_lines: int | None = knob(None, low=0, later=True, help="lines above the header; none: a title is asked about")
    skip_rows: int | None = knob(None, low=0, later=True, help="rows below the header, as units; none: asked about")
    decimal: str = knob("", choices=DECIMALS, later=True, help="mark before decimals, . or ,; none: point, or asked")
    dates: tuple[str, ...] | None = knob(
        None, later=True, help="formats of dates, such as '%d.%m.%Y', besides 2024-01-31; none: others are asked about"
    )

    def locate(self, source: Path) -> Path:
        """Return the file itself, the one in the folder, or the folder of the `datasets` library."""
        if not source.exists():
            raise UserError(f"table: source {source} does not exist; pass --source with its file")
        if source.is_dir() and (is_saved(source) or next(source.glob("*.arrow"), None)):
            return source

        candidates = [source]
        if source.is_dir():
            files = sorted(path for path in source.iterdir() if is_table_file(path) and not is_hidden(path.name))
            candidates = [path for path in files if not self.file or path.name == self.file]
            if len(candidates) != 1:
                names = ", ".join(path.name for path in files) or f"no file that ends in {', '.join(SUFFIXES)}"
                raise UserError(f"table: {source} holds {names}; name one by option `file` or --source")

        if not is_table_file(candidates[0]):
            raise UserError(f"table: {candidates[0].name} is none of {', '.join(SUFFIXES)}; rename or convert it")
        return candidates[0]

    def source_fingerprint(self, located: Path | None) -> str:
        if located is not None and located.is_dir():
            return HubFolder(self.name, located).fingerprint()
        return super().source_fingerprint(located)

    @property
    def form(self) -> TableFormat:
        """How the table is written."""
        return TableFormat(header=self.header, skip_lines=self.skip_lines, skip_rows=self.skip_rows,
                           decimal=self.decimal, dates=self.dates, missing=self.missing)  # fmt: skip

    def read(self, source: Path) -> TableRead:
        """Return the rows of the file or folder that `locate` returned, texts that are numbers not converted yet."""
        return read_hub_table(self.name, source) if source.is_dir() else read_table(source, self.form)
