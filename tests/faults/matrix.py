"""The crash matrix: every way in which a stage of a small batch is stopped, and the larger ones of `make test-deep`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from faults.fault import DIED, KILLED, REFUSED, Fault
from faults.kinds import KINDS, KindName
from faults.proof import check
from faults.trial import AT_ONCE, LATE, STREAMING_TASK_AT_ONCE, STREAMING_TASK_LATE, Scene, Trial
from faults.tried import TRIED, Tried
from faults.world import STREAMING_KINDS

#: Worlds that are stopped and recover at the same time, in each process of tests: one more than there are processors
#: for it, as one that dies is waited for.
WORLDS_AT_ONCE = (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) + 1

#: In `make test`: kills during the recovery from a kill, and the calls of each stage at which an attempt pauses while a
#: second one overtakes it.
DOUBLE_KILLS = 30
#: Of a stage whose calls come again it dies at these, and they fail, all the same: there each kind of call comes first.
FIRST_CALLS = 12
#: In `make test` no stage dies at these calls: it has changed nothing that outlives it since the call before, as what a
#: transaction has done is undone until its commit, and a file has its name already.
_NOTHING_CHANGED = {
    "ledger.execute",
    "store.put",
    "store.create",
    "store.delete",
    "store.put.done",
    "store.create.done",
}
#: In `make test` these calls do not fail: their transaction is undone as when its commit fails.
_UNDONE_ALIKE = {"ledger.begin", "ledger.execute"}
#: Random stories in which streaming tasks and stages take turns.
MIXED = 12
OVERLAPS = 2

#: How many calls after the one that a second attempt did not come to are tried all the same: it may make a few more,
#: as when it is slow.
_BEYOND_END = 4

BatchStage = tuple[KindName, str]


def batch_stages() -> list[BatchStage]:
    """Return every stage of every kind."""
    return [(kind, stage) for kind, found in KINDS.items() for stage in found.stages]


def batch_stages_of_test() -> list[BatchStage]:
    """Return the stages that `make test` stops: those that do for their kind what they do for no other.

    The others are the same code as for a normal or a retry batch, with rows from another file.
    """
    return [(kind, stage) for kind, stage in batch_stages() if (own := KINDS[kind].own) is None or stage in own]


def fails_in_test(batch_stage: BatchStage) -> bool:
    """Return whether `make test` has the calls of a stage fail: what a failing call does is the same for every kind."""
    kind, stage = batch_stage
    return KINDS[kind].own is None and stage not in KINDS[kind].as_normal


def deaths_of_test(scene: Scene, batch_stage: BatchStage) -> list[int]:
    """Return the numbers of the calls at which `make test` has a stage die: the first, and those that find a change.

    What a death leaves at any other call (`_NOTHING_CHANGED`), a death at one of these leaves too.
    """
    kind = KINDS[batch_stage[0]]
    points = scene.points(*batch_stage)["die"]
    numbers = [number for number, point in enumerate(points, 1) if number == 1 or point not in _NOTHING_CHANGED]
    if kind.most is not None:
        return [numbers[at - 1] for at in spread(len(numbers), kind.most)]
    return thinned(numbers, again(batch_stage))[:: kind.every]


def failures_of_test(scene: Scene, batch_stage: BatchStage) -> list[int]:
    """Return the numbers of the calls that `make test` has fail.

    None is the begin or a statement of a transaction: the lines that undo it then are those that undo it when its
    commit fails. Of equal calls in a row, as a store makes them to write a file, it is the first, except where threads
    take turns, which decides what is in a row.
    """
    most = KINDS[batch_stage[0]].most
    points = scene.points(*batch_stage)["fail"]
    numbers = [number for number, point in enumerate(points, 1) if point not in _UNDONE_ALIKE]
    if most is not None:
        return [numbers[at - 1] for at in spread(len(numbers), most)]
    if (every := again(batch_stage)) > 1:
        return thinned(numbers, every)
    return [number for number in numbers if number == 1 or points[number - 1] != points[number - 2]]


def spread(count: int, most: int | None) -> Sequence[int]:
    """Return the numbers from 1 to `count`, or at most `most` of them, the last one with them."""
    if most is None:
        return range(1, count + 1)
    return sorted({max(1, turn * count // most) for turn in range(1, most + 1)})


def at_once(trials: Iterable[Callable[[], bool | None]], worlds: int = WORLDS_AT_ONCE) -> int:
    """Run trials, so many worlds at a time, and return how many there were; raises what the first wrong one raises.

    A trial that returns False was none: there was nothing to try.
    """
    began = time.monotonic()
    with ThreadPoolExecutor(worlds) as pool:
        count = sum(tried is not False for tried in pool.map(lambda trial: trial(), trials))
    TRIED.append(Tried(count, began, time.monotonic()))
    return count


def kills(scene: Scene, batch_stage: BatchStage, numbers: Iterable[int] | None = None) -> Iterator[Callable[[], None]]:
    """Yield a trial for every call of a stage, or for these: by turns it ends itself there, or is ended.

    The calls of one name take turns of their own: else a stage would be killed at all commits, and exit after each.
    """
    points = scene.points(*batch_stage)["die"]
    turns: dict[str, int] = {}
    for number in range(1, len(points) + 1) if numbers is None else numbers:
        point = points[number - 1]
        turns[point] = turns.get(point, len(turns)) + 1
        fault = Fault("exit" if turns[point] % 2 else "kill", number)
        yield lambda fault=fault: _kill(scene, batch_stage, fault)  # type: ignore[misc]


def _kill(scene: Scene, batch_stage: BatchStage, fault: Fault) -> None:
    trial = scene.trial(*batch_stage)
    run = trial.run(_stage(batch_stage), fault)
    assert run.died or KINDS[batch_stage[0]].most, "the stage ended before its fault"
    trial.recover()
    check(trial)


def thinned(numbers: Sequence[int], every: int) -> list[int]:
    """Return those numbers of calls of which one in so many is tried: the first dozen, then every so many-th."""
    return [number for at, number in enumerate(numbers, 1) if at <= FIRST_CALLS or at % every == 1 % every]


def again(batch_stage: BatchStage) -> int:
    """Return at how many calls of a stage `make test` has one die or fail, after the first dozen."""
    kind, stage = batch_stage
    return KINDS[kind].again.get(stage, 1)


def failures(
    scene: Scene,
    batch_stage: BatchStage,
    numbers: Iterable[int] | None = None,
    *,
    reads: bool = False,
    lasting: bool = False,
) -> Iterator[Callable[[], None]]:
    """Yield a trial for every call of a stage, or for these: it fails, and with `lasting` all after it."""
    if numbers is None:
        numbers = range(1, scene.counts(*batch_stage, reads=reads)["fail"] + 1)
    for number in numbers:
        fault = Fault("fail", number, reads=reads, lasting=lasting)
        yield lambda fault=fault: _fail(scene, batch_stage, fault)  # type: ignore[misc]


def _fail(scene: Scene, batch_stage: BatchStage, fault: Fault) -> None:
    trial = scene.trial(*batch_stage)
    trial.run(_stage(batch_stage), fault).expect(0, REFUSED)
    trial.recover()
    check(trial)


def requests(scene: Scene, batch_stage: BatchStage) -> int:
    """Return how many requests of a stage lose their connection, each in two ways."""
    requested = KINDS[batch_stage[0]].requests
    return scene.counts(*batch_stage)["sent"] if requested is None else requested


def drops(scene: Scene, batch_stage: BatchStage) -> Iterator[Callable[[], None]]:
    """Yield two trials for every request of a stage: its connection breaks before it is read, or after."""
    for number in range(1, requests(scene, batch_stage) + 1):
        yield lambda number=number: _drop(scene, batch_stage, number, read=False)  # type: ignore[misc]
        yield lambda number=number: _drop(scene, batch_stage, number, read=True)  # type: ignore[misc]


def _drop(scene: Scene, batch_stage: BatchStage, number: int, *, read: bool) -> None:
    trial = scene.trial(*batch_stage)
    trial.run(_stage(batch_stage), drop=(number, "no_response" if read else "unread")).expect(0)
    trial.recover()
    check(trial)


def overlaps(scene: Scene, batch_stage: BatchStage, most: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield trials in which an attempt pauses at a call, and continues after another has done all of its work.

    By turns that other one is the same stage, or everything until the product is at rest. At most `most` calls, spread,
    the last one with them.
    """
    for turn, number in enumerate(spread(scene.counts(*batch_stage)["pause"], most)):
        yield lambda number=number, turn=turn: _overlap(scene, batch_stage, number, settled_first=bool(turn % 2))  # type: ignore[misc]


