"""Preparation of data sets, once each: content-addressed folders below `<home>/data`, published whole or not at all.

A preparation that exists is found without importing torch or starting Ray.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mtlscale.config import UserError, build, plugin_error, source_hash
from mtlscale.config.places import local_folder, local_path
from mtlscale.data.format.manifest import MANIFEST, ORIGIN, SourceInfo, damage, read_manifest
from mtlscale.data.remote import deliver, fetch, fetch_manifests, key_of
from mtlscale.records import check_folder, new_folders

if TYPE_CHECKING:
    from mtlscale.data.format.manifest import Manifest
    from mtlscale.records import Storage
    from pipelines import Engine, Pipeline, PrepareContext, Tell

SOURCES = "MTLSCALE_DATA"  # environment variable: a folder with one sub-folder per data set
ABANDONED_AFTER = 24 * 3600.0  # seconds without a heartbeat after which what a preparation left is removed
HEARTBEAT = 60.0  # seconds between two heartbeats
ALIVE = ".alive"  # in the folder of a preparation at work: its machine and process
_SMALL = 4 << 20  # bytes of raw files that are prepared in a moment
_LOCAL_URLS = ("file:", "local:")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def prepare(
    name: str,
    options: dict[str, Any],
    source: Path | str | None,
    home: Path,
    *,
    engine: Literal["auto", "ray", "local"] = "auto",
    skip_bad: bool = False,
    download: bool = False,
    progress: Tell | None = None,
    storage: Storage | None = None,
    start_ray: Callable[[], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Path:
    """Return the folder of the prepared data set, prepared now unless it exists already.

    Args:
        name: The data set's registered name.
        options: The options of its pipeline.
        source: The set's archive or folder, the URL of an archive, or `hf:NAME`; without one it is looked for in
            `$MTLSCALE_DATA`, among earlier preparations and, with `download`, on the net.
        home: The home folder. What Ray's tasks write goes there, so that all nodes have to see it, or to the `storage`.
        engine: With "auto", Ray Data prepares the pipelines that say so and large sources of others; the rest is
            prepared in this process. A running Ray is used, else one is started for the time.
        skip_bad: Leave out rows that cannot be used, which otherwise stop the preparation. The manifest says what was
            left out, and a later call takes it as agreed.
        download: Fetch the raw data if they are not found.
        progress: Shows how far the preparation is.
        storage: The storage that nodes without a common folder share.
        start_ray: Starts a Ray that is left running; without it one is joined or started for the time.
        note: Shows the user one line, such as that no CPU is free; default: on standard error.

    Raises:
        UserError: If there is no source, or it cannot be used, or Ray has no CPU.
    """
    pipeline = build("datasets", name, options)
    with _of_plugin(pipeline):
        located = _find_source(pipeline, source, home) if pipeline.needs_source else None
    if source is not None and not pipeline.needs_source:
        _check_there(name, source)

    if located is None and pipeline.needs_source:
        if prepared_folder := find_prepared(name, options, home):
            return prepared_folder
        if not (download and pipeline.download):
            raise UserError(_no_source(pipeline))
        located = _download(pipeline, home)

    with _of_plugin(pipeline):
        fingerprint = pipeline.source_fingerprint(located)
    if (earlier := _prepared(home / "data" / name, pipeline, fingerprint)) is not None:
        return earlier

    folder = home / "data" / name / _key(pipeline, fingerprint)
    info = SourceInfo(description=_described(source, located) or pipeline.source, fingerprint=fingerprint)
    from mtlscale.execution.monitoring import log
    from pipelines import PrepareContext

    check_folder(home)
    with _user_errors(home), new_folders(folder.parent):
        _remove_abandoned(folder.parent)
        work = PrepareContext(
            _engine(pipeline, located, engine),
            skip_bad,
            progress or PrepareContext.progress,
            plan=lambda stages: log.info("data plan", extra={"dataset": name, "text": stages}),
            cache=home / "features" / name,
        )
        with _ray(name, start_ray, note) if work.engine == "ray" else nullcontext():
            _prepare_into(folder, pipeline, located, info, work, storage)
    return folder


def _check_there(name: str, source: Path | str) -> None:
    """Raise `UserError` if a source does not exist, although this data set needs none."""
    from pipelines import is_remote

    if not is_remote(source) and not local_path(source).exists():
        raise UserError(f"source {source} does not exist; correct it, or drop it: {name} needs none")


def find_prepared(name: str, options: dict[str, Any], home: Path) -> Path | None:
    """Return an earlier preparation with these options, whatever its source.

    Raises:
        UserError: If sources with different content leave a choice.
    """
    pipeline = build("datasets", name, options)
    by_fingerprint: dict[str, Path] = {}
    for folder in _preparations(pipeline, home).values():
        by_fingerprint.setdefault(read_manifest(folder).fingerprint, folder)

    if len(by_fingerprint) > 1:
        folders = ", ".join(str(folder) for folder in by_fingerprint.values())
        raise UserError(
            f"{name} was prepared from {len(by_fingerprint)} different sources ({folders}); say which by --source"
        )
    return next(iter(by_fingerprint.values()), None)


def prepared_folders(name: str, home: Path) -> list[Path]:
    """List the complete preparations of a data set in a home, whatever their options and source."""
    paths = sorted((home / "data" / name).glob(f"[!.]*/{MANIFEST}"))
    return [path.parent for path in paths if _complete(path.parent)]


def earlier_preparations(
    name: str, options: dict[str, Any], source: Path | str | None, home: Path
) -> tuple[str | None, dict[str, Path]]:
    """Return the key of the preparation that is asked for, and key -> folder of all with these options in the home.

    The key is None if the source is not on this machine; then only those are returned whose source was called so.
    Nothing is prepared or fetched.
    """
    from pipelines import is_remote

    pipeline = build("datasets", name, options)
    folders = _preparations(pipeline, home)
    remote = source is not None and is_remote(source) and not str(source).startswith(_LOCAL_URLS)

    located, there = None, not pipeline.needs_source
    with suppress(UserError, OSError), _of_plugin(pipeline):  # a named source may be gone
        if pipeline.needs_source and not remote:
            located = _find_source(pipeline, source, home)
            there = located is not None
        if there:
            return _key(pipeline, _fingerprint(pipeline, located)), folders

    if remote:
        descriptions = (str(source), str(source).partition("?")[0].rpartition("/")[2])
        folders = {key: path for key, path in folders.items() if read_manifest(path).source.description in descriptions}
    return None, folders


_read_before: dict[tuple[object, ...], str] = {}  # file as it was -> its hash: a page that follows runs asks often


def _fingerprint(pipeline: Pipeline, located: Path | None) -> str:
    """Return the hash of the source; a file is read again only if it has changed since."""
    if located is None or not located.is_file():
        return pipeline.source_fingerprint(located)
    status = located.stat()
    state = (type(pipeline), str(_plain(pipeline.options())), located, status.st_size, status.st_mtime_ns)
    if state not in _read_before or status.st_size <= _SMALL:
        _read_before[state] = pipeline.source_fingerprint(located)
    return _read_before[state]


def look(
    name: str, options: dict[str, Any], source: Path | str | None, home: Path, scratch: Path, room: int
) -> tuple[Path | str, int]:
    """Return the folder of the prepared data set, or a clause that says why there is none; nothing is fetched.

    Only data that a pipeline makes up itself, or reads from at most `room` bytes of files, are prepared: below
    `scratch`, without Ray. Larger files are read only where a preparation with these options may be theirs.

    Returns:
        The folder or the clause, and the bytes of raw files that were prepared.

    Raises:
        UserError: For a named source that is wrong, as in `prepare`.
    """
    from pipelines import is_remote

    pipeline = build("datasets", name, options)
    if source is not None and not pipeline.needs_source:
        _check_there(name, source)

    if pipeline.needs_source and source is not None and is_remote(source):
        return find_prepared(name, options, home) or f"{source} is fetched when it is prepared", 0

    size = 0
    with _of_plugin(pipeline):
        located = _find_source(pipeline, source, home) if pipeline.needs_source else None
        if located is None and pipeline.needs_source:
            missing = "its files are not here (give its source, or set MTLSCALE_DATA)"
            fetched = "its files are fetched when it is prepared" if pipeline.download else missing
            return find_prepared(name, options, home) or fetched, 0

        size = 0 if located is None else _bytes(pipeline, located)
        known = _preparations(pipeline, home)
        if size > room and not known:
            return _unprepared(size), 0
        fingerprint = pipeline.source_fingerprint(located)
        if (earlier := _prepared(home / "data" / name, pipeline, fingerprint)) is not None:
            return earlier, 0

    if size > room:
        return _unprepared(size), 0
    if not pipeline.needs_source and not pipeline.made_in_seconds:
        return "it is made when it is prepared, which takes minutes", 0
    return prepare(name, options, source, scratch, engine="local"), size


def _unprepared(size: int) -> str:
    return f"its files ({size / 2**20:.1f} MiB) are here and not prepared yet"


def fetch_prepared(name: str, options: dict[str, Any], home: Path, storage: Storage) -> None:
    """Fetch the preparations with these options that others have published, unless they are here."""
    pipeline = build("datasets", name, options)
    with tempfile.TemporaryDirectory() as temporary:
        for folder in fetch_manifests(storage, name, Path(temporary) / name):
            manifest, target = read_manifest(folder), home / "data" / name / folder.name
            if _made_by(pipeline, manifest) and not _complete(target):
                fetch(storage, target)


def _plain(options: dict[str, Any]) -> Any:
    """Return the options as JSON has them: lists for tuples."""
    return json.loads(json.dumps(options))


def _made_by(pipeline: Pipeline, manifest: Manifest) -> bool:
    """Return whether this pipeline, as it is now, has made the preparation, with the same options."""
    expected = (pipeline.results_version, _plain(pipeline.options()))
    same = (manifest.results_version, _plain(manifest.options)) == expected
    return same and manifest.plugin == source_hash(type(pipeline))


def _preparations(pipeline: Pipeline, home: Path) -> dict[str, Path]:
    """Return key -> folder of the complete preparations in the home that this pipeline has made."""
    folders = prepared_folders(pipeline.name, home)
    return {folder.name: folder for folder in folders if _made_by(pipeline, read_manifest(folder))}


def _prepared(folder: Path, pipeline: Pipeline, fingerprint: str) -> Path | None:
    """Return the complete preparation of this source below the data set's folder, if there is one."""
    candidate = folder / _key(pipeline, fingerprint)
    return candidate if _complete(candidate) else None


