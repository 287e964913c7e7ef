"""The base of all sections of the configuration file."""

from __future__ import annotations

from typing import NoReturn

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from kqueue.errors import FieldError

PROBLEMS = "problems"
"""Type and context key of the validation error that carries a list of FieldErrors, relative to its section."""


class Section(BaseModel):
    """Frozen; camelCase in the file, snake_case in Python; unknown fields are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )


def refuse(*problems: FieldError) -> NoReturn:
    """End a section's validator with all its problems; their paths begin at the section."""
    raise PydanticCustomError(PROBLEMS, "not valid", {PROBLEMS: problems})


def refuse_any(problems: list[FieldError]) -> None:
    """Raise as `refuse` does if there are any problems."""
    if problems:
        refuse(*problems)
