"""Pipelines that prepare data sets: one module each, named as in experiment files; `__all__` is for other packages."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "ColumnReport": ".table_inspection",
        "ComputedRows": ".contract",
        "Download": ".contract",
        "Engine": "._engine.blocks",
        "Pipeline": ".contract",
        "PrepareContext": ".contract",
        "Prepared": ".contract",
        "ShardedTable": ".contract",
        "SourceReport": ".table_inspection",
        "TableFunction": "._engine.blocks",
        "Tell": "._engine.blocks",
        "Vectors": "._steps.features",
        "check_prepared": "._steps.suite",
        "fetch_source": "._sources.remote",
        "in_one_line": "._engine.ray_errors",
        "inspect_source": ".table_inspection",
        "is_remote": "._sources.remote",
        "vector_tables": "._steps.features",
        "write_prepared": "._writing.write",
    },
)
