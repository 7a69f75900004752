"""What all parts of an experiment file have in common: unknown keys are mistakes, and mistakes are one line."""

from __future__ import annotations

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

from mtlscale.spec.components import nearest
from mtlscale.spec.errors import UserError

LONGEST = 100  # characters of a name that folders, files and tables carry


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` is no number, 1 is no `true`, and "3" is no 3: pydantic would take them for it."""
        assert info.field_name is not None
        kinds = _kinds(cls.model_fields[info.field_name].annotation)
        for one in value if isinstance(value, list | tuple) else (value,):
            _check_kind(one, kinds)
        return value


def label(text: str) -> str:
    """A label as folders, files and tables can carry it; `ValueError` where it is none."""
    if len(text) > LONGEST:
        raise ValueError(f"has {len(text)} characters; files are named by it: use at most {LONGEST}")
    if not text.isprintable() or text.strip() != text or text.startswith(".") or any(odd in text for odd in "/\\"):
        raise ValueError(f"{text!r} cannot be part of a file's name; leave out slashes, line ends and leading dots")
    return text


Label = AfterValidator(label)


def of_validation(value: Any) -> Any:
    """What chooses epochs or settings; `ValueError` where it names the test split or a target domain."""
    if isinstance(value, str) and {"test", "target"} & set(re.split(r"\W+", value.lower())):
        raise ValueError(
            f"{value!r} would choose by labels of the test split, which of an adaptation between domains are the "
            "target's; everything is chosen on validation: name a metric alone, or loss"
        )
    return value


OfValidation = BeforeValidator(of_validation)


def _kinds(annotation: Any) -> set[Any]:
    """The types that an annotation mentions, but for those of a mapping's keys."""
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
    if not changes:
        return base
    try:
        return type(base).model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise UserError(f"{where}: {describe(error, type(base))}") from None


def first_problem(error: ValidationError) -> Any:
    """The problem to name: a key nobody knows before one that is missing, which it may have been meant for."""
    problems = error.errors()
    return next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a validation error in one line, with the nearest known keys for an unknown one."""
    first = first_problem(error)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        owner: Any = model
        for part in first["loc"][:-1]:
            if isinstance(part, int) or part not in owner.model_fields:
                continue  # the place in a list, or the key of a mapping
            annotation = owner.model_fields[part].annotation
            arguments = [a for a in getattr(annotation, "__args__", ()) if isinstance(a, type)] or [annotation]
            owner = next((a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)), owner)
        return f"unknown key {where}: {nearest(str(first['loc'][-1]), list(owner.model_fields))}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
