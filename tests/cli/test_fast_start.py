"""The command starts fast: it imports what a command needs, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

HEAVY = {"pyspark", "pyarrow", "numpy", "sqlalchemy", "alembic", "pycurl", "airflow", "pandas", "grpc"}

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


def imported(shop: Any, *arguments: str) -> set[str]:
    """Run a command and return the top-level packages that were imported when it ended."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **shop.environ}, capture_output=True, text=True, check=False, cwd=shop.folder
    )
    _, _, modules = done.stderr.partition("imported: ")
    return {module.partition(".")[0] for module in modules.split()}


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",)])
def test_help_needs_next_to_nothing(arguments: tuple[str, ...], shop: Any) -> None:
    """Help and version import neither rules nor state: no pydantic, no YAML, no database."""
    assert imported(shop, *arguments) & (HEAVY | {"pydantic", "ruamel", "re2"}) == set()


@pytest.mark.parametrize("arguments", [("rules", "check"), ("rules", "show"), ("rules", "test", "big-orders")])
def test_rules_need_no_state(arguments: tuple[str, ...], shop: Any) -> None:
    """Checking, showing and trying rules imports no database, no Parquet, no Spark."""
    events = ("--events", shop.orders(1)) if arguments[1] == "test" else ()

    assert imported(shop, *arguments, *events) & HEAVY == set()


@pytest.mark.parametrize("arguments", [("status",), ("audit",), ("dead-letters", "list")])
def test_looking_needs_no_spark(arguments: tuple[str, ...], shop: Any) -> None:
    """What looks at state imports no Spark, no Airflow, no pandas."""
    assert imported(shop, *arguments) & {"pyspark", "airflow", "pandas", "grpc"} == set()