def _overlap(scene: Scene, batch_stage: BatchStage, number: int, *, settled_first: bool) -> None:
    trial = scene.trial(*batch_stage)
    first = trial.start(_stage(batch_stage), Fault("pause", number))
    assert first.process.wait_for_pause() or KINDS[batch_stage[0]].most, (
        "the first attempt ended before its batch_stage"
    )
    if settled_first:
        trial.recover()
    else:
        trial.run(_stage(batch_stage)).expect(0, REFUSED)
    if first.process.code is None:
        first.process.resume()
    first.wait().expect(0, REFUSED)
    trial.recover()
    check(trial)


def double_kills(scene: Scene, count: int = DOUBLE_KILLS, seed: int = 1) -> Iterator[Callable[[], None]]:
    """Yield trials in which a stage is killed at a random call, and the recovery from that at a random call as well."""
    dice = random.Random(seed)
    found = batch_stages_of_test()
    chances = [
        (batch_stage, number) for batch_stage in found for number in range(1, scene.counts(*batch_stage)["die"] + 1)
    ]
    for batch_stage, number in dice.sample(chances, count):
        how, second = dice.choice([AT_ONCE, LATE]), dice.randint(1, 150)
        yield lambda batch_stage=batch_stage, number=number, how=how, second=second: _twice(
            scene, batch_stage, number, how, second
        )  # type: ignore[misc]


