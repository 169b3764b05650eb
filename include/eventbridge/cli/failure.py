"""Formats the error of a failed command as `Error: ...` for people, or with `--json` as a JSON object on one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer

from eventbridge import errors
from eventbridge.cli.colour import styled
from eventbridge.cli.output import safe_json, visible
from eventbridge.event.json_document import write_document
from eventbridge.event.json_text import plain

#: Typer raises this for a command line that it cannot parse, and exports only its subclass BadParameter.
UsageError: Final[Any] = typer.BadParameter.__base__

USAGE: Final = "usage"
ABORTED: Final = "aborted"
SYSTEM: Final = "system_failed"
BUG: Final = "internal_error"

#: The exit code of a bug, `EX_SOFTWARE` of sysexits.h.
BUG_EXIT_CODE: Final = errors.EventBridgeError.exit_code
REPORT: Final = "This is a bug: report it with the lines above to the people who maintain EventBridge (CONTRIBUTING.md)"

#: The end of a sentence, after which another one begins.
_SENTENCE = re.compile(r"(?<=[^.][.?])\s+(?=[A-Z`])")

#: The `code` field of the JSON form, by class. Programs compare these codes, so a class may be renamed but not its
#: code.
CODES: Final[Mapping[type[errors.EventBridgeError], str]] = {
    errors.EventBridgeError: "failed",
    errors.UserError: "invalid_input",
    errors.SettingsError: "invalid_setting",
    errors.PackageMissing: "package_missing",
    errors.RuleFileError: "invalid_rules",
    errors.PatternError: "invalid_pattern",
    errors.TransformError: "invalid_transform",
    errors.EventError: "invalid_event",
    errors.TypeUnusable: "type_unusable",
    errors.PlugInError: "plug_in_failed",
    errors.ConnectionUnusable: "connection_unusable",
    errors.NotFoundError: "not_found",
    errors.PartlySearched: "partly_searched",
    errors.OperatorError: "operator_needed",
    errors.LedgerLostError: "ledger_lost",
    errors.OffsetGapError: "offset_gap",
    errors.RuleMovedError: "rule_moved",
    errors.ReconciliationError: "not_reconciled",
    errors.InfrastructureError: "infrastructure_failed",
    errors.StoreError: "store_failed",
    errors.StoreFileMissing: "store_file_missing",
    errors.StoreFileDamaged: "store_file_damaged",
    errors.StoreFileUnreadable: "store_file_unreadable",
    errors.NewerFormatError: "newer_format",
    errors.LedgerError: "ledger_failed",
    errors.SettledAgainError: "batch_repaired_meanwhile",
    errors.BusError: "bus_failed",
    errors.StreamingLeaseTakenError: "streaming_lease_taken",
    errors.SparkError: "spark_failed",
    errors.TransformFailed: "transform_failed",
    errors.BudgetSpent: "budget_spent",
}


def has_json_option(arguments: Iterable[str]) -> bool:
    """Return whether a command line asks for a document (JSON or YAML), even if the command line is otherwise
    invalid."""
    before = ""
    for each in arguments:
        if each == "--":
            return False
        value = each if before in ("-o", "--output") else each.removeprefix("--output=").removeprefix("-o")
        if each == "--json" or (value in ("json", "yaml") and (value != each or before in ("-o", "--output"))):
            return True
        before = each
    return False


def failure(code: str, message: str, exit_code: int, **more: object) -> str:
    """Return a failure as it is written to standard error: a line of text or, if a document was asked for, a line of
    JSON.

    The field `remedy` says what to do about the failure. It is the one in `more`, else the message without its first
    sentence, or None if the message has only one sentence.
    `more` are further fields of the JSON object.
    """
    if has_json_option(sys.argv[1:]):
        fields = {"code": code, "message": message, "remedy": _remedy(message), "exit_code": exit_code}
        return safe_json(write_document({"error": fields | plain(more)}), sys.stderr) + "\n"
    # a message may quote a server or a package
    lines = "\n".join(visible(line.expandtabs()) for line in message.split("\n"))
    return f"{styled('Error:', sys.stderr, typer.colors.RED)} {lines}\n"


def _remedy(message: str) -> str | None:
    parts = _SENTENCE.split(message, maxsplit=1)
    return parts[1].strip() if len(parts) > 1 and parts[1].strip() else None


def product_failure(error: errors.EventBridgeError) -> str:
    """Return an EventBridgeError as it is written to standard error; errors in rule files are a field of the JSON."""
    more: dict[str, object] = {}
    if isinstance(error, errors.RuleFileError):
        more = {"errors": error.errors, "remedy": None}
    elif isinstance(error, errors.PatternError | errors.TransformError):
        more = {"remedy": error.remedy or None}
    return failure(CODES[type(error)], str(error), error.exit_code, **more)


def unexpected_failure(error: BaseException) -> str:
    """Return an error that no code expects, a bug of EventBridge, with where to report it."""
    message = f"EventBridge itself failed: {type(error).__name__}: {error}. {REPORT}"
    return failure(BUG, message, BUG_EXIT_CODE, remedy=REPORT)


def usage_failure(error: Any) -> str:
    """Return a usage error as it is written to standard error, with the usage and a suggestion for an unknown word."""
    from eventbridge.cli.suggestion import misplaced_option, options_of, suggestion

    message = error.format_message()
    if getattr(error, "possibilities", None) is not None:  # only Typer's error for an unknown option has it
        command = error.ctx.command
        remedy = None
        if hasattr(command, "commands"):
            remedy = misplaced_option(error.option_name, error.ctx.find_root().command, sys.argv[1:])
        message = f"{error.message}. {remedy or suggestion(error.option_name, options_of(command), 'Options')}"
    context = error.ctx
    if has_json_option(sys.argv[1:]) or context is None or message == context.get_help():
        return failure(USAGE, message, error.exit_code) if has_json_option(sys.argv[1:]) else f"{message}\n"
    help_of = f"Try '{context.command_path} -h' for help."
    return f"{context.get_usage()}\n{help_of}\n\n{failure(USAGE, message, error.exit_code)}"
