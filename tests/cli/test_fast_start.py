"""The command starts fast: it imports what a command needs, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

HEAVY = {
    "pyspark",
    "pyarrow",
    "numpy",
    "sqlalchemy",
    "alembic",
    "pycurl",
    "airflow",
    "pandas",
    "grpc",
    "great_expectations",
}

PROGRAM = """
import sys
from eventbridge.cli import main
try:
    main()
except SystemExit as ended:
    code = ended.code
print("imported:", *sys.modules, file=sys.stderr)
sys.exit(code)
"""


def run(shop: Any, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command that lists at its end, on standard error, what was imported."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    names = {**os.environ, **shop.environ, **environ}
    return subprocess.run(command, env=names, capture_output=True, text=True, check=False, cwd=shop.folder)


def imported(shop: Any, *arguments: str) -> set[str]:
    """Run a command and return the top-level packages that were imported when it ended."""
    done = run(shop, *arguments)
    _, _, modules = done.stderr.partition("imported: ")
    return {module.partition(".")[0] for module in modules.split()}


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",)])
def test_help_needs_next_to_nothing(arguments: tuple[str, ...], shop: Any) -> None:
    """Help and version import neither rules nor state: no pydantic, no YAML, no database."""
    assert imported(shop, *arguments) & (HEAVY | {"pydantic", "yaml", "re2"}) == set()


@pytest.mark.parametrize("arguments", [("rules", "check"), ("rules", "list"), ("rules", "test", "big-orders")])
def test_rules_need_no_state(arguments: tuple[str, ...], shop: Any) -> None:
    """Checking, showing and trying rules imports no database, no Parquet, no Spark."""
    events = ("--events", shop.orders(1)) if arguments[1] == "test" else ()

    assert imported(shop, *arguments, *events) & HEAVY == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("rules", "check"),
        ("status",),
        ("status", "--chunks"),
        ("targets", "list"),
        ("audit",),
        ("dead-letters", "list"),
        ("dead-letters", "show", "/orders/placed/0/0"),
        ("redrives", "list"),
        ("quality", "list"),
    ],
    ids=" ".join,
)
def test_looking_needs_neither_kernel_nor_spark_nor_clients(arguments: tuple[str, ...], delivered: Any) -> None:
    """What looks at state imports no Numba, no Spark, no Airflow, no pandas, no migrations and nothing that sends."""
    unwanted = {"numba", "pyspark", "airflow", "pandas", "grpc", "alembic", "pycurl", "cryptography", "duckdb", "boto3"}
    unwanted |= {"great_expectations"}

    assert imported(delivered, *arguments) & unwanted == set()


def test_the_shell_completes_commands_and_options(shop: Any) -> None:
    """What a shell asks for after `redrives re` is completed by commands, and after `--ch` by options, at once."""
    asked = {"_EVENTBRIDGE_COMPLETE": "complete_bash"}
    commands = run(shop, COMP_WORDS="eventbridge redrives re", COMP_CWORD="2", **asked)
    options = run(shop, COMP_WORDS="eventbridge status --ch", COMP_CWORD="2", **asked)

    assert commands.stdout.split() == ["resume"]
    assert options.stdout.split() == ["--chunks"]
    assert not HEAVY & set(commands.stderr.split())
