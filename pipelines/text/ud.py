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

from mtlscale.config import SPLITS, UserError, knob, nearest
from pipelines._engine.fingerprint import content
from pipelines._formats.archive import read_members
from pipelines._formats.conllu import UPOS, read_conllu
from pipelines._texts.tagged_texts import TaggedCorpus, TaggedPipeline, check_languages
from pipelines.contract import PrepareContext, Prepared

OFFICIAL_SPLITS = {"train": "train", "val": "dev", "test": "test"}  # split -> its name in treebanks
# The parts of large treebanks are divided among several files.
FILE = re.compile(r"(?:^|/)(?P<code>[a-z]+_[a-z0-9]+)-ud-(?P<part>train|dev|test)(?:-[a-z0-9]+)?\.conllu(?:\.gz)?$")
# The treebank that is taken if a language has several complete ones.
PREFERRED = ("en_ewt", "zh_gsd", "de_gsd", "es_gsd", "fr_gsd", "ru_gsd", "id_gsd", "ko_gsd", "it_isdt", "tr_imst")
# Replacements if the treebank of XTREME has no training part.
SUBSTITUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "zh": {"train": ("zh_pud:test", "zh_hk:test"), "val": ("zh_gsd:dev",), "test": ("zh_gsd:test",)},
}
_KEYS = (*SPLITS, "dev")

TreebankChoice = dict[str, dict[str, tuple[str, ...]]]  # language -> split -> `code:part`


@dataclass(frozen=True)
class Treebanks:
    """The files of a source by `code:part`."""

    files: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, names: Sequence[str]) -> Treebanks:
        files: dict[str, list[str]] = {}
        for name in sorted(names):
            match = FILE.search(name)
            if match is not None:
                files.setdefault(f"{match['code']}:{match['part']}", []).append(name)
        return cls(files)

    def complete(self, code: str) -> bool:
        return all(f"{code}:{part}" in self.files for part in OFFICIAL_SPLITS.values())

    def of_language(self, language: str) -> list[str]:
        """Return the language's treebanks, complete or not."""
        return sorted({code_part.partition(":")[0] for code_part in self.files if code_part.startswith(f"{language}_")})


