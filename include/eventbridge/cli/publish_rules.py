"""`eventbridge rules publish`: one process says what the rules of all hosts are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, say, show_json
from eventbridge.cli.runtime import runtime
from eventbridge.cli.table import counted


def publish_rules(
    folder: Annotated[
        str | None,
        typer.Option(
            "--rules",
            metavar="FOLDER",
            help="Folder of rule files, or s3://CONNECTION@BUCKET/PREFIX; default: EVENTBRIDGE_RULES_FOLDER.",
        ),
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Publish a set without rules: remove all of them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the rule files and put them in force for every host, where EVENTBRIDGE_RULES_FROM is `published`.

    A rule is added, changed or removed by this alone. With mistakes in the files nothing changes.
    """
    from eventbridge.rule import load_rules
    from eventbridge.stages.operate.bucket_rules import BUCKET_SCHEME, load_bucket_rules
    from eventbridge.stages.operate.publish_rules import publish_rules as publish

    with runtime() as work:
        if folder is None:
            rules = work.rule_files()
        elif folder.startswith(BUCKET_SCHEME):
            rules = load_bucket_rules(folder, work.connections)
        else:
            rules = load_rules(Path(folder))
        published = publish(work, rules, empty=empty)
    if as_json:
        show_json(published)
        return
    say(f"{counted(published.rules, 'rule', 'rules')} in force")
    for what, names in (("changed", published.changed), ("removed", published.removed)):
        for name in names:
            say(f"{what}: {name}")
