"""The folder that `mtlscale export` writes, from a finished run."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtlscale.config import (
    RESULTS_VERSION,
    Component,
    UserError,
    component,
    load_plugin,
    names,
    source_hash,
)
from mtlscale.inference.description import (
    CARD,
    DESCRIPTION,
    FOUND,
    MODEL,
    PLUGINS,
    TOKENIZER,
    VOCABULARY,
    Description,
    PluginSource,
    RunFacts,
    write_hashes,
)
from mtlscale.inference.exporting import nested
from mtlscale.inference.exporting.card import card
from mtlscale.inference.finished_run import FinishedRun, bare, read_source
from mtlscale.inference.inputs.raw import describe_input, tokenizer_of
from mtlscale.inference.network import network
from mtlscale.records import Home, RunRecord, is_full, no_space
from mtlscale.version import __version__


def export(
    home: Home | Path | str | None,
    run_id: str,
    folder: Path | str,
    *,
    force: bool = False,
    plugins: Sequence[Path | str] = (),
) -> Path:
    """Write the model of a finished run into a folder, which appears complete or not at all.

    Args:
        home: Where the run is; None: as `mtlscale` finds it.
        run_id: The run's id, or its first digits.
        force: Replace what is there.
        plugins: Files of the run's own components, if this process has not loaded them.

    Returns:
        The folder.

    Raises:
        UserError: The run has no model, or its data are gone.
    """
    home = home if isinstance(home, Home) else Home.at(None if home is None else Path(home))
    folder = Path(folder).absolute()

    if not force and (folder.exists() or folder.is_symlink()):
        raise UserError(f"{folder} is there already; name another folder, or pass --force to replace it")
    for path in plugins:
        load_plugin(Path(path))

    source = read_source(home, run_id)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}; name another folder") from None

    try:
        _write(source, temporary)
        temporary.chmod(0o755)
        _publish(temporary, folder)
    except OSError as error:
        if is_full(error):
            raise UserError(no_space(error, str(folder.parent))) from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _publish(temporary: Path, folder: Path) -> None:
    """Give the finished folder its name, and remove what had it before."""
    if folder.is_dir() and not folder.is_symlink():
        replaced = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        folder.rename(replaced / "gone")
        temporary.rename(folder)
        shutil.rmtree(replaced)
        return
    folder.unlink(missing_ok=True)
    temporary.rename(folder)


def _write(source: FinishedRun, folder: Path) -> None:
    from safetensors.torch import save

    record = source.record
    state = {name: value.detach().cpu().contiguous().clone() for name, value in source.state.items()}
    (folder / MODEL).write_bytes(save(state))

    tensors: dict[str, Any] = {}
    phase_output = None if source.phase_input is None else nested.plain(source.phase_input, tensors)
    if tensors:
        (folder / FOUND).write_bytes(save(tensors))
    if "vocabulary" in source.suite.extras:
        (folder / VOCABULARY).write_text("".join(f"{w}\n" for w in source.suite.extras["vocabulary"]), encoding="utf-8")

    tokenizer = tokenizer_of(record.spec, source.suite)
    if tokenizer:
        (folder / TOKENIZER).mkdir()
        for path in tokenizer:
            shutil.copyfile(path, folder / TOKENIZER / path.name)

    plugins = _plugins(record, source, folder)
    # Fail now rather than at loading if the network cannot be built from the folder alone.
    network(record.spec, bare(source.suite), source.phase, source.phase_input, state, folder / TOKENIZER)

    threads = re.search(r"(\d+) threads?$", record.hardware)
    facts = record.model_dump(include=set(RunFacts.model_fields))
    description = Description(
        mtlscale=__version__,
        results_version=RESULTS_VERSION,
        run=RunFacts(threads=int(threads[1]) if threads else 1, **facts),
        spec=record.spec,
        suite=bare(source.suite),
        target_shapes=source.data.manifest.target_shapes,
        phase=source.phase,
        found=phase_output,
        input=describe_input(source, folder),
        metrics=record.metrics,
        main_metrics=record.main_metrics,
        plugins=plugins,
    )

    (folder / CARD).write_text(card(description, source.data.manifest), encoding="utf-8")
    (folder / DESCRIPTION).write_text(description.model_dump_json(indent=1) + "\n", encoding="utf-8")
    write_hashes(folder)


def _plugins(record: RunRecord, source: FinishedRun, folder: Path) -> list[PluginSource]:
    """Copy the files of components that are not shipped and that predicting or measuring needs."""
    needed = [("architectures", record.spec["architecture"]["name"]), ("encoders", record.spec["encoder"]["name"])]
    shipped = names("metrics", plugins=False)
    metrics = {name for task in source.suite.tasks for name in task.metrics} - set(shipped)
    needed += [("metrics", name) for name in sorted(metrics)]

    sources: dict[str, PluginSource] = {}
    for kind, name in needed:
        cls = component(kind, name)
        digest = source_hash(cls)
        if not digest:
            continue
        spec_entry = record.spec.get(kind.removesuffix("s"))
        _check_same(kind, cls, spec_entry if isinstance(spec_entry, Mapping) else {})
        path = Path(str(sys.modules[cls.__module__].__file__))
        file = f"{PLUGINS}/{path.name}"
        if file not in sources:
            (folder / PLUGINS).mkdir(exist_ok=True)
            shutil.copyfile(path, folder / file)
            sources[file] = PluginSource(file=file, source=digest, components=[])
        sources[file].components.append(f"{kind.removesuffix('s')} {name}")

    return list(sources.values())


def _check_same(kind: str, cls: type[Component], spec_entry: Mapping[str, Any]) -> None:
    """Raise `UserError` if a plugin is not the one that the run had."""
    if "plugin" in spec_entry and source_hash(cls) != spec_entry["plugin"]:
        raise UserError(
            f"the {kind.removesuffix('s')} {cls.name} is not the one that the run had (its file has changed since); "
            "name the file as it was by --plugin"
        )
