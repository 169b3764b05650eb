"""The command in a process of its own, as a shell sees it: exit codes, signals, pipes, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from eventbridge import __version__
from eventbridge.cli import HELP

SPARK_NOWHERE = "sc://127.0.0.1:1"
DELIVER = ("deliver", "--runner", "orders", "--until-idle", "--spark", SPARK_NOWHERE)


def test_done_is_0(shop: Any) -> None:
    """What could be done: 0, nothing on standard error."""
    result = shop.run_process("rules", "check")

    assert (result.code, result.err) == (0, "")


def test_a_difference_is_1(delivered: Any) -> None:
    """An audit that finds a difference: 1."""
    next((delivered.folder / "home" / "store" / "settlements").rglob("*.parquet")).unlink()

    assert delivered.run_process("audit").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("status", "--no-such-option"),
        ("status", "--batches", "many"),
        ("deliver", "--runner", "orders"),
        ("deliver", "--until-idle"),
        ("deliver", "--runner", "order", "--until-idle"),
        ("deliver", "--runner", "orders", "--until-idle", "--spark", "localhost:15002"),
        ("events", "publish", "orders"),
        ("rules", "show", "no-such-rule"),
        ("rules", "backtest", "big-orders"),
        ("rules", "backtest", "no-such-rule", "--from", "1h"),
        ("rules", "diff", "big-orders", "no-such-file.yaml", "--from", "1h"),
        ("rules", "diff", "big-orders", "--from", "1h"),
        ("dead-letters", "show", "no-such-letter"),
        ("dead-letters", "list", "--limit", "0"),
        ("redrives", "start", "--sql", "true; DROP TABLE dead_letters"),
        ("replays", "start", "orders", "--from", "1h", "--pattern", '{"data": ' * 3_000 + "{}" + "}" * 3_000),
        ("replays", "start", "orders", "--from", "1h", "--sql", ""),
        ("quality", "check", "--hour", "0001-01-01"),
        ("targets", "enable", "big-orders"),
        (),
    ],
)
def test_a_usage_error_exits_with_2(arguments: tuple[str, ...], eventbridge: Callable[..., Any]) -> None:
    """A command, option, argument or name that is none: 2, a message and no traceback."""
    result = eventbridge(*arguments)

    assert result.code == 2
    assert result.out == ""
    assert result.err
    assert "Traceback" not in result.err


def test_a_full_disk_exits_with_3(shop: Any) -> None:
    """`deliver` that takes nothing, as the disk is too full: 3, why, and not idle."""
    lines = dict.fromkeys(("EVENTBRIDGE_DISK_MIN_FREE_SIZE", "EVENTBRIDGE_DISK_RESUME_FREE_SIZE"), "100000GiB")
    assert shop.run_process("events", "publish", "orders", shop.orders(2000)).code == 0

    result = shop.run_process(*DELIVER, env=lines)

    assert result.code == 3
    assert result.out == "0 batches and 0 retry batches of runner orders committed.\n"
    assert "no new batch is planned: the store" in result.err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("EVENTBRIDGE_HOMME", "/x", "Did you mean EVENTBRIDGE_HOME?"),
        ("EVENTBRIDGE_CHUNK_MAX_SIZE", "8 MB", "EVENTBRIDGE_CHUNK_MAX_SIZE"),
        ("EVENTBRIDGE_STORE_URI", "s3://key:secret@bucket/x", "put the keys into the connection"),
        ("EVENTBRIDGE_RULES_FOLDER", "nowhere", "nowhere:1:1"),
    ],
)
def test_a_setting_that_is_wrong_is_2(
    name: str, value: str, said: str, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is none, or cannot be used: 2, and what to write."""
    monkeypatch.setenv(name, value)

    result = eventbridge("status")

    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_stop_that_needs_a_person_is_3(delivered: Any) -> None:
    """An empty ledger beside a store with history: the runner refuses to start over, 3, and names the remedy."""
    for path in (delivered.folder / "home").glob("ledger.sqlite*"):
        path.unlink()

    result = delivered.run_process(*DELIVER)

    assert result.code == 3
    assert "EVENTBRIDGE_LEDGER_URL" in result.err
    assert "Traceback" not in result.err


