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
        annotation = cls.model_fields[info.field_name].annotation
        kinds = _kinds(annotation)
        if isinstance(value, str) and int in kinds and tuple in {get_origin(kind) for kind in kinds}:
            raise ValueError(f"should be a list, such as {_numbers(value)}, not the text {value!r}")
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
        hint = "; variables of the environment are not read here, --set sets a value" if value.startswith("$") else ""
        if _RANGE.fullmatch(value.strip()):
            hint = f"; write {_numbers(value)}" if float not in kinds else "; one value, a range is for `search.space`"
        raise ValueError(f"should be {'a number' if float in kinds else 'an integer'}, not the text {value!r}{hint}")


_RANGE = re.compile(r"(-?[\d.e-]+?)\s*(?:-|\.\.\.?|–|to)\s*(-?[\d.e-]+)")
_MOST_NUMBERS = 20


def _numbers(text: str) -> str:
    """Return the list that a text such as `0-4`, `range(5)` or `0, 1, 2` means; else an example of one."""
    numbers: list[int] = []
    if counted := re.fullmatch(r"range\((\d+)\)", text.strip()):
        numbers = list(range(int(counted[1])))
    elif ends := re.fullmatch(r"(\d+)\s*(?:-|\.\.|–|to)\s*(\d+)", text.strip()):
        numbers = list(range(int(ends[1]), int(ends[2]) + 1))
    elif re.fullmatch(r"\d+(?:[\s,;]+\d+)*", text.strip()):
        numbers = [int(number) for number in re.findall(r"\d+", text)]
    return str(numbers) if 0 < len(numbers) <= _MOST_NUMBERS else "[0, 1, 2]"


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
    where = ".".join(str(part) for part in first["loc"] if not _of_a_type(part))
    if first["type"] == "extra_forbidden":
        return f"unknown key {where}: {_meant(str(first['loc'][-1]), _owner(first['loc'], model), model)}"

    message = _in_words(first)
    return f"{where}: {message}" if where else message


def _of_a_type(part: int | str) -> bool:
    """Return whether a part of an error's place names a type among alternatives, which is no key of the file."""
    return isinstance(part, str) and (part in _PLAIN_TYPES or re.fullmatch(r"[a-z-]+\[.*\]", part) is not None)


_PLAIN_TYPES = ("str", "int", "float", "bool", "none")


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
_OF_VALUES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
_NUMBERS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
}
_LISTS = ("tuple_type", "list_type")
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")


def _in_words(problem: Any) -> str:
    """Return pydantic's message about a value in the words of the experiment file."""
    key = next((part for part in reversed(problem["loc"]) if isinstance(part, str) and not _of_a_type(part)), "")
    example, kind, value = _EXAMPLES.get(key, ""), problem["type"], problem["input"]

    if kind in _LISTS:
        return f"should be a list, such as {example or f'[{_listed(value)}]'}"
    if kind in _MAPPINGS and example and isinstance(problem["loc"][-1], int):
        name = example.strip("[]").split(", ")[-1]
        return f"should be a name, or a mapping such as {{name: {name}}}, not {_short(value)}"
    if kind in _MAPPINGS:
        return f"should be a mapping, such as {example or '{KEY: VALUE}'}, not {_short(value)}"

    if kind == "missing":
        return f"is missing; write `{key}: {example}`" if example else "is missing"
    if kind == "too_short":
        return f"is empty; name one at least, such as {example}" if example else "is empty; name one at least"
    if kind == "string_type":
        return f"should be a text, not {_short(value)}; write it in quotes"

    if kind == "string_pattern_mismatch":
        return f"should be letters, digits and . _ -, with a letter or a digit first, not {_short(value)}"
    if kind in _NUMBERS:
        several = "; to try several, write `search: {space: {…}}`" if isinstance(value, list | tuple | dict) else ""
        return f"should be {_NUMBERS[kind]}, not {_short(value)}{several}"
    if kind == "literal_error":
        return f"should be {problem['ctx']['expected']}, not {_short(value)}{_meant_value(problem)}"

    shown_value = f", not {_short(value)}" if kind in _OF_VALUES else ""
    message = str(problem["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "should be") + shown_value


def _meant_value(problem: Any) -> str:
    """Return a clause with the one of some values that was meant, if one is near."""
    choices = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
    near = difflib.get_close_matches(str(problem["input"]).lower(), choices, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Mapping | set) else str(value)


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


_MOST_SHOWN = 40  # characters of a value
