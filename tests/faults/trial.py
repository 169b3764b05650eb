"""Takes a world through a story: runs with faults, a recovery, and the check in `proof.py` that nothing was lost."""

from __future__ import annotations

import itertools
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.crash import Crashes, Run
from faults.fault import DIED, KILLED, REFUSED, Fault, Points
from faults.kinds import KINDS, LATER, WELL, Kind, KindName
from faults.receiver import Drop, Log, Request
from faults.world import STREAMING_KINDS, Size, ledger_url, make_world
from services.postgresql import Postgresql

from eventbridge.ledger import Ledger

#: An address at which no server listens.
_UNUSED = "http://127.0.0.1:1/nobody"

#: After the world is idle, every retry is due two hours later, and what it leaves pending another two hours later,
#: because a degraded target gets single probes first. A recovery ends as soon as nothing is pending.
_HOURS = LATER.total_seconds() / 3600
_STEPS = ",".join(f"{_HOURS * step:g}" for step in range(1, 5))
#: A recovery from a killed recovery begins after every time that the killed one may have reached. Runs start after the
#: leases of dead runs have expired, and before the deadlines of their batches.
_RECOVERY_HOURS = 5 * _HOURS
_RUN_HOURS = 18 / 3600
#: A recovery that begins immediately finishes the batch before its deadline; a late one finds the deadline passed.
AT_ONCE = f"recovery:0,{_STEPS}"
LATE = f"recovery:{_STEPS}"
#: The same recoveries, each beginning with a streaming task.
STREAMING_TASK_AT_ONCE, STREAMING_TASK_LATE = (
    how.replace("recovery", "recovery-by-streaming-task") for how in (AT_ONCE, LATE)
)


@dataclass
class Scene:
    """The environment of trials: a folder, the fork server, the receiver, the size of the worlds, and where they route.

    With a `server_of_ledgers` each world has a database on it, which is copied with the world; otherwise its ledger is
    a file.
    """

    folder: Path
    server: Crashes
    log: Log
    size: Size = field(default_factory=Size)
    spark: str = ""
    server_of_ledgers: Postgresql | None = None
    _names: Any = field(default_factory=lambda: itertools.count(1))
    _templates: dict[tuple[KindName, str], Trial] = field(default_factory=dict)
    _killed: dict[tuple[KindName, str, int], Trial] = field(default_factory=dict)
    _counts: dict[tuple[KindName, str, bool], tuple[Points, int]] = field(default_factory=dict)
    _making: threading.RLock = field(default_factory=threading.RLock)

    def trial(self, kind: KindName, stage: str) -> Trial:
        """Return a new copy of a world in its state before a stage of a kind."""
        with self._making:  # of two threads that need a template, one makes it
            template = self.template(kind, stage)
        return template.copy(f"{kind}-{stage}-{next(self._names)}")

    def template(self, kind: KindName, stage: str) -> Trial:
        """Return the world that trials of a stage are copies of; it is made once, by running the earlier stages."""
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
                    made.run(earlier).expect(0)
            self._templates[kind, stage] = made
        return self._templates[kind, stage]

    def killed(self, kind: KindName, stage: str, at: int) -> Trial:
        """Return a new copy of a world whose stage exited at a call."""
        with self._making:
            if (kind, stage, at) not in self._killed:
                made = self.template(kind, stage).copy(f"{kind}-{stage}-killed-{at}")
                made.run(f"{kind}.{stage}", Fault("exit", at)).expect(DIED, *([0] if KINDS[kind].most else []))
                self._killed[kind, stage, at] = made
            template = self._killed[kind, stage, at]
        return template.copy(f"{kind}-{stage}-{next(self._names)}")

    def forget_killed(self) -> None:
        """Remove the worlds of which `killed` makes copies."""
        for trial in self._killed.values():
            trial.forget()
        self._killed.clear()

    def counts(self, kind: KindName, stage: str, *, reads: bool = False) -> dict[str, int]:
        """Return how many calls of a stage can die, fail and pause, and as `sent` the number of requests."""
        points, sent = self._counted(kind, stage, reads)
        return {counted: len(names) for counted, names in points.items()} | {"sent": sent}

    def points(self, kind: KindName, stage: str) -> Points:
        """Return the names of those calls, in order."""
        return self._counted(kind, stage, reads=False)[0]

    def _counted(self, kind: KindName, stage: str, reads: bool) -> tuple[Points, int]:
        with self._making:  # several tests may call it concurrently
            if (kind, stage, reads) not in self._counts:
                trial = self.trial(kind, stage)
                run = trial.run(f"{kind}.{stage}", Fault("count", reads=reads)).expect(0)
                sent = sum(request.run == trial.runs for request in trial.received())
                self._counts[kind, stage, reads] = run.reports["points"], sent
                trial.forget()
            return self._counts[kind, stage, reads]