def _key(pipeline: Pipeline, fingerprint: str) -> str:
    """Return the name of a preparation's folder."""
    source = source_hash(type(pipeline))
    parts = [pipeline.name, _plain(pipeline.options()), pipeline.results_version, fingerprint]
    parts += filter(None, [source])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _complete(folder: Path) -> bool:
    """Return whether the folder has a readable manifest, and the files it records in their sizes."""
    try:
        return damage(folder, read_manifest(folder)) is None
    except UserError:
        return False


def _find_source(pipeline: Pipeline, source: Path | str | None, home: Path) -> Path | None:
    """Return the raw data on this machine: as named, fetched, in `$MTLSCALE_DATA`, or downloaded earlier."""
    if source is not None:
        from pipelines import fetch_source, is_remote

        if is_remote(source):
            downloads = home / "downloads"
            with _user_errors(home):
                source = fetch_source(pipeline.name, source, pipeline.hub, downloads)
                if downloads.is_dir():
                    _remove_abandoned(downloads, "**/.download-*")
        return pipeline.locate(local_path(source))

    if os.environ.get(SOURCES) and pipeline.folder:
        default_folder = local_folder(os.environ[SOURCES], SOURCES) / pipeline.folder
        if default_folder.exists():
            return pipeline.locate(default_folder)

    if pipeline.download is not None and (archive := _downloaded(pipeline, home)).is_file():
        return archive
    return None


