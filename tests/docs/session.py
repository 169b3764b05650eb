"""Runs the commands of a documentation page as a reader would, one after the other in one shell, and compares.

    ```sh          the whole block is run; it must succeed
    ```console     each line that begins with `$ ` is run; what it prints must be the lines below it.
                   `...` stands for any text, on a line of its own for any lines. It must succeed,
                   unless the next command is `echo $?`.

A second word behind the language means that another test runs it, or that no test can.

`eventbridge` is a fork of a process that has imported it (`tests/commands`): an import takes longer than most commands.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from commands.start import command

FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
_MARK = "eventbridges-docs@@"
_PATIENCE_SECONDS = 540


@dataclass(frozen=True)
class Step:
    """One command of a page and what it is to print (None: anything)."""

    line: int
    command: str
    expected: str | None
    may_fail: bool = False


def steps_of(text: str) -> list[Step]:
    """Return the commands of a page in their order."""
    steps: list[Step] = []
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 2
        if fence[1] == "sh":
            steps.append(Step(line, fence[2], None))
        elif fence[1] == "console":
            steps += _console_steps(fence[2], line)
    return steps


def run_page(text: str, folder: Path, programs: Path | None = None, **settings: str) -> list[str]:
    """Run a page's commands in a new folder and return what was not as the page says, a paragraph each.

    `programs`: the folder with the `eventbridge` and `python` to run, by default this checkout's. `settings`:
    variables of the environment.
    """
    steps = steps_of(text)
    printed = _run(steps, folder, {**_environment(folder, steps, programs), **settings})
    return [found for step, part in zip(steps, printed, strict=True) for found in _differences(step, part)]


def as_pattern(expected: str) -> re.Pattern[str]:
    """Return the pattern of an expected output: `...` is any text, a line of `...` any number of lines."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else ".*?".join(map(re.escape, line.rstrip().split("..."))) + r"\n"
        for line in expected.splitlines()
    ]
    return re.compile("".join(lines))


def _console_steps(block: str, line: int) -> Iterator[Step]:
    parts = re.split(r"^\$ (.*\n(?:> .*\n)*)", block, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {line}: output before a command"
    line += parts[0].count("\n")
    commands = [re.sub(r"^> ", "", command, flags=re.MULTILINE) for command in parts[1::2]]
    followers = [*commands[1:], ""]
    for text, expected, follower in zip(commands, parts[2::2], followers, strict=True):
        yield Step(line, text, expected, may_fail=follower.strip() == "echo $?")
        line += text.count("\n") + expected.count("\n")


def _run(steps: list[Step], folder: Path, environ: Mapping[str, str]) -> list[str]:
    script = "".join(map(_script_of, steps))
    background = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
    (folder / "page.sh").write_text(f"{background}cd page\ncode=0\n{script}")
    (folder / "page").mkdir()
    with (folder / "printed").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", str(folder / "page.sh")],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        shell.wait(_PATIENCE_SECONDS)
    except BaseException:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        raise
    printed = (folder / "printed").read_text().split(f"{_MARK}\n")[1:]
    return printed + ["(never run)"] * (len(steps) - len(printed))


def _script_of(step: Step) -> str:
    """Return what the shell runs for a step; any command of a block without output fails the block."""
    trap = "trap 'failed=$?' ERR\n" if step.expected is None else ""
    return (
        f"echo '{_MARK}'\nfailed=\n(exit $code)\n{trap}{step.command}\n"
        f'code=$?\ntrap - ERR\necho "{_MARK}${{failed:-$code}}"\n'
    )


def _environment(folder: Path, steps: list[Step], programs: Path | None) -> dict[str, str]:
    """Return a reader's environment: `programs`, or `eventbridge` and this Python, on the path, no settings."""
    programs = programs or _make_programs(folder / "bin", steps)
    left_out = ("EVENTBRIDGE_", "COLUMNS", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    if any("pip install ./" in step.command for step in steps):
        kept["PYTHONPATH"] = str(folder / "site")
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _make_programs(programs: Path, steps: list[Step]) -> Path:
    """Write `python` and, if a step names it, `eventbridge` into a new folder, and return it."""
    programs.mkdir()
    # Scripts, not links: by a link to it Python would not find the environment that it belongs to.
    calls = {"python": [sys.executable]}
    if any("eventbridge" in step.command for step in steps):
        calls["eventbridge"] = command()
    if any("pip install ./" in step.command for step in steps):
        calls["pip"] = [sys.executable, str(Path(__file__).with_name("pip_install.py"))]
    for name, call in calls.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
        (programs / name).chmod(0o755)
    return programs


def _differences(step: Step, printed: str) -> Iterator[str]:
    output, found, code = printed.partition(_MARK)
    where = f"line {step.line}: $ {step.command.strip()}"
    if not found:
        yield f"{where}\ndid not end:\n{output}"
    elif code.strip() != "0" and not step.may_fail:
        yield f"{where}\nended with {code.strip()}:\n{output}"
    elif step.expected is not None and not as_pattern(step.expected).fullmatch(_trimmed(output)):
        yield f"{where}\nprinted\n{output}\nand the page says\n{step.expected}"


def _trimmed(output: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())
