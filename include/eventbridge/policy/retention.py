"""Decides which records of a committed batch may be removed, by age and kind, unless they are still needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.model.batch import Batch, BatchKind
from eventbridge.model.redelivery import Replay
from eventbridge.model.storage import STEPS, Kept, Need

#: No younger record is removed, whatever a rule file or setting says, because stages that began up to a day ago may
#: still read it.
LEAST_AGE = timedelta(hours=24)


@dataclass(frozen=True)
class Retention:
    """The time for which each kind of record is kept after its batch was planned: at least as long as the kind before
    it.

    A record that is still needed is kept longer; see `keeping`.
    """

    deliveries: timedelta  # delivery files, outcomes, settlements
    archive: timedelta
    dead_letters: timedelta
    manifests: timedelta

    @classmethod
    def from_ages(
        cls, archive: timedelta, deliveries: timedelta, dead_letters: timedelta, manifests: timedelta
    ) -> Retention:
        """Return the retention of a bus, adjusted so that each kind is kept at least as long as the one before.

        Deliveries are then kept no longer than the archive, dead letters at least as long as the archive, and manifests
        at least as long as dead letters. All are kept for at least LEAST_AGE.
        """
        archive = max(archive, LEAST_AGE)
        dead_letters = max(dead_letters, archive)
        return cls(
            deliveries=max(min(deliveries, archive), LEAST_AGE),
            archive=archive,
            dead_letters=dead_letters,
            manifests=max(manifests, dead_letters),
        )

    def ends(self, what: Kept, kind: BatchKind) -> timedelta:
        """Return the age at which a batch of a kind may lose `what`; only normal batches have an archive."""
        match what:
            case "all":
                return self.deliveries
            case "archive":
                return self.archive if kind == "normal" else self.deliveries
            case "dead_letters":
                return self.dead_letters
            case _:
                return self.manifests

    @property
    def shortest(self) -> timedelta:
        """The age below which no record is removed."""
        return self.deliveries


@dataclass(frozen=True)
class Keeping:
    """The records of a batch to keep from now on; `because` is why more is kept than its age requires, or ""."""

    kept: Kept
    because: str = ""


def keeping(batch: Batch, now: datetime, retention: Retention, needs: Collection[Need]) -> Keeping:
    """Return which records of a committed batch to keep at `now`: never more than it has, never less than is needed.

    Records are removed in the order of STEPS, and none is skipped, so a needed record keeps all later ones.
    """
    kept = batch.kept
    for following in STEPS[STEPS.index(kept) + 1 :]:
        if now - batch.planned_at < retention.ends(kept, batch.kind):
            return Keeping(kept)
        because = next((need.why for need in needs if need.what == kept), "")
        if because:
            return Keeping(kept, because)
        kept = following
    return Keeping(kept)


def needs_of_requests(batch: Batch, replays: Iterable[Replay], redrives: Collection[str]) -> Iterator[Need]:
    """Yield what open replays, and running redrives with the ids `redrives`, need of a committed batch.

    A replay reads the archive of its period. One that selects by outcome follows deliveries through all later batches.
    """
    for replay in replays:
        why = f"replay {replay.replay_id} has not ended"
        if batch.kind == "normal" and batch.bus == replay.bus and replay.since <= batch.planned_at < replay.until:
            yield Need("archive", why)
        if selects_by_outcome(replay) and batch.bus in ("", replay.bus) and replay.since <= batch.planned_at:
            yield Need("all", why)
    for redrive in redrives:
        yield Need("dead_letters", f"redrive {redrive} is running")


def selects_by_outcome(replay: Replay) -> bool:
    """Return whether a replay selects events by the outcomes of their deliveries."""
    return replay.skip_delivered or bool(replay.selection.get("sql"))
