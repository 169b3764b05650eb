"""Defines the command `init`, which creates a folder with a rule, its tests and a few events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from eventbridge.cli.output import JsonOption, print_line, show_document
from eventbridge.errors import UserError

_RULE: Final = """\
buses:
  orders:
    source: {type: embedded, start_at: earliest}
rules:
  big-orders:
    description: large orders, for the account team
    bus: orders
    pattern:
      type: [order.placed]
      data: {amount: [{numeric: [">", 1000]}]}
    targets:
      accounts:
        type: file
        path: accounts.jsonl
        transform: {form: TEMPLATE, value: {id: $.data.id, amount: $.data.amount}, template: '{"order": "${id}", "amount": ${amount}}'}
    tests:
      - event: {type: order.placed, data: {id: A-17, amount: 1000.01}}
        outputs: {accounts: {order: A-17, amount: 1000.01}}
      - event: {type: order.placed, data: {id: A-18, amount: 1000}}
        matches: false
"""  # noqa: E501 - lines of a rule file

_EVENTS: Final = """\
{"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed", "data": {"id": "A-17", "amount": 1999.00}}
{"specversion": "1.0", "id": "2", "source": "/shop", "type": "order.placed", "data": {"id": "A-18", "amount": 40}}
{"specversion": "1.0", "id": "3", "source": "/shop", "type": "order.paid", "data": {"id": "A-17", "amount": 1999.00}}
"""

FILES: Final = {"rules/orders.yaml": _RULE, "orders.jsonl": _EVENTS}

_COMMANDS: Final = """\
export EVENTBRIDGE_RULES_FOLDER=rules
eventbridge rules check                                    # runs the tests in the rule file, too
eventbridge rules test big-orders --events orders.jsonl --explain
eventbridge events publish orders orders.jsonl
eventbridge compile                                        # once for each installation, 1 to 3 minutes
eventbridge deliver --runner orders --until-idle           # starts Spark, which takes about 15 s
cat .eventbridge/files/accounts.jsonl
eventbridge audit"""


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    as_json: JsonOption = False,
) -> None:
    """Create a folder with a rule, its tests and three events, and print commands for trying them out.

    Existing files are never changed: a folder that is not empty is refused.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"the folder {folder} holds files already. Name a new one")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. Name a new folder")
    created = not folder.exists()
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if as_json:
        files = [{"file": name, "written": True} for name in sorted(FILES)]
        show_document({"folder": str(folder), "created": created, "files": files})
        return
    print_line(f"Created {folder} with a rule, its tests and three events. Try them:\n")
    for command in [f"cd {folder}", *_COMMANDS.splitlines()]:
        print_line(f"  {command}")
