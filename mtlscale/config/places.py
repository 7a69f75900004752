"""What the text of a place names: a folder of this machine, or a URL that fsspec knows."""

from __future__ import annotations

import re
from pathlib import Path

from mtlscale.config.addresses import without_secrets
from mtlscale.config.errors import UserError

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)")  # a `Path` has one slash of two
_TILDE = re.compile(r"((?:-{1,2}[\w-]+=)?)(~(?:/.*)?)")
_LOCAL = ("file", "local")


def without_tilde(argument: str) -> str:
    """Return an argument of the command line, such as `--home=~/runs`, whose `~` its shell has left as it is."""
    match = _TILDE.fullmatch(argument)
    return argument if match is None else f"{match[1]}{local_path(match[2])}"


def local_path(text: Path | str) -> Path:
    """Return a path with the home folder for a `~` that no shell has expanded.

    Raises:
        UserError: If there is no such home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(f"{text}: {str(error).rstrip('.')}; write the path in full") from None


def local_folder(text: Path | str, setting: str) -> Path:
    """Return the absolute path of a folder that an option or a variable names.

    Raises:
        UserError: If it is a URL, or a name that MLflow's database cannot lie below.
    """
    match = _SCHEME.match(str(text))
    if match is not None and match["slashes"] and not Path(text).is_dir():
        shown = without_secrets(str(text))
        if match["scheme"] in _LOCAL:
            named = Path("/", str(text)[match.end() :])
            raise UserError(f"{setting} {shown} is a URL; name the folder itself, {named}")
        raise UserError(f"{setting} {shown} is a URL, and {setting} names a folder; --storage takes s3://BUCKET/FOLDER")
    if "?" in str(text):
        raise UserError(f"{setting} {text}: a ? ends the path of a database; name a folder without one")
    return local_path(text).absolute()


def storage_url(text: str, setting: str) -> str:
    """Return the URL of a storage.

    Raises:
        UserError: If it is no URL and no full path.
    """
    match = _SCHEME.match(text)
    if match is None and local_path(text).is_absolute():
        return str(local_path(text))
    if match is not None and len(match["slashes"]) >= 2 and len(text) > match.end():
        return text

    shown, rest = without_secrets(text), text[match.end() :] if match is not None else text
    meant = f"{match['scheme']}://{rest or 'BUCKET/FOLDER'}" if match is not None else f"s3://{rest} or file:///{rest}"
    raise UserError(f"{setting} {shown} names no storage; write {meant}")