def _described(source: Path | str | None, located: Path | None) -> str:
    """Return the manifest's description of the source: a name, never a path."""
    return str(source) if str(source).startswith("hf:") else located.name if located else ""


def _downloaded(pipeline: Pipeline, home: Path) -> Path:
    assert pipeline.download is not None
    return home / "downloads" / pipeline.download.filename


def _no_source(pipeline: Pipeline) -> str:
    accepted = f"{' or '.join(pipeline.archives[:1])} or the extracted folder" if pipeline.archives else "its files"
    download_hint = ", or let --download fetch it" if pipeline.download else ""
    return f"{pipeline.name} needs its files: pass --source DIR with {accepted}, or set {SOURCES}{download_hint}"


def _download(pipeline: Pipeline, home: Path) -> Path:
    """Fetch the archive, whole and with the known checksum, or not at all."""
    assert pipeline.download is not None
    archive = _downloaded(pipeline, home)
    archive.parent.mkdir(parents=True, exist_ok=True)

    with _user_errors(archive.parent), tempfile.NamedTemporaryFile(dir=archive.parent, prefix=".download-") as file:
        try:
            with urllib.request.urlopen(pipeline.download.url, timeout=10) as response:
                shutil.copyfileobj(response, file)
        except OSError as error:
            if error.errno in _FULL:
                raise
            raise UserError(
                f"{pipeline.name}: {pipeline.download.url} cannot be fetched ({error}); "
                f"get {pipeline.download.filename} another way and pass --source DIR"
            ) from None

        file.flush()
        if hashlib.sha256(Path(file.name).read_bytes()).hexdigest() != pipeline.download.sha256:
            raise UserError(f"{pipeline.name}: what {pipeline.download.url} sent is not the known archive; try again")
        with suppress(FileExistsError):  # another preparation fetched it meanwhile
            os.link(file.name, archive)
    return archive


