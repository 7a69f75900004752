import io
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from mtlscale.config import UserError
from pipelines._formats import archive
from pipelines._formats.archive import Member, members, read_members
from pipelines._sources.file_store import Store

FILES = {f"set/{number:03d}.txt": f"content of {number} ".encode() * (number + 1) for number in range(40)}


def write_tar(path: Path, mode: str, files: dict[str, bytes], odd: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        archive.addfile(directory("set"))
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        if odd is not None:
            archive.addfile(odd)
    return path


def directory(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def listed(source: Path) -> list[Member]:
    return [member for _, member in members(source, lambda name: True)]


def everything(source: Path) -> dict[str, bytes]:
    return dict(read_members(source, lambda name: True))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tar_is_read_whole(tmp_path: Path, mode: str) -> None:
    assert everything(write_tar(tmp_path / "a", mode, FILES)) == FILES


def test_a_zip_and_a_folder_are_read_whole(tmp_path: Path) -> None:
    assert everything(write_zip(tmp_path / "a.zip", FILES)) == FILES
    assert everything(write_folder(tmp_path / "folder", FILES)) == FILES


def test_only_wanted_files_are_read(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a", "w:xz", FILES)
    assert [name for name, _ in read_members(source, lambda name: name.endswith("7.txt"))] == [
        *("set/007.txt", "set/017.txt", "set/027.txt", "set/037.txt")
    ]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_truncated_tar_is_named_wherever_it_ends(tmp_path: Path, mode: str) -> None:
    source = write_tar(tmp_path / "a", mode, FILES)
    content = source.read_bytes()
    for end in range(1, len(content), len(content) // 23):
        if mode == "w" and not any(content[end:]):  # only filling is cut off
            continue
        source.write_bytes(content[:end])
        with pytest.raises(UserError, match=f"{source} is truncated or is no"):
            everything(source)


def test_an_end_inside_a_header_is_no_end_of_the_archive(tmp_path: Path) -> None:
    """tarfile alone takes it for one."""
    plain = write_tar(tmp_path / "a", "w", FILES).read_bytes()
    source = tmp_path / "a.xz"
    compressor = lzma.LZMACompressor()
    # A sync point after the first half header, so that a cut gives the reader exactly this much.
    source.write_bytes((compressor.compress(plain[:1700]) + compressor.flush())[:-12])
    with pytest.raises(UserError, match="truncated"):
        everything(source)


def test_a_truncated_zip_is_named(tmp_path: Path) -> None:
    source = write_zip(tmp_path / "a.zip", FILES)
    source.write_bytes(source.read_bytes()[:-300])
    with pytest.raises(UserError, match="truncated"):
        everything(source)


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("not an archive")
    with pytest.raises(UserError, match="no tar or zip archive"):
        everything(tmp_path / "a.tar")
    with pytest.raises(UserError, match="does not exist"):
        everything(tmp_path / "b.tar")


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/etc/evil", "..\\evil", "C:/evil"])
def test_members_outside_the_folder_are_refused_wanted_or_not(tmp_path: Path, name: str) -> None:
    tar = write_tar(tmp_path / "a.tar", "w:gz", {**FILES, name: b""})
    for source in (tar, write_zip(tmp_path / "a.zip", {name: b""})):
        with pytest.raises(UserError, match="unsafe member"):
            list(read_members(source, lambda name: False))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    odd = tarfile.TarInfo("set/odd")
    odd.type, odd.linkname = kind, "000.txt"
    with pytest.raises(UserError, match=r"'set/odd', a (link|device)"):
        everything(write_tar(tmp_path / "a", "w:xz", FILES, odd))


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("set/odd")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match="'set/odd', a link"):
        everything(tmp_path / "a.zip")


def test_an_archive_of_too_much_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What expands to two hundred times its size is not decompressed, and a list without an end is not read on."""
    files = {"zeros.txt": bytes(2_000_000), "note.txt": b"a note"}
    monkeypatch.setattr(archive, "_HARMLESS_BYTES", 1_000_000)
    tar = write_tar(tmp_path / "a.tar.xz", "w:xz", files)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("zeros.txt", files["zeros.txt"])
        packed.writestr("note.txt", files["note.txt"])
    for source in (tar, tmp_path / "a.zip"):
        assert dict(read_members(source, lambda name: name == "note.txt")) == {"note.txt": b"a note"}
        with pytest.raises(UserError, match=r"expands to over 200 times its size; do not trust this archive"):
            everything(source)
    monkeypatch.setattr(archive, "_MOST_MEMBERS", 30)
    for source in (write_tar(tmp_path / "b.tar", "w", FILES), write_zip(tmp_path / "b.zip", FILES)):
        with pytest.raises(UserError, match="has more than 30 members"):
            list(read_members(source, lambda name: False))


def test_an_archive_of_too_much_in_a_folder_of_pictures_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_HARMLESS_BYTES", 1_000_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros.png", bytes(2_000_000))
    with pytest.raises(UserError, match=r"a\.zip expands to over 200 times its size; do not trust this archive"):
        Store(tmp_path, lambda name: name.endswith(".png"))
    assert Store(tmp_path, lambda name: False).names == []
    write_tar(tmp_path / "b.tar", "w", FILES)
    monkeypatch.setattr(archive, "_MOST_MEMBERS", 30)
    with pytest.raises(UserError, match=r"b\.tar has more than 30 members"):
        Store(tmp_path, lambda name: False)


def test_a_tar_of_many_members_takes_no_memory_for_each(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", "w", {f"{number}": b"" for number in range(3000)})
    tracemalloc.start()
    try:
        assert not list(read_members(tar, lambda name: False))
        assert tracemalloc.get_traced_memory()[1] < 1_500_000  # kept members are 2.4 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("long", [False, True])
def test_the_members_of_a_plain_tar_lie_where_they_are_said_to(tmp_path: Path, format: int, long: bool) -> None:
    path, contents = tmp_path / "x.tar", {}
    with tarfile.open(path, "w", format=format) as tar:
        tar.addfile(directory("folder"))
        for number in range(20):
            name = f"{'deep/' * (30 if long else 2)}{number}.png"
            contents[name] = bytes([number]) * (number * 100)
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(contents[name]), 1_600_000_000 + number
            tar.addfile(member, io.BytesIO(contents[name]))
    raw = path.read_bytes()
    found = {member.name: member for member in listed(path)}
    assert {name: raw[m.start : m.start + m.size] for name, m in found.items()} == contents
    assert found[name].mark == 1_600_000_019
    with tarfile.open(path) as tar:
        entries = [(m.name, m.offset_data, m.size) for m in tar if m.isfile()]
    assert entries == [(m.name, m.start, m.size) for m in listed(path)]


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 512 * 3, 512 * 3 + 10])
def test_a_tar_that_is_cut_off_is_no_shorter_one(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = 1024
            tar.addfile(member, io.BytesIO(b"x" * 1024))
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(UserError, match="is truncated or is no tar or zip archive"):
        listed(path)


def test_a_damaged_header_is_no_end_of_a_tar(tmp_path: Path) -> None:
    """tarfile alone takes it for one, and would list the members before it alone."""
    path = write_tar(tmp_path / "x.tar", "w", FILES)
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"set/020.txt") + 150] ^= 1  # its checksum
    path.write_bytes(whole)
    with pytest.raises(UserError, match="a header is damaged"):
        listed(path)
