"""`make test-deep`: versions before go on beside this one, stage by stage, on one ledger that this one has migrated.

    PYTHONPATH=tests:. python -m upgrade.beside [COMMIT ...]

By default those are the first and the last revision of the ledger before today's that today's still serves, each as it
was before the next one came. Of each batch every stage is run by the other version than the stage before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from services.postgresql import postgresql
from upgrade.make import environment

from eventbridge.ledger.revision import HEAD, SERVES_FROM
from eventbridge.testing.receiver import Receiver

ROOT: Final = Path(__file__).parents[2]
_MIGRATIONS: Final = "include/eventbridge/ledger/migrations/versions"
_EVENTS: Final = 20
#: For which the target that refuses twice, and asks for a second each time, is waited.
_PATIENCE_SECONDS: Final = 60.0
#: A version that was just taken out of git compiles its matcher in the first route.
_COMPILING: Final = {"EVENTBRIDGE_PREPARE_TIMEOUT": "900"}
_RULES: Final = """\
buses:
  orders:
    source: {{type: embedded, topics: [placed], partitions: 2, start_at: earliest}}
rules:
  orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      crm: {{type: http, url: "{crm}", allow_http: true}}
      archive: {{type: file, path: "{archive}"}}
      late:
        type: http
        url: "{late}"
        allow_http: true
        ordering_key: $.data.customer
        retry: {{policy: custom, max_retries: 9, initial_delay: 0s, max_delay: 0s}}
      bad:
        type: http
        url: "{bad}"
        allow_http: true
        dead_letter_queue: {{type: http, url: "{letters}", allow_http: true}}
"""


class Version:
    """A process of one version, which runs the stages that it is told."""

    def __init__(self, include: Path, environ: dict[str, str]) -> None:
        path = os.pathsep.join([str(include), str(ROOT / "tests")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "upgrade.stages"],
            env={**os.environ, **environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.revision = self.ask("revision")

    def ask(self, stage: str, *arguments: Any) -> Any:
        """Run a stage and return what it found; raises SystemExit with its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([stage, *arguments]) + "\n")
        self._process.stdin.flush()
        response = json.loads(self._process.stdout.readline() or '{"error": "it ended"}')
        if "error" in response:
            raise SystemExit(f"The version of revision {getattr(self, 'revision', '?')} fails: {response['error']}")
        return response["found"]

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


def served() -> list[str]:
    """Return the commits of the first and the last version before today's tables that today's ledger serves."""
    numbers = sorted({int(SERVES_FROM) + 1, int(HEAD)})
    return [
        f"{_git('log', '--diff-filter=A', '--format=%H', '--', f'{_MIGRATIONS}/r{each:04}_*').split()[-1]}^"
        for each in numbers
    ]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        raise SystemExit(f"The versions before are taken from git's history, which is not here: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield a folder with the package as it was at a commit."""
    with tempfile.TemporaryDirectory(prefix="eventbridge-before-") as folder:
        packed = subprocess.run(["git", "archive", commit, "include"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder) / "include"


def beside(commit: str, folder: Path) -> None:
    """Deliver batches by a version and this one in turns; raises SystemExit for what is wrong."""
    with checked_out(commit) as before, postgresql() as server, Receiver(folder / "received.jsonl") as receiver:
        given = environment(folder) | {"EVENTBRIDGE_LEDGER_URL": server.new_database(), **_COMPILING}
        paths = {"crm": "healthy/crm", "late": "flaky/late", "bad": "status/400/bad", "letters": "healthy/letters"}
        urls = {name: receiver.url(f"/{path}") for name, path in paths.items()}
        (folder / "rules").mkdir(parents=True)
        (folder / "rules" / "orders.yaml").write_text(
            _RULES.format(archive=folder / "home" / "files" / "archive.jsonl", **urls)
        )
        migrate = [sys.executable, "-m", "eventbridge.cli", "ledger", "migrate"]
        subprocess.run(migrate, env={**os.environ, **given}, check=True, capture_output=True)
        with closing(Version(before, given)) as old, closing(Version(ROOT / "include", given)) as new:
            assert (new.revision, old.revision < HEAD) == (HEAD, True)
            for first, second in ((old, new), (new, old)):
                _deliver(first, second)
            _prove(new, old, receiver)
        print(f"revision {old.revision} goes on beside {HEAD}: {2 * _EVENTS} events in turns")  # noqa: T201


def _deliver(first: Version, second: Version) -> None:
    """Publish, and run a batch and what follows of it, each stage by the other version than the one before."""
    turns = cycle((first, second))
    for version in (first, second):
        version.ask("publish", *_orders(_EVENTS // 2))
    batch = next(turns).ask("listen")
    next(turns).ask("buffer", batch)
    _push_and_settle(turns, batch, next(turns).ask("route", batch))
    end = time.monotonic() + _PATIENCE_SECONDS
    while any(each["pending"] for each in first.ask("deliveries").values()):
        batch, chunks = next(turns).ask("plan_retries")
        if batch is not None:
            _push_and_settle(turns, batch, chunks)
        elif time.monotonic() > end:
            return  # the proof says what is pending still
        else:
            time.sleep(0.1)  # none is due yet


def _push_and_settle(turns: Iterator[Version], batch: str, chunks: list[int]) -> None:
    for chunk in chunks:
        next(turns).ask("push", batch, chunk)
    for stage in ("write_dead_letters", "schedule_retries"):
        next(turns).ask(stage, batch)
    assert next(turns).ask("commit", batch)


_NUMBERS = iter(range(10**6))


def _orders(count: int) -> list[str]:
    event = {"specversion": "1.0", "source": "/shop", "type": "order.placed"}
    numbers = [next(_NUMBERS) for _ in range(count)]
    return [json.dumps(event | {"id": f"o{each}", "data": {"customer": f"c{each % 3}"}}) for each in numbers]


def _prove(new: Version, old: Version, receiver: Receiver) -> None:
    total = 2 * _EVENTS
    delivered = {"matched": total, "delivered": total, "dead": 0, "pending": 0}
    wanted = {f"orders/{name}": delivered for name in ("crm", "archive", "late", "bad/dead_letter_queue")}
    wanted["orders/bad"] = {"matched": total, "delivered": 0, "dead": total, "pending": 0}
    for version in (new, old):
        assert version.ask("differences") == []
        assert (found := version.ask("deliveries")) == wanted, found
    for path in ("/healthy/crm", "/healthy/letters", "/flaky/late"):
        ids = [each["webhook_id"] for each in receiver.requests() if each["path"] == path and each["status"] == 200]
        assert len(ids) == len(set(ids)) == total, (path, len(ids))


def main() -> int:
    """Return 0 once every version asked for has been tried."""
    for commit in sys.argv[1:] or served():
        with tempfile.TemporaryDirectory() as folder:
            beside(commit, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
