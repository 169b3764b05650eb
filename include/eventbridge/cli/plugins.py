"""Defines the command group `plugins`, which shows the types of sources, targets and transforms with their settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document, show_fields, show_table
from eventbridge.cli.suggestion import Group

app = typer.Typer(
    cls=Group, help="Show the types of sources, targets and transforms, built in and installed.", no_args_is_help=True
)


@app.command("list", short_help="List the types of sources, targets and transforms.")
def list_types(as_json: JsonOption = False) -> None:
    """List the types of sources, targets and transforms, built in and of installed packages, with their settings.

    Needs neither rule files nor a ledger. If a package cannot be used, the reason is in place of the settings.
    """
    from eventbridge.views.plug_ins import all_types

    found = all_types()
    if as_json:
        show_document(found)
        return
    show_table(
        "Types",
        ["kind", "type", "package", "version", "settings"],
        [[each.kind, each.type, each.package, each.version, each.error or ", ".join(each.settings)] for each in found],
    )


@app.command(short_help="Show a type with its settings.")
def show(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A type, such as kafka.")],
    as_json: JsonOption = False,
) -> None:
    """Show the types of a name, one of each kind at most: the package, and each setting with its schema.

    Settings that all types of a kind share are left out.
    """
    from eventbridge.views.plug_ins import types_named

    found = types_named(type_)
    if as_json:
        show_document(found)
        return
    for number, each in enumerate(found):
        if number:
            print_line()
        show_fields(
            [
                ("kind", each.kind),
                ("type", each.type),
                ("package", f"{each.package} {each.version}"),
                ("error", each.error),
            ]
        )
        if each.settings:
            print_line()
            rows = [
                [name, _values(schema), _default(name, schema, each.required), schema.get("description")]
                for name, schema in each.settings.items()
            ]
            show_table("Settings", ["setting", "value", "default", "meaning"], rows)


def _default(name: str, schema: dict[str, Any], required: list[str]) -> Any:
    """Return the default of a setting, or that it has none."""
    return "required" if name in required else schema.get("default")


def _values(schema: dict[str, Any]) -> str:
    """Return the values that a JSON Schema allows, in words."""
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_values, schema[several])))
    if schema.get("type") == "array":
        return f"list of {_values(schema.get('items', {}))}"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2].replace("_", " ")
    return str(schema.get("type", "any"))
