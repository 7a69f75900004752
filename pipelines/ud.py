"""Universal Dependencies: the part of speech of every word, a task for each language."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from mtlscale.spec import SPLITS, UserError, knob, nearest
from pipelines._archive import read_members
from pipelines._base import Prepared, Work
from pipelines._conllu import UPOS, read_conllu
from pipelines._fingerprint import content
from pipelines._tagged_texts import Gathered, TaggedPipeline, check_languages

PARTS = {"train": "train", "val": "dev", "test": "test"}  # split -> what treebanks call it
# The parts of large treebanks are in several files.
FILE = re.compile(r"(?:^|/)(?P<code>[a-z]+_[a-z0-9]+)-ud-(?P<part>train|dev|test)(?:-[a-z0-9]+)?\.conllu(?:\.gz)?$")
# Where a language has several complete treebanks, the one that is taken.
PREFERRED = ("en_ewt", "zh_gsd", "de_gsd", "es_gsd", "fr_gsd", "ru_gsd", "id_gsd", "ko_gsd", "it_isdt", "tr_imst")
# Where the treebank of XTREME has no training part.
SUBSTITUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "zh": {"train": ("zh_pud:test", "zh_hk:test"), "val": ("zh_gsd:dev",), "test": ("zh_gsd:test",)},
}
_KEYS = (*SPLITS, "dev")

Chosen = dict[str, dict[str, tuple[str, ...]]]  # language -> split -> `code:part`


@dataclass(frozen=True)
class Treebanks:
    """The files of a source by `code:part`."""

    files: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, names: Sequence[str]) -> Treebanks:
        found: dict[str, list[str]] = {}
        for name in sorted(names):
            match = FILE.search(name)
            if match is not None:
                found.setdefault(f"{match['code']}:{match['part']}", []).append(name)
        return cls(found)

    def complete(self, code: str) -> bool:
        return all(f"{code}:{part}" in self.files for part in PARTS.values())

    def of_language(self, language: str) -> list[str]:
        """Its treebanks, whole or not."""
        return sorted({one.partition(":")[0] for one in self.files if one.startswith(f"{language}_")})


class Ud(TaggedPipeline):
    """Part-of-speech tags of Universal Dependencies (17 of them), a task for each language, as XTREME has them.

    `languages` are those of treebanks' codes: `en` of en_ewt. The source is a folder with the treebanks' folders, their
    files plain or packed with gzip, or the archive of a release. `treebanks` chooses: `{en: en_ewt, fr: [fr_gsd,
    fr_sequoia], zh: {train: [zh_pud:test, zh_hk:test], val: zh_gsd, test: zh_gsd}}`; several are read one after the
    other, with the parts that each has; `code:part` takes a part as another one. Without it a language has its one
    complete treebank, of several the known one (en_ewt, …); Chinese without a training part of zh_gsd is trained on
    zh_pud and zh_hk; the manifest says what was taken. A token that is written as one word and analysed as several is
    one word, with the tag of its highest part; empty nodes are left out, and spaces within words, and sentences whose
    words are hidden. XTREME joins all treebanks of a language, of another release: scores differ from its for that.
    """

    name: ClassVar[str] = "ud"
    source: ClassVar[str] = "Universal Dependencies (Nivre et al. 2020); as in XTREME (Hu et al., ICML 2020)"
    folder: ClassVar[str] = "ud"

    languages: tuple[str, ...] = knob(("en", "zh", "te", "vi"), help="codes of languages, each a task")
    treebanks: dict[str, Any] = knob({}, help="language -> its treebank, several, or {train: …, val: …, test: …}")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_languages(self.name, self.languages)
        _ = self._told

    @cached_property
    def _told(self) -> Chosen:
        """What `treebanks` says, by language and split."""
        found: Chosen = {}
        for language, told in self.treebanks.items():
            if language not in self.languages:
                raise UserError(f"ud: treebanks has {language!r}, which is not in languages {list(self.languages)}")
            if isinstance(told, Mapping):
                unknown = next((key for key in told if key not in _KEYS), None)
                if unknown is not None:
                    raise UserError(
                        f"ud: treebanks of {language}: unknown part {unknown!r}; {nearest(str(unknown), SPLITS)}"
                    )
                by_split = {"val" if key == "dev" else key: _codes(language, its) for key, its in told.items()}
                missing = next((split for split in SPLITS if not by_split.get(split)), None)
                if missing is not None:
                    raise UserError(f"ud: treebanks of {language} names none for {missing}")
                found[language] = {split: _with_part(by_split[split], PARTS[split]) for split in SPLITS}
            else:
                codes = _codes(language, told)
                found[language] = {split: _with_part(codes, part) for split, part in PARTS.items()}
        return found

    def source_fingerprint(self, located: Path | None) -> str:
        """A hash of the files that are read, whatever lies beside them; of an archive's bytes."""
        assert located is not None
        if located.is_file():
            return content(located)
        there = _listed(located)
        chosen = self._chosen(there)
        names = sorted({name for by_split in chosen.values() for its in by_split.values() for one in its
                        for name in there.files[one]})  # fmt: skip
        return hashlib.sha256("".join(f"{name}\0{content(located / name)}\n" for name in names).encode()).hexdigest()

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        self.check_options()
        there = _listed(source)
        chosen = self._chosen(there)
        wanted = {name for by_split in chosen.values() for its in by_split.values() for one in its
                  for name in there.files[one]}  # fmt: skip
        texts = dict(read_members(source, wanted.__contains__))
        gathered = Gathered()
        for language, by_split in chosen.items():
            for split, its in by_split.items():
                reads = []
                for name in (name for one in its for name in there.files[one]):
                    where = f"ud: {name.rpartition('/')[2]}"
                    raw = gzip.decompress(texts[name]) if name.endswith(".gz") else texts[name]
                    reads.append(read_conllu(where, gathered.text(where, name, raw), language))
                    if not reads[-1].sentences and not reads[-1].problems:
                        raise UserError(f"{where} has no sentence: the treebank is empty; fetch it again")
                gathered.add(language, split, reads, UPOS, self.limit)
                work.progress("read", sum(map(len, gathered.rows)), 0)
        prepared = self.prepared_tags(gathered, dict.fromkeys(self.languages, UPOS), work)
        prepared.notes["treebanks"] = {
            language: {split: list(its) for split, its in by_split.items()} for language, by_split in chosen.items()
        }
        return prepared

    def _chosen(self, there: Treebanks) -> Chosen:
        """The parts that are read, of those that are there. `UserError` names the first that is missing."""
        found: Chosen = {}
        for language in self.languages:
            told = self._told.get(language) or _default(language, there)
            joined = isinstance(self.treebanks.get(language), list | tuple)  # some of them may lack a part
            its = {split: tuple(one for one in parts if one in there.files or not joined) or parts
                   for split, parts in told.items()}  # fmt: skip
            for split, parts in its.items():
                gone = next((one for one in parts if one not in there.files), None)
                if gone is not None:
                    code, _, part = gone.partition(":")
                    raise UserError(f"ud: {code}-ud-{part}.conllu, {split} of {language}, is missing in the source; "
                                    f"name other `treebanks` ({_some(there, language)})")  # fmt: skip
            found[language] = its
        return found


