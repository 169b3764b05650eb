"""Checks a recovered world: its reconciliation, what the receiver got, what it got twice, and in which order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from faults.kinds import KINDS
from faults.trial import Trial
from faults.world import BUDGETED_RULE, DUPLICATES, MALFORMED, valid_events


def check(trial: Trial) -> None:
    """Assert that nothing was lost, that repetitions were allowed and that order was kept; then forget the world."""
    wrong = [*_wrong_reconciliation(trial), *_lost(trial), *_wrong_repetitions(trial), *_out_of_order(trial)]
    assert wrong == [], f"{trial.name}: {wrong}\n{trial.errors()}"
    trial.forget()


def _wrong_reconciliation(trial: Trial) -> Iterator[str]:
    size, reconciliation, kind = trial.scene.size, trial.reconciliation, KINDS[trial.kind]
    # redriven and replayed events are read from dead letters or from the archive
    valid = len(list(valid_events(kind.events, size)))
    taken = valid + {"retransform": size.valid, "replay": valid}.get(trial.kind, 0)
    # after the move both runners archive the message that was left over and is not a CloudEvent
    malformed = MALFORMED + (trial.kind == "rule_transfer")
    events = {name: reconciliation["events"][name] for name in ("read", "malformed", "duplicate")}
    wanted = {"read": taken + malformed + DUPLICATES, "malformed": malformed, "duplicate": DUPLICATES}
    if events != wanted:
        yield f"events {events}, expected {wanted}"
    if reconciliation["deliveries"] != (rows := _rows(trial)):
        yield f"deliveries {reconciliation['deliveries']}, expected {rows}"
    if reconciliation["open"]:
        yield f"{reconciliation['open']} batches are open"
    yield from reconciliation["differences"]


def _rows(trial: Trial) -> dict[str, dict[str, int]]:
    def row(count: int, **other: int) -> dict[str, int]:
        return {"matched": count, "delivered": count, "dead_lettered": 0, "pending": 0, **other}

    size, kind = trial.scene.size, KINDS[trial.kind]
    if kind.events == "bills":
        return {f"{BUDGETED_RULE}/bills": row(size.valid)}
    bad = (
        row(2 * size.valid, delivered=size.valid, dead_lettered=size.valid)
        if kind.bad_is_fixed
        else row(size.valid, delivered=0, dead_lettered=size.valid)
    )
    all_orders = {f"all-orders/{target}": row(size.valid) for target in ("healthy", "late", "lines")}
    moves = {"ordered-moves/strict": row(size.moves)} if kind.events == "orders" else {}
    return all_orders | {"refused-orders/bad": bad, **moves}


def _lost(trial: Trial) -> Iterator[str]:
    responded: dict[str, set[str]] = defaultdict(set)
    for request in trial.received():
        if request.final:
            responded[request.target].add(request.event)
            responded[request.how].add(request.event)
    path = trial.folder / "lines.jsonl"
    if path.exists():
        responded["lines"] = {json.loads(line)["id"] for line in path.read_text().splitlines()}
    kind = KINDS[trial.kind]
    for event, _ in valid_events(kind.events, trial.scene.size):
        for target in _takers(str(event["type"])) + (
            ["fixed"] if kind.bad_is_fixed and event["type"] == "order.placed" else []
        ):
            if event["id"] not in responded[target]:
                yield f"{target} never got {event['id']}"


def _takers(kind: str) -> list[str]:
    """Return the targets of an event type."""
    return {"order.placed": ["healthy", "late", "bad", "lines"], "stock.moved": ["strict"], "bill.sent": ["bills"]}[
        kind
    ]


def _wrong_repetitions(trial: Trial) -> Iterator[str]:
    received = trial.received()
    again = trial.kind in (
        "retransform",
        "replay",
    )  # the current rule makes another delivery of a dead letter's event
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for request in received:
        ids[request.how if again else request.target, request.event].add(request.webhook_id)
    for (target, event), found in ids.items():
        if len(found) > 1:
            yield f"{event} of {target} came as {sorted(found)}"
    certain = (request for request in received if request.final and request.run not in trial.unsettled)
    responded = Counter((request.run, request.webhook_id) for request in certain)
    yield from (f"run {run} got {count} responses for {each}" for (run, each), count in responded.items() if count > 1)
    for run, found in trial.looks:
        yield from (f"before run {run}: {each}" for each in found["wrong"])
        claimed = {each for target, some in found["delivered"].items() if target != "lines" for each in some}
        settled = claimed if KINDS[trial.kind].bad_is_fixed else claimed | set(found["dead"])
        late = {request.webhook_id for request in received if request.run >= run} & settled
        yield from (f"{each} was settled before run {run}, and sent again" for each in sorted(late))
        known = {request.webhook_id for request in received if request.run < run and request.status == 200}
        yield from (f"{each} is recorded as delivered before run {run}, and never came" for each in claimed - known)


def _out_of_order(trial: Trial) -> Iterator[str]:
    """Yield where a move overtook another one of its item, by accepted requests and by what the sender could know."""
    moves = [request for request in trial.received() if request.target == "strict"]
    names = {request.event: request.webhook_id for request in moves}
    looks = {run: set(found["delivered"].get("strict", ())) for run, found in trial.looks}
    taken: Counter[str] = Counter()  # how many of an item's moves were accepted in order
    taken_in: set[tuple[int, str]] = set()
    last: dict[tuple[int, str], int] = {}
    left_at: dict[str, int] = {}  # the last move that the receiver got
    for request in moves:
        item, _, text = request.event.partition("-")
        number, of_run = int(text), (request.run, item)
        if number > taken[item]:
            yield f"run {request.run} sent {request.event} before {item}-{taken[item]} was taken"
        # a push whose reconciliation fails is repeated, in a recovery by the same run, and begins where it ended
        if number < last.get(of_run, 0) and request.run not in trial.unsettled:
            yield f"run {request.run} sent {request.event} after {item}-{last[of_run]}"
        before = f"{item}-{number - 1}"
        is_known = request.run not in looks or names.get(before) in looks[request.run]
        if number and not is_known and (request.run, before) not in taken_in:
            yield f"run {request.run} sent {request.event}, and could not know that {before} was taken"
        last[of_run] = number
        if request.status == 200:
            taken_in.add((request.run, request.event))
            taken[item] += number == taken[item]
            left_at[item] = number
    # deliveries were repeated up to the newest, so no receiver ends with an older move
    yield from (f"{item}-{number} came last" for item, number in left_at.items() if number + 1 != taken[item])
