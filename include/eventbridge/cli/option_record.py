"""Lets a command take options as a dataclass: each field of the parameter becomes an option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def takes_records(command: Callable[..., None]) -> Callable[..., None]:
    """Return a Typer command with the fields of its dataclass parameters as options.

    Fields are annotated like parameters; the default of a field is that of the option. Names must be unique.
    """
    hints = get_type_hints(command, include_extras=True)
    of_records = {name: list(_parameters(hint)) for name, hint in hints.items() if is_dataclass(hint)}
    seen: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        whole = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for each in of_records.get(name, [whole]):
            if each.name in seen:
                raise TypeError(f"two options of {command.__qualname__} have the name {each.name!r}")
            seen[each.name] = each

    @wraps(command)
    def run(**given: Any) -> None:
        for name, parameters in of_records.items():
            given[name] = hints[name](**{each.name: given.pop(each.name) for each in parameters})
        command(**given)

    run.__signature__ = inspect.Signature(list(seen.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in seen.values()}
    return run


def _parameters(record: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(record, include_extras=True)
    for each in fields(record):
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[each.name])