def _codes(language: str, told: object) -> tuple[str, ...]:
    codes = [told] if isinstance(told, str) else told
    if not isinstance(codes, list | tuple) or not all(isinstance(code, str) and code for code in codes):
        raise UserError(f"ud: treebanks of {language} is {told!r}; write a code, as en_ewt, or a list of them")
    return tuple(codes)


def _with_part(codes: Sequence[str], part: str) -> tuple[str, ...]:
    return tuple(code if ":" in code else f"{code}:{part}" for code in codes)


def _default(language: str, there: Treebanks) -> dict[str, tuple[str, ...]]:
    complete = [code for code in there.of_language(language) if there.complete(code)]
    known = [code for code in complete if code in PREFERRED] or complete
    if len(known) == 1:
        return {split: (f"{known[0]}:{part}",) for split, part in PARTS.items()}
    substitute = SUBSTITUTES.get(language)
    if substitute is not None and all(one in there.files for its in substitute.values() for one in its):
        return substitute
    what = "has several treebanks" if known else "has no treebank with train, dev and test"
    raise UserError(f"ud: {language} {what} in the source; choose by `treebanks: {{{language}: …}}` "
                    f"({_some(there, language)})")  # fmt: skip


def _some(there: Treebanks, language: str) -> str:
    return f"there is {', '.join(sorted(one for one in there.files if one.startswith(language + '_'))[:12]) or 'none'}"


def _listed(source: Path) -> Treebanks:
    """The treebanks of a folder or an archive, of which nothing is unpacked."""
    names: list[str] = []

    def noted(name: str) -> bool:
        names.append(name)
        return False

    for _ in read_members(source, noted):
        pass
    there = Treebanks.of(names)
    if not there.files:
        raise UserError(f"ud: {source} has no file <code>-ud-train.conllu; name the folder with the treebanks' folders")
    return there