def _engine(pipeline: Pipeline, located: Path | None, engine: Literal["auto", "ray", "local"]) -> Engine:
    if engine != "auto":
        return engine
    if pipeline.engine == "ray":
        return "ray"
    if located is None:
        return "local"
    return "ray" if _bytes(pipeline, located) >= pipeline.ray_from_bytes else "local"


def _bytes(pipeline: Pipeline, located: Path) -> int:
    """Return the size of the raw files in bytes."""
    roots = [located / name for name in pipeline.files()]  # other files there do not belong to it
    if located.is_file() or not roots:
        roots = [located]
    paths = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _prepare_into(
    folder: Path,
    pipeline: Pipeline,
    located: Path | None,
    info: SourceInfo,
    context: PrepareContext,
    storage: Storage | None,
) -> None:
    from pipelines import check_prepared, write_prepared

    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        with _alive(temporary):
            with_shards = partial(_where_tasks_write, folder, temporary, storage)
            if not _prepared_in_task(temporary, pipeline, located, info, context, with_shards):
                with _of_plugin(pipeline):
                    prepared = check_prepared(pipeline.name, pipeline.prepare(located, context))
                if prepared.pieces is not None and context.engine == "ray":
                    context = with_shards(context)

                # Inside the guard, too: a set in pieces is computed while it is written.
                with _of_plugin(pipeline):
                    write_prepared(temporary, pipeline, info, prepared, context)
        temporary.chmod(0o777 & ~_umask())  # mkdtemp's folders are the owner's alone
        _publish(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _prepared_in_task(
    out: Path,
    pipeline: Pipeline,
    located: Path | None,
    info: SourceInfo,
    context: PrepareContext,
    with_shards: Callable[[PrepareContext], PrepareContext],
) -> bool:
    """Prepare in another process, for sets that take the memory of one, and return whether that was done."""
    if context.engine != "ray" or not pipeline.collects or source_hash(type(pipeline)):
        return False  # another process may lack a plugin's file
    from mtlscale.execution.preparing.prepare_task import prepare_in_task

    return prepare_in_task(out, pipeline, located, info, context, with_shards)


@contextmanager
def _of_plugin(pipeline: Pipeline) -> Iterator[None]:
    """Report an exception of a user's own pipeline in one line with its place in the code."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        located_error = plugin_error(type(pipeline), error)
        if located_error is None or (isinstance(error, OSError) and error.errno in _FULL):
            raise
        raise located_error from error


def _where_tasks_write(
    folder: Path, temporary: Path, storage: Storage | None, context: PrepareContext
) -> PrepareContext:
    """Return the work whose tasks write into the folder, or into the storage between several nodes."""
    from mtlscale.execution.preparing.shared_home_check import check_shared, several_nodes

    if storage is None:
        check_shared(folder.parent)
        return context
    if not several_nodes():
        return context

    (temporary / ORIGIN).write_text(storage.url, encoding="utf-8")
    return replace(context, deliver=partial(deliver, storage.url, key_of(folder)))


@contextmanager
def _ray(name: str, start: Callable[[], None] | None, note: Callable[[str], None] | None) -> Iterator[None]:
    """Hold a Ray that has a CPU for the tasks of Ray Data."""
    from mtlscale.execution.cluster import cluster  # imported late: finding an earlier preparation is quick

    if start is not None:
        start()
    note = note or cluster.to_stderr
    with cluster.session(note=note):
        cluster.check_cpus(f"the preparation of {name} by Ray Data", note)
        yield


def _publish(temporary: Path, folder: Path) -> None:
    """Give the finished folder its name; where another preparation was faster, its result stands."""
    while True:
        try:
            temporary.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _complete(folder):
            return
        # Damaged since: move it out of the way, under a name that never counts as done.
        folder.rename(Path(tempfile.mkdtemp(dir=folder.parent, prefix=".damaged-")) / folder.name)


@contextmanager
def _alive(folder: Path) -> Iterator[None]:
    """Show that a process works in the folder, by a file that names it and is touched again and again."""
    import psutil

    mark, stopped = folder / ALIVE, threading.Event()
    identity = {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}
    mark.write_text(json.dumps(identity), encoding="utf-8")

    def beat() -> None:
        while not stopped.wait(HEARTBEAT):
            with suppress(OSError):  # a full disk, a share that is away for a moment
                os.utime(mark)

    thread = threading.Thread(target=beat, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        mark.unlink(missing_ok=True)


def _remove_abandoned(parent: Path, pattern: str = ".*") -> None:
    """Remove what killed preparations left behind, never the files of one at work on any machine."""
    for path in parent.glob(pattern):
        with suppress(FileNotFoundError):  # somebody else removes it, too
            if time.time() - _last_sign(path) > ABANDONED_AFTER and not _at_work(path):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _last_sign(path: Path) -> float:
    """Return the time at which anything in the path was last written."""
    times = [path.stat().st_mtime]
    for entry in path.rglob("*") if path.is_dir() else ():
        with suppress(FileNotFoundError):
            times.append(entry.stat().st_mtime)
    return max(times)


def _at_work(folder: Path) -> bool:
    """Return whether a process of this machine works there and runs: it may be stopped, or its clock wrong."""
    import psutil

    try:
        mark = json.loads((folder / ALIVE).read_text(encoding="utf-8"))
        process = psutil.Process(mark["pid"])
        return bool(mark["host"] == socket.gethostname() and abs(process.create_time() - mark["started"]) < 1)
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _user_errors(home: Path) -> Iterator[None]:
    """Report a full disk, or a folder that may not be written, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise UserError(
                f"no space left below {home} ({error.strerror}); free some or choose another --home"
            ) from None

        if isinstance(error, FileNotFoundError):
            raise UserError(
                f"{error.filename or home} has vanished during the preparation; nothing of it is kept, start it again"
            ) from None

        if isinstance(error, PermissionError | NotADirectoryError):
            failed_path = error.filename or home
            raise UserError(
                f"{failed_path} cannot be read or written ({error.strerror}); choose another --home"
            ) from None
        raise
