"""Commands that take records: each field is an option of its own, and a name belongs to one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from eventbridge.cli.options import takes_records


@dataclass(frozen=True)
class Size:
    """A record of options."""

    width: Annotated[int, typer.Option("--wide", help="How wide.")]
    unit: Annotated[str | None, typer.Option(help="Of what.")] = None


def show(
    name: Annotated[str, typer.Argument()], size: Size, loud: Annotated[bool, typer.Option("--loud")] = False
) -> None:
    """Show a record."""
    typer.echo(f"{name} {size} {loud}")


def ran(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(takes_records(show))
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_fields_are_options_and_the_command_gets_the_record() -> None:
    """Defaults of fields are those of options."""
    assert ran("a", "--wide", "3", "--loud") == (0, "a Size(width=3, unit=None) True\n")
    assert ran("a", "--wide", "3", "--unit", "m") == (0, "a Size(width=3, unit='m') False\n")


def test_a_field_without_a_default_is_required() -> None:
    """As a parameter would be."""
    code, said = ran("a")

    assert code == 2
    assert "--wide" in said


def test_two_options_of_one_name_are_refused() -> None:
    """When the command is made, as one of them could never be given."""

    def twice(size: Size, unit: Annotated[str, typer.Option()] = "") -> None: ...

    twice.__annotations__ = {"size": Size, "unit": Annotated[str, typer.Option()], "return": None}
    with pytest.raises(TypeError, match="unit"):
        takes_records(twice)