def test_a_spark_that_is_not_there_is_4(shop: Any) -> None:
    """Spark cannot be reached: 4, in one line; nothing is committed, and the next run continues the batch."""
    shop.run_process("events", "publish", "orders", shop.orders(1500))

    result = shop.run_process(*DELIVER)

    assert result.code == 4
    assert result.err.count("\n") == 1
    assert "Connection refused" in result.err
    assert shop.deliver().batches == 1
    assert '"amount": 1500' in (shop.folder / "accounts.jsonl").read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EVENTBRIDGE_HOME", "{file}/home"),
        ("EVENTBRIDGE_HOME", "{file}"),
        ("EVENTBRIDGE_BUS_FOLDER", "{file}"),
        ("EVENTBRIDGE_LEDGER_URL", "sqlite:///{file}"),
    ],
)
def test_a_disk_that_cannot_be_used_is_4(
    name: str, value: str, shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that cannot be opened (here: a file is in the way): 4, and where it is."""
    file = shop.orders(1)
    monkeypatch.setenv(name, value.format(file=file))

    result = eventbridge("events", "publish", "orders", file)

    assert result.code == 4
    assert file in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_delivery_stops_in_good_order(
    number: signal.Signals, code: int, delivered: Any, delivered_once: Path, eventbridge: Callable[..., Any]
) -> None:
    """Ctrl-C or SIGTERM during a delivery: what is in progress is settled and committed, then it ends, 130 or 143."""
    record = delivered_once / "received.jsonl"
    before = record.read_text().count("/gone/")
    eventbridge("targets", "enable", "all-orders", "gone")  # so that there is something to deliver without Spark

    with delivered.process(*DELIVER, "--wait", "7200", "--json") as process:
        _wait_until(lambda: record.read_text().count("/gone/") > before)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)

    assert process.returncode == code
    assert json.loads(out)["retry_batches"] == 1
    assert "stopping" in err
    assert "Traceback" not in err
    assert eventbridge("audit").code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_spark_that_starts_ends_with_the_command(number: signal.Signals, code: int, shop: Any) -> None:
    """Ctrl-C or SIGTERM while its own Spark server starts: the command ends at once and leaves no process behind."""
    java, started = shop.folder / "jdk" / "bin" / "java", shop.folder / "started"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
        [ "$1" = -version ] && {{ echo 'openjdk version "17"' >&2; exit; }}
        echo $$ > "{started}"; exec sleep 600
        """
    )
    java.chmod(0o755)
    environ = {"JAVA_HOME": str(java.parents[1])}

    with shop.process("deliver", "--runner", "orders", "--until-idle", env=environ) as process:
        _wait_until(lambda: started.exists() and started.read_text() != "")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)

    assert process.returncode == code
    assert "Traceback" not in err
    _wait_until(lambda: not _runs(int(started.read_text())))


def test_ctrl_c_while_reading_is_130(shop: Any) -> None:
    """Ctrl-C while standard input is awaited: 130, no traceback."""
    with shop.process("rules", "test", "all-orders", stdin=subprocess.PIPE) as process:
        process.stdin.write('{"id": "1"}\n')
        process.stdin.flush()
        assert process.stdout.readline().startswith("1: false 1")
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            # A signal that comes just before a blocking read is seen only after it; people press Ctrl-C again.
            process.send_signal(signal.SIGINT)
        process.wait(60)
        err = process.stderr.read()

    assert (process.returncode, err) == (130, "")


def test_a_reader_that_leaves_is_141(shop: Any) -> None:
    """`| head`: the command ends quietly, with the code that shells give to a closed pipe, not with 1."""
    events = shop.orders(*range(20_000))
    with shop.process("rules", "test", "all-orders", "--events", events) as process:
        assert process.stdout.readline() == "1: true o0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait(60)

    assert process.returncode == 141


@pytest.mark.parametrize(
    ("arguments", "unread"),
    [
        (["--help"], "stdout"),
        (["rules", "--help"], "stdout"),
        (["--version"], "stdout"),
        (["rules", "check"], "stdout"),
        (["no-such-command"], "stderr"),
        (["rules", "show", "no-such-rule"], "stderr"),
    ],
)
def test_a_closed_output_pipe_exits_with_141(arguments: list[str], unread: str, shop: Any) -> None:
    """`eventbridge --help | true`: whatever is to be said, the command ends without a word, as other tools do."""
    reader, writer = os.pipe()
    os.close(reader)
    with shop.process(*arguments, **{unread: writer}) as process:
        os.close(writer)
        said = process.communicate(timeout=60)

    assert (process.returncode, [text for text in said if text]) == (141, [])


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["rules", "check"]])
def test_an_output_that_is_full_is_4(arguments: list[str], unbuffered: str, shop: Any) -> None:
    """The disk that standard output goes to is full: 4, in one line, also where Python keeps output in a buffer."""
    env = {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full, shop.process(*arguments, stdout=full, env=env) as process:  # noqa: PTH123
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (4, "Error: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("streams", [">&-", "2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1", ">&- 2>&-"])
def test_the_exit_code_is_right_with_closed_or_full_streams(streams: str, unbuffered: str, shop: Any) -> None:
    """A home that cannot be used is 4, also where standard output or error is closed or full: cron sees only that."""
    command = f"exec {sys.executable} -m eventbridge.cli rules pause all-orders {streams}"
    env = {**os.environ, **shop.environ, "EVENTBRIDGE_HOME": "/proc/nowhere", "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["sh", "-c", command], env=env, cwd=shop.folder, check=False, capture_output=True)

    assert done.returncode == 4
    assert b"Traceback" not in done.stderr


def test_help_says_what_the_codes_are(eventbridge: Callable[..., Any]) -> None:
    """The help of the command lists its exit codes, and docs/reference/cli/index.md the same."""
    codes = re.findall(r"^  (\d+) ", HELP, re.MULTILINE)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli" / "index.md").read_text()

    assert codes == ["0", "1", "2", "3", "4", "70", "130"]
    assert eventbridge("--help").code == 0
    assert all(re.search(rf"^\| {code} \|", page, re.MULTILINE) for code in codes)


def test_version(shop: Any) -> None:
    """--version prints it."""
    assert shop.run_process("--version").out == f"eventbridge {__version__}\n"


def test_a_character_that_the_terminal_lacks_is_escaped(shop: Any) -> None:
    """Where the terminal's encoding lacks a letter it is escaped."""
    event = '{"id": "Ж"}'
    environ = {"PYTHONIOENCODING": "latin-1"}
    pattern = shop.write("pattern.json", '{"id": ["Ж"]}')
    events = shop.write("events.jsonl", event)

    shown = shop.run_process("rules", "test", "--pattern", pattern, "--events", events, env=environ)

    assert (shown.code, shown.out) == (0, "1: true \\u0416\n")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "it did not come to that within a minute"
        time.sleep(0.05)
