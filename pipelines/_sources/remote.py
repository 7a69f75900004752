"""Download of a dataset: a name on the hub, or an archive at a URL that fsspec supports."""

from __future__ import annotations

import errno
import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

from mtlscale.config import UserError
from pipelines._formats.hub import HUB, is_saved, load_hub

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_LOCAL = ("file", "local")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "oss": "ossfs",
    "smb": "smbprotocol",
}


def is_remote(source: Path | str) -> bool:
    """Return whether a source is `hf:NAME` or a URL, not a path."""
    text = str(source)
    if _is_hub(text):
        return True
    return bool(_URL.fullmatch(text)) and not Path(text).exists()


def _is_hub(text: str) -> bool:
    """Return whether a source is `hf:NAME` or `hf:/FOLDER`; `hf://…` is a URL that fsspec supports."""
    return text.startswith(HUB) and not text.startswith(f"{HUB}//")


def fetch_source(pipeline: str, source: Path | str, hub: bool, downloads: Path) -> Path:
    """Return the folder or archive on this machine, fetched below `downloads` unless an unchanged copy is there.

    Args:
        pipeline: The pipeline, for messages.
        source: `hf:NAME` or a URL.
        hub: Whether the pipeline reads sets of the `datasets` library.
    """
    text = str(source)
    if _is_hub(text):
        if not hub:
            raise UserError(f"{pipeline}: {text} is a set of the hub, which {pipeline} does not read; pass its files")
        named = text.removeprefix(HUB)
        if named.startswith("/") or (named and is_saved(Path(named))):
            return Path(named)  # written by `save_to_disk` on this machine
        return load_hub(pipeline, text)

    match = _URL.fullmatch(text)
    assert match is not None
    scheme, address = match[1].lower(), match[2]
    if scheme in _LOCAL:
        return Path("/", address)
    return _fetch(pipeline, f"{scheme}://{address}", scheme, downloads)  # pathlib has dropped a slash of the URL


def _fetch(pipeline: str, url: str, scheme: str, downloads: Path) -> Path:
    import fsspec

    shown = re.sub(r"//[^/@]*@", "//", url.partition("?")[0])  # without a possible password

    try:
        files, path = fsspec.core.url_to_fs(url)
    except ImportError:
        package = _PACKAGES.get(scheme, scheme)
        raise UserError(f"{pipeline}: --source {shown} needs a driver for {scheme}; pip install {package}") from None
    except ValueError as error:
        message = f"{error}".splitlines()[0]
        raise UserError(f"{pipeline}: --source {shown}: {message}; use a URL that fsspec knows, or a path") from None

    try:
        if files.isdir(path):
            raise UserError(f"{pipeline}: --source {shown} is a folder; pack it as one archive, or fetch it first")
        key = hashlib.sha256(f"{url}\0{files.ukey(path)}".encode()).hexdigest()[:16]
        target = downloads / key / path.rstrip("/").rpartition("/")[2]
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            _download(files, path, target)
    except UserError:
        raise
    except Exception as error:  # every driver has errors of its own
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UserError(f"{pipeline}: --source {shown} cannot be fetched ({reason}); check the address") from None

    return target


def _download(files: Any, path: str, target: Path) -> None:
    """Download a file completely, or leave nothing at the target."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".download-", delete=False) as file:
        temporary = Path(file.name)
    try:
        files.get_file(path, str(temporary))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
