"""The command that checks what mtlscale needs on a machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtlscale.cli.options import HomeOption, console_of, home_of
from mtlscale.cli.output.grid import grid
from mtlscale.config import UserError, without_secrets
from mtlscale.config.places import local_folder
from mtlscale.records import Home, check_folder


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale doctor --address 127.0.0.1:6379")(doctor)


def doctor(
    home: HomeOption = None,
    address: Annotated[str | None, typer.Option(help="Also try this Ray cluster")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="Also try this MLflow server")] = None,
) -> None:
    """Check what mtlscale needs on this machine, and say how to mend what is missing."""
    from rich.text import Text

    signs = {"ok": Text("✓", "green"), "note": Text("·", "yellow"), "bad": Text("✗", "red")}
    findings = examine(home_of(home), address, tracking_uri)
    rows = [(signs[finding.level], finding.check, finding.result, finding.mend) for finding in findings]
    console_of().print(grid(("", "what", "found", "mend"), rows, title="mtlscale doctor"))

    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Finding:
    """Result of a check: its level, what was checked, what was found, and how to mend it."""

    level: Literal["ok", "note", "bad"]
    check: str
    result: str
    mend: str = ""


def examine(home: Home, address: str | None = None, tracking_uri: str | None = None) -> list[Finding]:
    """Return all findings, in the order a newcomer would look."""
    return [*_python(), *_libraries(), *_machine(home), *_sockets(), *_data(), *_services(address, tracking_uri)]


def _python() -> Iterator[Finding]:
    new_enough = sys.version_info >= (3, 11)
    yield Finding(
        "ok" if new_enough else "bad",
        "python",
        platform.python_version(),
        "" if new_enough else "use Python 3.11 or newer",
    )


def _libraries() -> Iterator[Finding]:
    for name in ("torch", "ray", "mlflow", "datasets", "pyarrow"):
        try:
            yield Finding("ok", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding("bad", name, "not installed", "pip install -c constraints.txt -e .")
    import torch

    if torch.cuda.is_available():
        yield Finding("ok", "GPU", ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))
    else:
        yield Finding("note", "GPU", "none; runs use the CPU")

    try:
        from mtlscale.torchvision_ops import declare

        declare()
        import torchvision

        yield Finding("ok", "torchvision", torchvision.__version__)
    except Exception as error:
        yield Finding("bad", "torchvision", str(error).splitlines()[0], "install the torchvision that fits this torch")


def _machine(home: Home) -> Iterator[Finding]:
    import psutil

    yield Finding(
        "ok", "CPU cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    )
    free = psutil.virtual_memory().available / 2**30
    yield Finding(
        "ok" if free >= 4 else "bad",
        "free memory",
        f"{free:.1f} GiB",
        "" if free >= 4 else "4 GiB are the least that works",
    )

    for label, folder, mend in (
        ("home folder", home.root, "choose another --home"),
        ("temp folder", Path(tempfile.gettempdir()), "set TMPDIR"),
    ):
        try:
            check_folder(folder)
        except UserError as error:
            yield Finding("bad", label, str(error).split(";")[0].removeprefix("--home "), mend)
            continue
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        space = shutil.disk_usage(existing).free / 2**30
        if space < 2:
            yield Finding("bad", label, f"{folder}: {space:.1f} GiB free", "free some space")
        else:
            yield Finding("ok", label, f"{folder}: {space:.0f} GiB free")

    from mtlscale.execution.cluster.local_ray import session_folder

    try:
        folder, remark = session_folder()
        yield Finding("note" if remark else "ok", "Ray's files", str(folder), remark.split(";")[0])
    except UserError as error:
        yield Finding("bad", "Ray's files", *str(error).split("; ", 1))

    shm = Path("/dev/shm")
    if shm.exists():
        space = shutil.disk_usage(shm).free / 2**30
        level: Literal["ok", "note"] = "ok" if space >= 1 else "note"
        yield Finding(
            level, "/dev/shm", f"{space:.1f} GiB free", "" if space >= 1 else "Ray will use the slower temp folder"
        )


def _sockets() -> Iterator[Finding]:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
        yield Finding("ok", "loopback sockets", "can be opened")
    except OSError as error:
        yield Finding("bad", "loopback sockets", str(error), "Ray needs to listen on 127.0.0.1")

    for port, service in ((6379, "a local Ray"), (8265, "the Ray dashboard"), (5000, "mlflow ui")):
        with socket.socket() as probe:
            probe.settimeout(0.5)
            in_use = probe.connect_ex(("127.0.0.1", port)) == 0
        yield Finding(
            "note" if in_use else "ok", f"port {port}", "in use" if in_use else "free", f"used by {service}" * in_use
        )


def _data() -> Iterator[Finding]:
    from mtlscale.config.registry import components
    from mtlscale.execution.preparing.prepare import SOURCES

    folder = os.environ.get(SOURCES)
    if not folder:
        yield Finding("note", SOURCES, "not set", "name a folder of raw data here, or pass --source")
        return

    try:
        raw_data = local_folder(folder, SOURCES)
    except UserError as error:
        yield Finding("bad", SOURCES, *str(error).split("; ", 1))
        return
    for name in components.names("datasets"):
        cls = components.component("datasets", name)
        if cls.needs_source and cls.folder:
            path = raw_data / cls.folder
            exists = path.exists()
            yield Finding("ok" if exists else "note", f"data: {name}", str(path) if exists else "not there")


def _services(address: str | None, tracking_uri: str | None) -> Iterator[Finding]:
    from mtlscale.execution.cluster.cluster import check_address
    from mtlscale.tracking import check_uri

    for service, value, check in (("Ray", address, check_address), ("MLflow", tracking_uri, check_uri)):
        if value is None:
            continue
        try:
            check(value)
            yield Finding("ok", service, f"{without_secrets(value)} answers")
        except UserError as error:
            yield Finding("bad", service, str(error))