class Ud(TaggedPipeline):
    """Part-of-speech tags of Universal Dependencies (17 of them), a task for each language, as XTREME has them.

    `languages` are the language codes of treebanks: `en` of en_ewt. The source is a folder with the treebanks' folders,
    their files plain or packed with gzip, or the archive of a release. `treebanks` chooses: `{en: en_ewt, fr: [fr_gsd,
    fr_sequoia], zh: {train: [zh_pud:test, zh_hk:test], val: zh_gsd, test: zh_gsd}}`. Several treebanks are read one
    after the other, with the parts that each has; `code:part` takes a part in the role of another one. Without a
    choice, a language has its one complete treebank, or of several the preferred one (en_ewt, …); Chinese is trained on
    zh_pud and zh_hk if zh_gsd has no training part. The manifest says which were taken.

    A token that is written as one word and analysed as several is one word, with the tag of its highest part. Empty
    nodes, spaces within words, and sentences whose words are hidden are left out. XTREME joins all treebanks of a
    language, of another release; therefore scores differ from those of XTREME.
    """

    name: ClassVar[str] = "ud"
    source: ClassVar[str] = "Universal Dependencies (Nivre et al. 2020); as in XTREME (Hu et al., ICML 2020)"
    folder: ClassVar[str] = "ud"

    languages: tuple[str, ...] = knob(("en", "zh", "te", "vi"), help="codes of languages, each a task")
    treebanks: dict[str, Any] = knob({}, help="language -> its treebank, several, or {train: …, val: …, test: …}")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_languages(self.name, self.languages)
        _ = self._treebank_choice

    @cached_property
    def _treebank_choice(self) -> TreebankChoice:
        """The choice of `treebanks`, by language and split."""
        chosen: TreebankChoice = {}
        for language, description in self.treebanks.items():
            if language not in self.languages:
                raise UserError(f"ud: treebanks has {language!r}, which is not in languages {list(self.languages)}")
            if isinstance(description, Mapping):
                unknown = next((key for key in description if key not in _KEYS), None)
                if unknown is not None:
                    raise UserError(
                        f"ud: treebanks of {language}: unknown part {unknown!r}; {nearest(str(unknown), SPLITS)}"
                    )

                by_split = {
                    "val" if key == "dev" else key: _codes(language, part_codes)
                    for key, part_codes in description.items()
                }
                missing = next((split for split in SPLITS if not by_split.get(split)), None)
                if missing is not None:
                    raise UserError(f"ud: treebanks of {language} names none for {missing}")
                chosen[language] = {split: _with_part(by_split[split], OFFICIAL_SPLITS[split]) for split in SPLITS}
            else:
                codes = _codes(language, description)
                chosen[language] = {split: _with_part(codes, part) for split, part in OFFICIAL_SPLITS.items()}

        return chosen

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the files that are read, or the bytes of an archive."""
        assert located is not None
        if located.is_file():
            return content(located)
        treebanks = _listed(located)
        chosen = self._selected(treebanks)
        names = sorted({name for by_split in chosen.values() for parts in by_split.values() for part in parts
                        for name in treebanks.files[part]})  # fmt: skip
        return hashlib.sha256("".join(f"{name}\0{content(located / name)}\n" for name in names).encode()).hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_options()
        treebanks = _listed(source)
        chosen = self._selected(treebanks)
        file_names = {
            name
            for by_split in chosen.values()
            for parts in by_split.values()
            for part in parts
            for name in treebanks.files[part]
        }

        texts = dict(read_members(source, file_names.__contains__))

        gathered = TaggedCorpus()
        for language, by_split in chosen.items():
            for split, parts in by_split.items():
                reads = []
                for name in (name for part in parts for name in treebanks.files[part]):
                    where = f"ud: {name.rpartition('/')[2]}"
                    raw = gzip.decompress(texts[name]) if name.endswith(".gz") else texts[name]
                    reads.append(read_conllu(where, gathered.text(where, name, raw), language))
                    if not reads[-1].sentences and not reads[-1].problems:
                        raise UserError(f"{where} has no sentence: the treebank is empty; fetch it again")
                gathered.add(language, split, reads, UPOS, self.limit)
                context.progress("read", sum(map(len, gathered.rows)), 0)

        prepared = self.prepared_tags(gathered, dict.fromkeys(self.languages, UPOS), context)
        prepared.notes["treebanks"] = {
            language: {split: list(parts) for split, parts in by_split.items()} for language, by_split in chosen.items()
        }

        return prepared

    def _selected(self, there: Treebanks) -> TreebankChoice:
        """Return the parts that are read; `UserError` names the first one that is missing."""
        chosen: TreebankChoice = {}
        for language in self.languages:
            requested = self._treebank_choice.get(language) or _default(language, there)
            # Some of several treebanks that are joined may lack a part.
            joined = isinstance(self.treebanks.get(language), list | tuple)
            available = {
                split: tuple(code_part for code_part in parts if code_part in there.files or not joined) or parts
                for split, parts in requested.items()
            }

            for split, parts in available.items():
                missing_part = next((code_part for code_part in parts if code_part not in there.files), None)
                if missing_part is not None:
                    code, _, part = missing_part.partition(":")
                    raise UserError(f"ud: {code}-ud-{part}.conllu, {split} of {language}, is missing in the source; "
                                    f"name other `treebanks` ({_listed_codes(there, language)})")  # fmt: skip

            chosen[language] = available
        return chosen


def _codes(language: str, value: object) -> tuple[str, ...]:
    codes = [value] if isinstance(value, str) else value
    if not isinstance(codes, list | tuple) or not all(isinstance(code, str) and code for code in codes):
        raise UserError(f"ud: treebanks of {language} is {value!r}; write a code, as en_ewt, or a list of them")
    return tuple(codes)


def _with_part(codes: Sequence[str], part: str) -> tuple[str, ...]:
    return tuple(code if ":" in code else f"{code}:{part}" for code in codes)


def _default(language: str, available: Treebanks) -> dict[str, tuple[str, ...]]:
    complete = [code for code in available.of_language(language) if available.complete(code)]
    candidates = [code for code in complete if code in PREFERRED] or complete
    if len(candidates) == 1:
        return {split: (f"{candidates[0]}:{part}",) for split, part in OFFICIAL_SPLITS.items()}

    substitute = SUBSTITUTES.get(language)
    if substitute is not None and all(
        code_part in available.files for parts in substitute.values() for code_part in parts
    ):
        return substitute

    problem = "has several treebanks" if candidates else "has no treebank with train, dev and test"
    raise UserError(f"ud: {language} {problem} in the source; choose by `treebanks: {{{language}: …}}` "
                    f"({_listed_codes(available, language)})")  # fmt: skip


def _listed_codes(available: Treebanks, language: str) -> str:
    codes = sorted(code for code in available.files if code.startswith(language + "_"))
    return f"there is {', '.join(codes[:12]) or 'none'}"


def _listed(source: Path) -> Treebanks:
    """Return the treebanks of a folder or an archive without unpacking anything."""
    names: list[str] = []

    def noted(name: str) -> bool:
        names.append(name)
        return False

    for _ in read_members(source, noted):
        pass

    treebanks = Treebanks.of(names)
    if not treebanks.files:
        raise UserError(f"ud: {source} has no file <code>-ud-train.conllu; name the folder with the treebanks' folders")
    return treebanks
