"""The base of all sections of the configuration file."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from kqueue.config.duration import duration_text
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


def outside(path: str, given: timedelta, least: timedelta, most: timedelta) -> list[FieldError]:
    """Return the problem of a duration that is shorter than `least` or longer than `most`; empty: it has none."""
    if least <= given <= most:
        return []
    bounds = f"must be from {duration_text(least)} to {duration_text(most)}"
    return [FieldError(path, bounds, duration_text(given))]


def refuse_any(problems: list[FieldError]) -> None:
    """Raise as `refuse` does if there are any problems."""
    if problems:
        refuse(*problems)
