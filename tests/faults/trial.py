"""One world through one story: runs with faults, a recovery, and then the proof that nothing was lost."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.crash import Crashes, Run
from faults.fault import DIED, KILLED, REFUSED, Fault
from faults.receiver import Drop, Log, Request
from faults.world import DUPLICATES, KINDS, LATER, MALFORMED, Kind, Size, make_world

from eventbridge.ledger.records import BatchKind

#: No event arrives at this address.
_NOBODY = "http://127.0.0.1:1/nobody"

#: After the world has come to rest, every retry is due two hours later, and what that parked another two hours later;
#: a target that was degraded gets single probes first. A recovery ends as soon as nothing waits.
_HOURS = LATER.total_seconds() / 3600
_STEPS = ",".join(f"{_HOURS * step:g}" for step in range(1, 4))
#: A recovery from one that was killed begins after all that it may have seen; runs follow one another in seconds.
_RECOVERY_HOURS = 4 * _HOURS
_RUN_HOURS = 2 / 3600
#: A recovery that begins at once finishes the batch before its deadline; one that comes late finds it past that.
AT_ONCE = f"recovery:0,{_STEPS}"
LATE = f"recovery:{_STEPS}"


@dataclass
class Scene:
    """Where trials take place: a folder, the fork server, the receiver, and the size of their worlds."""

    folder: Path
    server: Crashes
    log: Log
    size: Size = field(default_factory=Size)
    _names: Any = field(default_factory=lambda: itertools.count(1))
    _templates: dict[tuple[BatchKind, str], Trial] = field(default_factory=dict)

    def trial(self, kind: BatchKind, stage: str) -> Trial:
        """Return a world as it stands before a stage of a kind; every call gives another copy."""
        return self.template(kind, stage).copy(f"{kind}-{stage}-{next(self._names)}")

    def template(self, kind: BatchKind, stage: str) -> Trial:
        """Return the world that trials of a stage are copies of; made once, by running what comes before."""
        stages = list(KINDS[kind].stages)
        if (kind, stage) not in self._templates:
            if stage != stages[0]:
                before = stages[stages.index(stage) - 1]
                made = self.template(kind, before).copy(f"{kind}-{stage}-template")
                made.run(f"{kind}.{before}").expect(0)
            else:
                made = Trial(self, kind, f"{kind}-template", [])
                made.make()
                for earlier in KINDS[kind].before:
                    made.run(f"{earlier}.all").expect(0)
            self._templates[kind, stage] = made
        return self._templates[kind, stage]

    def counts(self, kind: BatchKind, stage: str, *, reads: bool = False) -> dict[str, int]:
        """Return how many calls of a stage there are to die at, to fail and to stand still at; `sent`: requests."""
        trial = self.trial(kind, stage)
        run = trial.run(f"{kind}.{stage}", Fault("count", reads=reads)).expect(0)
        counts = {**run.told["counts"], "sent": sum(request.run == trial.runs for request in trial.received())}
        trial.forget()
        return counts


@dataclass
class Trial:
    """A copy of a world, and what was received of it before it was copied."""

    scene: Scene
    kind: BatchKind
    name: str
    before: list[Request]
    runs: int = 0
    recoveries: int = 0
    healed: bool = False  # the target that refuses everything takes what it gets
    looks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    books: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.scene.folder / self.name

    def make(self) -> None:
        """Make the world from nothing, in a process of its own."""
        make_world(self.folder, self.scene.size)

    def copy(self, name: str) -> Trial:
        """Return the same world, as it stands, under another name."""
        shutil.copytree(self.folder, self.scene.folder / name)
        return Trial(self.scene, self.kind, name, self.received(), self.runs)

    def received(self) -> list[Request]:
        """Return what the receiver got of this world and of those that it is a copy of."""
        return self.before + self.scene.log.of(self.name)

    def start(self, stage: str, fault: Fault | None = None, drop: tuple[int, Drop] | None = None) -> Told:
        """Start a stage as the next run of this world; `drop`: the receiver drops its n-th request."""
        self.runs += 1
        kind: Kind = KINDS.get(stage.partition(".")[0], KINDS[self.kind])  # type: ignore[call-overload]
        recovers = stage.startswith("recovery")
        log = self.scene.log
        urls = {how: log.url(self.name, self.runs, how) for how in ("healthy", "bad")}
        if self.healed:
            urls["bad"] = urls["healthy"]
        if recovers:
            urls["late"] = log.url(self.name, self.runs, "late")
        else:
            urls["late"] = _NOBODY if kind.late == "refused" else log.url(self.name, self.runs, kind.late)
        if drop is not None:
            log.drops[self.name, self.runs] = drop
        ahead = KINDS[self.kind].ahead if recovers else kind.ahead
        hours = ahead.total_seconds() / 3600 + self.runs * _RUN_HOURS
        if recovers:
            hours += self.recoveries * _RECOVERY_HOURS
            self.recoveries += 1
        visit = {"urls": urls, "ahead_hours": hours}
        return Told(self, self.runs, self.scene.server.start(stage, self.folder, visit, fault))

    def run(self, stage: str, fault: Fault | None = None, drop: tuple[int, Drop] | None = None) -> Told:
        """Run a stage to its end, whatever that is."""
        return self.start(stage, fault, drop).wait()

    def recover(self, how: str = "", fault: Fault | None = None) -> Told:
        """Let the product recover, as a run of its own; without `fault` it must come to rest."""
        if not how:
            # a retry batch that died is settled late, and an early recovery would wait for it
            early = not KINDS[self.kind].before and int(self.name.rpartition("-")[2]) % 3 == 0
            how = AT_ONCE if early else LATE
        told = self.run(how, fault)
        if fault is None:
            told.expect(0)
            self.books = told.told["books"]
        return told

    def check(self) -> None:
        """Assert that nothing was lost, and that what came twice may have; then let go of the world."""
        wrong = [*self._wrong_books(), *self._lost(), *self._wrong_repetitions()]
        assert wrong == [], f"{self.name}: {wrong}\n{self.errors()}"
        self.forget()

    def errors(self) -> str:
        """Return what its processes printed as errors."""
        path = self.folder / "errors.txt"
        return path.read_text()[-4000:] if path.exists() else ""

    def forget(self) -> None:
        """Remove the world."""
        self.scene.log.forget(self.name)
        shutil.rmtree(self.folder)

    def _wrong_books(self) -> list[str]:
        valid = self.scene.size.valid
        events = {name: self.books["events"][name] for name in ("read", "malformed", "duplicate")}
        wanted = {"read": self.scene.size.events, "malformed": MALFORMED, "duplicate": DUPLICATES}
        row = {"matched": valid, "delivered": valid, "dead": 0, "parked": 0}
        rows = {f"all-orders/{target}": row for target in ("healthy", "late", "lines")}
        rows["refused-orders/bad"] = row | {"delivered": 0, "dead": valid}
        found = []
        found += [] if events == wanted else [f"events {events}, expected {wanted}"]
        found += [] if self.books["deliveries"] == rows else [f"deliveries {self.books['deliveries']}"]
        found += [f"{self.books['open']} batches are open"] if self.books["open"] else []
        return found + list(self.books["differences"])

    def _lost(self) -> list[str]:
        wanted = {f"order-{number}" for number in range(self.scene.size.valid)}
        answered: dict[str, set[str]] = defaultdict(set)
        for request in self.received():
            if request.status in (200, 400):
                answered["late" if request.how == "half" else request.how].add(request.event)
        path = self.folder / "lines.jsonl"
        if path.exists():
            answered["lines"] = {json.loads(line)["id"] for line in path.read_text().splitlines()}
        lost = {how: wanted - answered[how] for how in ("healthy", "late", "bad", "lines")}
        return [f"{how} never got {sorted(events)}" for how, events in lost.items() if events]

    def _wrong_repetitions(self) -> list[str]:
        received = self.received()
        ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        for request in received:
            ids["late" if request.how == "half" else request.how, request.event].add(request.webhook_id)
        wrong = [f"{event} of {how} came as {sorted(found)}" for (how, event), found in ids.items() if len(found) > 1]
        answered = Counter((request.run, request.webhook_id) for request in received if request.status in (200, 400))
        wrong += [f"run {run} got {count} answers for {each}" for (run, each), count in answered.items() if count > 1]
        for run, found in self.looks:
            wrong += [f"before run {run}: {each}" for each in found["wrong"]]
            settled = set(found["settled"])
            late = {request.webhook_id for request in received if request.run >= run} & settled
            wrong += [f"{each} was settled before run {run}, and sent again" for each in sorted(late)]
            known = {request.webhook_id for request in received if request.run < run and request.status == 200}
            claimed = {each for target, some in found["delivered"].items() if target != "lines" for each in some}
            wrong += [f"{each} is recorded as delivered before run {run}, and never came" for each in claimed - known]
        return wrong


@dataclass
class Told:
    """A run of a trial, and what it told."""

    trial: Trial
    number: int
    process: Run

    @property
    def told(self) -> dict[str, Any]:
        """What the process told."""
        return self.process.told

    def wait(self) -> Told:
        """Return once it has ended, by itself or not; it may not have failed with anything but the product's errors."""
        self.process.wait()
        if "look" in self.told:
            self.trial.looks.append((self.number, self.told["look"]))
        code = self.process.code
        assert code in (0, DIED, KILLED, REFUSED), f"{self.trial.name} ended with {code}:\n{self.trial.errors()}"
        return self

    def expect(self, *codes: int) -> Told:
        """Assert how it ended."""
        code = self.process.code
        assert code in codes, f"{self.trial.name}: ended with {code}, not {codes}\n{self.trial.errors()}"
        return self

    @property
    def died(self) -> bool:
        """Whether its fault ended it."""
        return self.process.code in (DIED, KILLED)