def _twice(scene: Scene, batch_stage: BatchStage, number: int, how: str, second: int) -> None:
    trial = scene.trial(*batch_stage)
    trial.run(_stage(batch_stage), Fault("exit", number)).expect(DIED, *([0] if KINDS[batch_stage[0]].most else []))
    # a recovery of fewer calls than that comes to its end, which is as good
    trial.recover(how_to_recover(trial, how), Fault("kill", second)).expect(0, KILLED)
    trial.recover(LATE)
    check(trial)


def every_pair(scene: Scene, batch_stage: BatchStage) -> Iterator[Callable[[], bool]]:
    """Yield a trial for every pair of calls: a stage is killed at the one, and its next attempt at the other.

    Those whose second call there is not are none, but for a few: fewer calls are left to the second attempt.
    Of a kind with `most` the first call is one of so many, spread.
    """
    count = scene.counts(*batch_stage)["die"]
    ends: dict[int, int] = {}
    for first in spread(count, KINDS[batch_stage[0]].most):
        for second in range(1, count + 1):
            yield lambda first=first, second=second: _pair(scene, batch_stage, first, second, ends)  # type: ignore[misc]


def _pair(scene: Scene, batch_stage: BatchStage, first: int, second: int, ends: dict[int, int]) -> bool:
    """Try a pair and return True, unless it is beyond the end of the second attempt (`ends`, by the first call)."""
    if second > ends.get(first, second) + _BEYOND_END:
        return False
    trial = scene.killed(*batch_stage, first)
    # after a planned batch another plan finds none
    again = trial.run(_stage(batch_stage), Fault("kill", second)).expect(0, KILLED, REFUSED)
    if not again.died:
        ends[first] = min(second, ends.get(first, second))
    trial.recover()
    check(trial)
    return True


def random_schedules(
    scene: Scene, count: int, seed: int = 1, first: int = 0, among: Sequence[BatchStage] | None = None
) -> Iterator[Callable[[], None]]:
    """Yield trials in which one to four faults of any sort meet whole batches, one after the other, at random calls.

    Of those that a streaming task may deliver, streaming tasks and stages take turns by chance. `among`: the stages to
    begin at.
    """
    return stories(count, seed, lambda dice: _schedule(scene, dice, among or batch_stages()), first)


def stories(
    count: int, seed: int, play: Callable[[random.Random], None], first: int = 0
) -> Iterator[Callable[[], None]]:
    """Yield random trials with a generator each, from the `first` on; a failing one names its generator."""
    for number in range(first, first + count):
        yield lambda number=number: _story(f"{seed}-{number}", play)  # type: ignore[misc]


def _story(name: str, play: Callable[[random.Random], None]) -> None:
    try:
        play(random.Random(name))
    except BaseException as error:
        error.add_note(f"chosen by random.Random({name!r})")
        raise


def _schedule(scene: Scene, dice: random.Random, among: Sequence[BatchStage]) -> None:
    kind, stage = dice.choice(among)
    trial = scene.trial(kind, stage)
    for turn in range(dice.randint(1, 4)):
        what = f"{kind}.{stage}" if turn == 0 else how_to_recover(trial, dice.choice(_recoveries(trial)))
        fault = Fault(
            mode=dice.choice(["exit", "kill", "fail"]),
            at=int(dice.paretovariate(0.3)) % 1_000 + 1,
            reads=dice.random() < 0.5,
            lasting=dice.random() < 0.3,
        )
        drop = (dice.randint(1, 40), dice.choice(["unread", "no_response"]))
        trial.run(what, fault, drop=drop if dice.random() < 0.3 else None)  # type: ignore[arg-type]
    trial.recover(dice.choice(_recoveries(trial)[1::2]))
    check(trial)


def _recoveries(trial: Trial) -> list[str]:
    """Return how a trial may recover, at once and late by turns."""
    return [AT_ONCE, LATE, *([STREAMING_TASK_AT_ONCE, STREAMING_TASK_LATE] if trial.kind in STREAMING_KINDS else [])]


def how_to_recover(trial: Trial, how: str) -> str:
    """Return how a trial may recover: a batch that is settled late would be waited for by an early recovery."""
    return how if KINDS[trial.kind].early else LATE


def _stage(batch_stage: BatchStage) -> str:
    return ".".join(batch_stage)
