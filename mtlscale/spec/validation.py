"""What all parts of an experiment file have in common: unknown keys are mistakes, and mistakes are one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mtlscale.spec.components import nearest
from mtlscale.spec.errors import UserError


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
