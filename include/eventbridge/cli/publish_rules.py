"""`eventbridge rules publish`: publishes the rules of all hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from eventbridge.cli.interrupt import Interrupts
from eventbridge.cli.output import JsonOption, print_line, show_json, warn
from eventbridge.cli.runtime import open_runtime
from eventbridge.cli.table import counted
from eventbridge.errors import EventBridgeError

if TYPE_CHECKING:
    from eventbridge.control.publish_rules import PublishedRules


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
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="SECONDS",
            min=0.1,
            help="Keep running, and look for changes after every so many seconds.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the rule files and publish them for every host, where EVENTBRIDGE_RULES_FROM is `published`.

    Rules are added, changed and removed only by this command. With errors in the files nothing changes.
    """
    from eventbridge.control.publish_rules import publish_rules as publish
    from eventbridge.runtime.bucket_rules import load_rule_files

    with open_runtime(is_action=True) as runtime:

        def once() -> PublishedRules:
            rules = runtime.rule_files() if folder is None else load_rule_files(folder, runtime.connections)
            return publish(runtime, rules, empty=empty)

        if watch is not None:
            _keep_publishing(once, watch)
        published = once()
    if as_json:
        show_json(published)
    else:
        _show(published)


def _keep_publishing(once: Callable[[], PublishedRules], seconds: float) -> NoReturn:
    """Publish whenever the files change, until a signal ends the command; report a repeated error once."""
    with Interrupts() as interrupts:
        interrupts.begin()
        before = ""
        while not interrupts.stop.is_set():
            try:
                published = once()
            except EventBridgeError as error:
                if str(error) != before:
                    warn(f"{error} The rules that were published before stay in force.")
                before = str(error)
            else:
                if before or published.changed or published.removed:
                    _show(published)
                before = ""
            interrupts.stop.wait(seconds)
    raise typer.Exit(interrupts.exit_code)


def _show(published: PublishedRules) -> None:
    print_line(f"{counted(published.rules, 'rule', 'rules')} in force")
    for what, names in (("changed", published.changed), ("removed", published.removed)):
        for name in names:
            print_line(f"{what}: {name}")
