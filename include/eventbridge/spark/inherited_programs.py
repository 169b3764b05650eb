"""Lets new Python workers inherit compiled rule sets: a worker passes what it compiled to its daemon.

Spark ends workers that are idle for a minute. Without inheritance, each of their successors would compile every rule
set again, which takes 3.5 s of CPU time for 10,000 rules. `eventbridge.spark.worker_daemon` calls this module.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventbridge.routing.program import on_compiled, route_program
from eventbridge.rules import RuleSet
from eventbridge.store.rule_sets import know_rules

#: A rule set is passed on if compiling it takes at least this many CPU-seconds. A faster one is not worth pausing the
#: daemon.
WORTH_SECONDS: Final = 0.1


def leave_programs() -> None:
    """Make this process the daemon, which compiles the rule set that a worker compiled last before it forks another
    worker.

    The rule set passes through an unlinked file that the daemon and the workers have open. If a rule set cannot be
    passed on, this is reported on stderr, and workers compile it themselves.
    """
    inheritance = _Inheritance()
    on_compiled(inheritance.leave)
    os.register_at_fork(before=inheritance.take)


class _Inheritance:
    """The rule set that a worker compiled last: a line with its hash and its bus, then its frozen form."""

    def __init__(self) -> None:
        self._daemon = os.getpid()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._taken = b""

    def leave(self, rule_set_hash: str, rule_set: RuleSet, bus: str, cpu_seconds: float) -> None:
        if cpu_seconds < WORTH_SECONDS or os.getpid() == self._daemon:
            return
        content = f"{rule_set_hash} {bus}\n{rule_set.to_json()}".encode()
        try:
            with self._turn(fcntl.LOCK_EX) as file:
                os.ftruncate(file, 0)
                written = 0
                while written < len(content):
                    written += os.pwrite(file, content[written:], written)
        except OSError:  # a full disk
            _report()

    def take(self) -> None:
        if os.getpid() != self._daemon:  # a worker that forks
            return
        try:
            with self._turn(fcntl.LOCK_SH) as file:
                name = os.pread(file, 4096, 0).partition(b"\n")[0]
                if name == self._taken:
                    return
                content = os.pread(file, os.fstat(file).st_size, 0)
            self._taken = name
            rule_set_hash, _, bus = name.decode().partition(" ")
            route_program(rule_set_hash, know_rules(rule_set_hash, content[len(name) + 1 :].decode()), bus)
            gc.collect()
            gc.freeze()  # the pages are shared with the workers
        except Exception:
            _report()

    @contextmanager
    def _turn(self, kind: int) -> Iterator[int]:
        """Lock the file for this process. Unlike `flock`, this also locks out processes that share the descriptor."""
        number = self._file.fileno()
        fcntl.lockf(number, kind)
        try:
            yield number
        finally:
            fcntl.lockf(number, fcntl.LOCK_UN)


def _report() -> None:
    print(f"eventbridge: workers do not inherit a rule set: {traceback.format_exc()}", file=sys.stderr)  # noqa: T201
