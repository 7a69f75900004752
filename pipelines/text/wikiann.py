"""Entities in many languages from WikiANN, which XTREME calls PAN-X."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import ClassVar

from mtlscale.config import UserError, knob
from pipelines._engine.fingerprint import content
from pipelines._formats.archive import read_members
from pipelines._formats.tagged import TaggedFile, read_columns, with_beginnings
from pipelines._texts.tagged_texts import TaggedCorpus, TaggedPipeline, check_languages
from pipelines.contract import PrepareContext, Prepared

TAGS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
SPLIT_NAMES = {"train": "train", "val": "val", "dev": "val", "test": "test"}  # a file's name -> split
# en/train, en/train.conllu.gz, en-train, train-en.tsv
FILE = re.compile(
    r"(?:(?P<folder>[a-z]{2,3}(?:-[a-z]+)*)/|(?P<before>[a-z]{2,3})-|)(?P<part>train|val|dev|test)"
    r"(?:-(?P<after>[a-z]{2,3}))?(?:\.conllu|\.txt|\.tsv)?(?:\.gz)?"
)
_PACKED = re.compile(r"(?P<language>[a-z]{2,3}(?:-[a-z]+)*)\.tar\.gz")


class Wikiann(TaggedPipeline):
    """Named entities of WikiANN (PAN-X of XTREME) in IOB2: places, organisations, persons; a task for each language.

    The source is a folder with `en/train`, `en/dev`, `en/test` (or `en-train`, …, or `en.tar.gz` with the three), whose
    lines are `en:word<tab>tag`, as the set is distributed; or with `en/train.conllu.gz`, …, whose lines are
    `index<tab>word<tab>tag`. Splits are the set's own, the balanced ones of Rahimi et al., which XTREME takes, too. An
    entity that starts with `I-` is read as a beginning, and counted.
    """

    name: ClassVar[str] = "wikiann"
    source: ClassVar[str] = "Pan et al., ACL 2017; splits of Rahimi et al., ACL 2019; PAN-X of XTREME"
    folder: ClassVar[str] = "wikiann"

    languages: tuple[str, ...] = knob(("en", "de", "es", "nl"), help="codes of languages, each a task")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_languages(self.name, self.languages)

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the files that are read, and no others."""
        assert located is not None
        names = sorted({path for by_split in self._files(located).values() for path in by_split.values()})
        listing = "".join(f"{name}\0{content(located / name)}\n" for name in names)
        return hashlib.sha256(listing.encode()).hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_options()

        gathered = TaggedCorpus()
        for language, by_split in self._files(source).items():
            for split, name in by_split.items():
                where = f"wikiann: {name}" + (f" {split}" if _PACKED.fullmatch(name) else "")
                read = _read_file(where, gathered.text(where, name, _raw(where, source / name, split)), language)
                if not read.sentences and not read.problems:
                    raise UserError(f"{where} has no sentence; fetch it again")
                gathered.add(language, split, [with_beginnings(read)], TAGS, self.limit)
                context.progress("read", sum(map(len, gathered.rows)), 0)

        return self.prepared_tags(gathered, dict.fromkeys(self.languages, TAGS), context)

    def _files(self, source: Path) -> dict[str, dict[str, str]]:
        """Return language -> split -> file name; `UserError` names the first file that is missing."""
        if not source.is_dir():
            raise UserError(f"wikiann: {source} is no folder; name the one with the languages' folders or archives")

        files_of: dict[str, dict[str, str]] = {language: {} for language in self.languages}
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            match, packed = FILE.fullmatch(name), _PACKED.fullmatch(name)
            language = (
                packed["language"] if packed else match and (match["folder"] or match["before"] or match["after"])
            )
            if language in files_of and path.is_file():
                for split in (
                    dict.fromkeys(SPLIT_NAMES.values()) if packed else (SPLIT_NAMES[match["part"]],) if match else ()
                ):
                    files_of[language].setdefault(split, name)

        for language, by_split in files_of.items():
            missing = next((split for split in dict.fromkeys(SPLIT_NAMES.values()) if split not in by_split), None)
            if missing is not None:
                raise UserError(f"wikiann: {language} has no {missing} file in {source} (as {language}/{missing}); "
                                "fetch it, or name other `languages`")  # fmt: skip

        return {language: {split: by_split[split] for split in dict.fromkeys(SPLIT_NAMES.values())}
                for language, by_split in files_of.items()}  # fmt: skip


def _raw(where: str, path: Path, split: str) -> bytes:
    if _PACKED.fullmatch(path.name):
        for _, raw in read_members(path, lambda name: SPLIT_NAMES.get(name.rpartition("/")[2]) == split):
            return raw
        raise UserError(f"{where} is missing in {path}; fetch the archive again")
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError) as error:
        raise UserError(f"{where} cannot be read ({error}); fetch it again") from None


def _read_file(where: str, text: str, language: str) -> TaggedFile:
    """Read words and tags from the last two columns, and remove the prefix `en:` that all words may have."""
    read = read_columns(where, text, -2, -1, tabs=True, tags=TAGS)
    prefix = f"{language}:"
    if all(word.startswith(prefix) for sentence in read.sentences for word in sentence.words):
        bare = [
            sentence._replace(words=tuple(word.removeprefix(prefix).strip() or word for word in sentence.words))
            for sentence in read.sentences
        ]
        read = TaggedFile(bare, read.problems, read.counts)
    return read