@dataclass
class Trial:
    """A copy of a world, and the requests that were received from the world before it was copied."""

    scene: Scene
    kind: KindName
    name: str
    before: list[Request]
    runs: int = 0
    recoveries: int = 0
    # runs that outlived a failed push or an open batch, whose deliveries are repeated
    unsettled: set[int] = field(default_factory=set)
    looks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    reconciliation: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The world's folder."""
        return self.scene.folder / self.name

    def make(self) -> None:
        """Make the world from nothing."""
        if self.scene.server_of_ledgers is not None:
            url = self.scene.server_of_ledgers.new_database()
            Ledger.migrate(url)
            self._note_ledger(url)
        kind = KINDS[self.kind]
        make_world(self.folder, self.kind, kind.events, self.scene.size, split=kind.split)

    def copy(self, name: str) -> Trial:
        """Return a copy of the world in its current state under another name."""
        shutil.copytree(self.folder, self.scene.folder / name)
        made = Trial(self.scene, self.kind, name, self.received(), self.runs)
        if self.scene.server_of_ledgers is not None:
            original = ledger_url(self.folder).rpartition("/")[2]
            made._note_ledger(self.scene.server_of_ledgers.new_database(of=original))
        return made

    def _note_ledger(self, url: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ledger-url").write_text(url)

    def received(self) -> list[Request]:
        """Return the requests from this world and from those that it is a copy of."""
        return self.before + self.scene.log.of(self.name)

    def start(self, what: str, fault: Fault | None = None, drop: tuple[int, Drop] | None = None) -> TrialRun:
        """Start a run of `what`, as `runs.run` takes it; `drop` has the receiver drop its n-th request."""
        self.runs += 1
        own = KINDS[self.kind]
        recovers = what.startswith("recovery")
        kind: Kind = KINDS.get(what.partition(".")[0], own)  # type: ignore[call-overload]
        responses = {**(WELL if recovers else kind.responses)}
        if own.bad_is_fixed and (recovers or kind is own):
            responses["bad"] = "fixed"
        log = self.scene.log
        urls = {
            name: _UNUSED if how == "nobody" else log.url(self.name, self.runs, how) for name, how in responses.items()
        }
        if drop is not None:
            log.drops[self.name, self.runs] = drop
        if fault is not None and fault.mode == "fail" and (recovers or self.kind in STREAMING_KINDS):
            self.unsettled.add(self.runs)
        ahead = own.ahead if recovers else kind.ahead
        hours = ahead.total_seconds() / 3600 + self.runs * _RUN_HOURS
        if recovers:
            hours += self.recoveries * _RECOVERY_HOURS
            self.recoveries += 1
        visit = {"urls": urls, "ahead_hours": hours, "spark": self.scene.spark}
        return TrialRun(self, self.runs, self.scene.server.start(what, self.folder, visit, fault))

    def run(self, what: str, fault: Fault | None = None, drop: tuple[int, Drop] | None = None) -> TrialRun:
        """Run `what`, as `runs.run` takes it, until it ends."""
        return self.start(what, fault, drop).wait()

    def recover(self, how: str = "", fault: Fault | None = None) -> TrialRun:
        """Let the product recover in a new run, which must become idle unless it has a `fault`."""
        if not how:
            turn = int(self.name.rpartition("-")[2])
            how = AT_ONCE if KINDS[self.kind].early and turn % 3 == 0 else LATE
            if self.kind in STREAMING_KINDS and turn % 2:
                how = STREAMING_TASK_AT_ONCE if how == AT_ONCE else STREAMING_TASK_LATE
        run = self.run(how, fault)
        if fault is None:
            run.expect(0)
            self.reconciliation = run.reports["reconciliation"]
        return run

    def errors(self) -> str:
        """Return what its processes printed as errors."""
        path = self.folder / "errors.txt"
        return path.read_text()[-4000:] if path.exists() else ""

    def forget(self) -> None:
        """Remove the world."""
        self.scene.log.forget(self.name)
        if self.scene.server_of_ledgers is not None:
            self.scene.server_of_ledgers.drop_database(ledger_url(self.folder))
        # Spark may still work in it after its client died
        shutil.rmtree(self.folder, ignore_errors=bool(self.scene.spark))


@dataclass
class TrialRun:
    """A run of a trial, and its reports."""

    trial: Trial
    number: int
    process: Run

    @property
    def reports(self) -> dict[str, Any]:
        """The reports of the process by name."""
        return self.process.reports

    def wait(self) -> TrialRun:
        """Wait until it has ended, and assert that it failed with no other errors than the product's."""
        self.process.wait()
        if "look" in self.reports:
            self.trial.looks.append((self.number, self.reports["look"]))
        code = self.process.code
        assert code in (0, DIED, KILLED, REFUSED), f"{self.trial.name} ended with {code}:\n{self.trial.errors()}"
        return self

    def expect(self, *codes: int) -> TrialRun:
        """Assert that it ended with one of these exit codes."""
        code = self.process.code
        assert code in codes, f"{self.trial.name}: ended with {code}, not {codes}\n{self.trial.errors()}"
        return self

    @property
    def died(self) -> bool:
        """Whether its fault ended it."""
        return self.process.code in (DIED, KILLED)
