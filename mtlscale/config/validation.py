"""Validation shared by all parts of an experiment file: unknown keys are errors, and an error is one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from mtlscale.config.errors import UserError
from mtlscale.config.registry.nearest import nearest
from mtlscale.config.registry.synonyms import names_here
from mtlscale.config.sections import sections

LONGEST = 100  # characters of a name that folders, files and tables carry


class Model(BaseModel):
    """Base of the sections of an experiment file: frozen, without unknown keys, NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject `true` for a number, 1 for `true`, and "3" for 3, which pydantic would convert."""
        assert info.field_name is not None
        kinds = _kinds(cls.model_fields[info.field_name].annotation)
        for entry in value if isinstance(value, list | tuple) else (value,):
            _check_kind(entry, kinds)
        return value


def label(text: str) -> str:
    """Return a label that folders, files and tables can carry.

    Raises:
        ValueError: If the text is none.
    """
    if len(text) > LONGEST:
        raise ValueError(f"has {len(text)} characters; files are named by it: use at most {LONGEST}")
    if not text.isprintable() or text.strip() != text or text.startswith(".") or any(odd in text for odd in "/\\"):
        raise ValueError(f"{text!r} cannot be part of a file's name; leave out slashes, line ends and leading dots")
    return text


Label = AfterValidator(label)


def of_validation(value: Any) -> Any:
    """Return the criterion that chooses epochs or settings.

    Raises:
        ValueError: If it names the test split or a target domain.
    """
    if isinstance(value, str) and {"test", "target"} & set(re.split(r"\W+", value.lower())):
        raise ValueError(
            f"{value!r} would choose by labels of the test split, which of an adaptation between domains are the "
            "target's; everything is chosen on validation: name a metric alone, or loss"
        )
    return value


OfValidation = BeforeValidator(of_validation)


def _kinds(annotation: Any) -> set[Any]:
    """Return the types that an annotation mentions, except those of a mapping's keys."""
    parts = get_args(annotation)
    parts = parts[1:] if get_origin(annotation) is dict else parts
    return {annotation}.union(*map(_kinds, parts)) if parts else {annotation}


def _check_kind(value: Any, kinds: set[Any]) -> None:
    if Any in kinds:
        return

    number = bool(kinds & {int, float})
    if isinstance(value, bool) and number and bool not in kinds:
        raise ValueError(f"should be a number, not {str(value).lower()}")
    if bool in kinds and not isinstance(value, bool):
        raise ValueError(f"should be true or false, not {value!r}")
    if isinstance(value, str) and number and str not in kinds:
        raise ValueError(f"should be {'a number' if float in kinds else 'an integer'}, not the text {value!r}")


M = TypeVar("M", bound=Model)


def override(base: M, changes: Mapping[str, Any], where: str) -> M:
    """Return a section with some keys changed.

    Raises:
        UserError: If a key is unknown or a value does not fit; the message begins with `where`.
    """
    if not changes:
        return base
    try:
        return type(base).model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise UserError(f"{where}: {describe(error, type(base))}") from None


def first_problem(error: ValidationError) -> Any:
    """Return the problem to report: an unknown key before a missing one, which it may have been meant for."""
    problems = error.errors()
    return next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem of a validation error in one line, with the key that was meant for an unknown one."""
    first = first_problem(error)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {where}: {_meant(str(first['loc'][-1]), _owner(first['loc'], model), model)}"

    message = _in_words(first)
    return f"{where}: {message}" if where else message


def _owner(location: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """Return the model that a key at this location of the file would belong to."""
    owner: Any = model

    for part in location[:-1]:
        if isinstance(part, int) or part not in owner.model_fields:
            continue  # the index of a list, or the key of a mapping
        annotation = owner.model_fields[part].annotation
        arguments = [argument for argument in getattr(annotation, "__args__", ()) if isinstance(argument, type)] or [
            annotation
        ]
        owner = next(
            (argument for argument in arguments if isinstance(argument, type) and issubclass(argument, BaseModel)),
            owner,
        )
    return owner  # type: ignore[no-any-return]


def _meant(key: str, owner: type[BaseModel], model: type[BaseModel]) -> str:
    """Return a clause with the key that was meant, from its own section or else from another."""
    keys = list(owner.model_fields)
    synonyms = names_here(key)
    misspelt = any(name in keys for name in synonyms) or difflib.get_close_matches(key, keys, n=1, cutoff=_ALIKE)
    if not misspelt and (other_path := place_of_key(key, model)) is not None:
        return f"it is `{other_path}` here"

    listing = next((path for path, section in sections(model) if section is owner), "")
    return nearest(key, keys, listing=f"keys {listing}".strip())


_ALIKE = 0.8  # a key this similar to one of its own section is misspelt, not in the wrong section


def place_of_key(key: str, model: type[BaseModel]) -> str | None:
    """Return the dotted path of a key, or of the key that other libraries call so; None if no section has it."""
    for name in (key, *names_here(key)):
        for path, section in sections(model):
            if name in section.model_fields and "methods" not in path:
                return f"{path}.{name}".lstrip(".")
    return None


# Examples of lists and mappings, for the keys that are most often written as one value.
_EXAMPLES = {
    "seeds": "[0, 1, 2]",
    "methods": "[stl, equal, mgda]",
    "datasets": "[digits]",
    "floors": "[constant]",
    "metrics": "[accuracy]",
    "delta": "[accuracy]",
    "training": "{epochs: 5}",
    "model": "{encoder: mlp}",
    "search": "{budget: 8}",
    "resources": "{workers: 1}",
    "tracking": "{enabled: false}",
    "options": "{KEY: VALUE}",
}
_OF_VALUES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "literal_error")
_LISTS = ("tuple_type", "list_type")
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")


def _in_words(problem: Any) -> str:
    """Return pydantic's message about a value in the words of the experiment file."""
    key = next((part for part in reversed(problem["loc"]) if isinstance(part, str)), "")
    example, kind, value = _EXAMPLES.get(key, ""), problem["type"], problem["input"]

    if kind in _LISTS:
        return f"should be a list, such as {example or f'[{value}]'}"
    if kind in _MAPPINGS:
        return f"should be a mapping, such as {example or '{KEY: VALUE}'}, not {_short(value)}"

    if kind == "missing":
        return f"is missing; write `{key}: {example}`" if example else "is missing"
    if kind == "too_short":
        return f"is empty; name one at least, such as {example}" if example else "is empty; name one at least"
    if kind == "string_type":
        return f"should be a text, not {_short(value)}; write it in quotes"

    shown_value = f", not {_short(value)}" if kind in _OF_VALUES else ""
    return str(problem["msg"]).removeprefix("Value error, ") + shown_value


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


_MOST_SHOWN = 40  # characters of a value
