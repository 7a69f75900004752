"""Reader for a set of the `datasets` library as one table, its splits in a column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from mtlscale.config import UserError
from mtlscale.data.tables.arrow_types import plain_table
from mtlscale.data.tables.table_file import ROW, TableRead
from pipelines._formats.hub import HubFolder

SPLIT_COLUMN = "split"


def read_hub_table(pipeline: str, folder: Path) -> TableRead:
    """Return all splits of a set as one table, with its row numbers as the column `ROW`.

    If there are several splits, the column `split` names them. Classes that the library recorded by name are texts.

    Raises:
        UserError: The splits have other columns than each other, or a column is called `split` already.
    """
    hub = HubFolder(pipeline, folder)
    parts = hub.split_names
    first_columns = hub.names(next(iter(parts.values())))

    tables = []
    for part, split in parts.items():
        if hub.names(split) != first_columns:
            raise UserError(f"{pipeline}: the splits of {folder.name} have different columns; save it again")
        columns = {name: hub.values(split, name) for name in first_columns}
        for name in first_columns:
            class_names = hub.class_names(split, name)
            if class_names is not None:
                codes = range(len(class_names))
                columns[name] = [class_names[code] if code in codes else None for code in columns[name]]
        if len(parts) > 1:
            if SPLIT_COLUMN in columns:
                raise UserError(f"{pipeline}: {folder.name} has splits and a column {SPLIT_COLUMN!r}; rename it")
            columns[SPLIT_COLUMN] = [part] * len(columns[first_columns[0]])
        tables.append(pa.table(columns))

    table = plain_table(pa.concat_tables(tables, promote_options="permissive"))
    return TableRead(table.append_column(ROW, pa.array(range(len(table)))))
