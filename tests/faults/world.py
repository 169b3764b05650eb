"""A whole product in a folder, small enough to die at every call: one bus, four targets, a dozen events.

Stages run in forked processes (see `crash.py`), so nothing here may be kept between two of them but the folder.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from eventbridge.connection import connections_from_environment
from eventbridge.settings import Settings
from eventbridge.stages.buffer import buffer
from eventbridge.stages.commit import commit
from eventbridge.stages.dead_letters import write_dead_letters
from eventbridge.stages.deliver import deliver_until_idle
from eventbridge.stages.deliver_redrive import deliver_redrive
from eventbridge.stages.listen import listen
from eventbridge.stages.push import push
from eventbridge.stages.redrive import begin_redrive
from eventbridge.stages.retries import plan_retries
from eventbridge.stages.route import route
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.schedule_retries import schedule_retries
from eventbridge.stages.selection import Selection
from eventbridge.stages.workplace import Workplace
from eventbridge.testing.receiver import ADDRESSES

RUNNER = "orders"
EVENTS = 12
#: Two of the dozen are no CloudEvents, one comes twice.
MALFORMED = 2
DUPLICATES = 1
VALID = EVENTS - MALFORMED - DUPLICATES
#: What every target must have in the end: `healthy` and `late` all, `bad` all as dead letters, `lines` all.
TARGETS = ("healthy", "late", "bad", "lines")

#: Recovery happens in the eyes of the product two hours later, so that every retry is due without waiting.
LATER = timedelta(hours=2)


def rules_text(receiver: str, late: str) -> str:
    """Return the rule file; `late` is where the target that first refuses connections is to be found.

    The file target's path is relative: every process works in its world's folder.
    """
    retry = "retry: {policy: own, attempts: 5, initial: 1h, multiplier: 1, maximum: 1h}"
    return f"""
buses:
  orders:
    source: {{type: embedded, start_at: earliest, queues: 2}}
rules:
  all-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      healthy: {{type: http, url: "{receiver}/healthy/all", allow_http: true, {retry}}}
      late: {{type: http, url: "{late}/healthy/late", allow_http: true, {retry}}}
      lines: {{type: file, path: lines.jsonl, {retry}}}
  refused-orders:
    bus: orders
    pattern: {{type: [order.placed]}}
    priority: low
    targets:
      bad: {{type: http, url: "{receiver}/bad/refused", allow_http: true, {retry}}}
"""


def settings_of(folder: Path) -> Settings:
    """Return the settings of a world: everything below its folder, small sub-ranges and segments."""
    return Settings.from_mapping(
        {
            "EVENTBRIDGE_HOME": str(folder / "home"),
            "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules"),
            "EVENTBRIDGE_BUFFER_RANGE_EVENTS": "4",
            "EVENTBRIDGE_SEGMENT_ANSWERS": "5",
            "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        }
    )


def open_world(folder: Path, later: timedelta = timedelta(0)) -> Workplace:
    """Open the workplace of a world whose clock is `later` than the machine's."""
    return Workplace.open(settings_of(folder), connections_from_environment({}), lambda: datetime.now(UTC) + later)


def make_world(folder: Path, receiver: str) -> None:
    """Write the rule file, with a `late` that refuses, and publish the dozen events."""
    (folder / "rules").mkdir(parents=True)
    set_rules(folder, receiver, "http://127.0.0.1:1")
    work = open_world(folder)
    source = work.open_source(work.rule_set().buses["orders"])
    good = [json.dumps(event(number)).encode() for number in range(VALID)]
    source.publish([(body, str(index)) for index, body in enumerate([*good, good[0], b"{no json", b'{"id": "x"}'])])  # type: ignore[attr-defined]
    source.close()
    work.close()


def set_rules(folder: Path, receiver: str, late: str) -> None:
    """Rewrite the rule file."""
    (folder / "rules" / "orders.yaml").write_text(rules_text(receiver, late))


def event(number: int) -> dict[str, object]:
    """Return the n-th valid event."""
    return {
        "specversion": "1.0",
        "id": f"order-{number}",
        "source": "/shop",
        "type": "order.placed",
        "data": {"number": number},
    }


def copy_world(folder: Path, to: Path, receiver: str) -> None:
    """Copy a world nobody works in; its file target then lies in the copy."""
    shutil.copytree(folder, to)
    set_rules(to, receiver, "http://127.0.0.1:1")


def run_listen(work: Workplace) -> None:
    """Run stage listen."""
    listen(work, RUNNER)


def run_buffer(work: Workplace) -> None:
    """Run stage buffer."""
    buffer(work, _batch(work))


def run_route(work: Workplace) -> None:
    """Run stage route, in this process."""
    route(work, _batch(work), InProcessRouter(work.store))


def run_push(work: Workplace) -> None:
    """Run stage push, chunk by chunk."""
    batch_id = _batch(work)
    for chunk in work.ledger.chunks(batch_id):
        push(work, batch_id, chunk.chunk_id)


def run_write_dead_letters(work: Workplace) -> None:
    """Run stage write_dead_letters."""
    write_dead_letters(work, _batch(work))


def run_schedule_retries(work: Workplace) -> None:
    """Run stage schedule_retries."""
    schedule_retries(work, _batch(work))


def run_commit(work: Workplace) -> None:
    """Run stage commit."""
    commit(work, _batch(work))


def run_retries(work: Workplace) -> None:
    """Run a whole retry batch: plan, push, settle, park, commit."""
    plan = plan_retries(work, RUNNER)
    if plan.batch_id is None:
        return
    for chunk_id in plan.chunk_ids:
        push(work, plan.batch_id, chunk_id)
    write_dead_letters(work, plan.batch_id)
    schedule_retries(work, plan.batch_id)
    commit(work, plan.batch_id)


def run_redrive(work: Workplace) -> None:
    """Begin a redrive of everything, or go on with it, and plan, push, settle, park and commit its batches."""
    wish = begin_redrive(work, Selection(), "redrive", rate=None, retransform=False, again=False)
    deliver_redrive(work, wish.redrive_id, InProcessRouter(work.store))


def run_recovery(work: Workplace) -> None:
    """Do what the product does after a crash: go on until nothing is available and nothing is due."""
    deliver_until_idle(work, RUNNER, InProcessRouter(work.store))


#: The stages in their order.
STAGES: dict[str, Callable[[Workplace], None]] = {
    "listen": run_listen,
    "buffer": run_buffer,
    "route": run_route,
    "push": run_push,
    "write_dead_letters": run_write_dead_letters,
    "schedule_retries": run_schedule_retries,
    "commit": run_commit,
}

#: Everything a fork server can run.
BODIES: dict[str, Callable[[Workplace], None]] = {
    **STAGES,
    "retries": run_retries,
    "redrive": run_redrive,
    "recovery": run_recovery,
}


def lines_delivered(folder: Path) -> Counter[str]:
    """Return how often each event id stands in the file target."""
    path = folder / "lines.jsonl"
    text = path.read_text() if path.exists() else ""
    return Counter(json.loads(line)["id"] for line in text.splitlines())


def _batch(work: Workplace) -> str:
    batch = work.ledger.unfinished_batch(RUNNER)
    assert batch is not None, "the stage before has planned a batch"
    return batch.batch_id
