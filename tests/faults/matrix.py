"""The crash matrix: it stops the stages of a small batch in every way, and of larger ones in `make test-deep`."""

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

#: The number of worlds that are stopped and recover concurrently in each test process: one more than its processors,
#: because a thread waits while a process dies.
WORLDS_AT_ONCE = (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) + 1

#: The number of kills during a recovery from a kill in `make test`, and the number of calls of each stage at which an
#: attempt pauses while a second one overtakes it.
DOUBLE_KILLS = 30
#: The number of first calls at which a stage always dies or fails, even if its calls repeat; they include each kind.
FIRST_CALLS = 12
#: The calls at which no stage dies in `make test`, because nothing durable changed since the previous call: a
#: transaction is undone until its commit, and the file already has its name.
_NOTHING_CHANGED = {
    "ledger.execute",
    "store.put",
    "store.create",
    "store.delete",
    "store.put.done",
    "store.create.done",
}
#: The calls that do not fail in `make test`, because their transaction is undone as if its commit failed.
_UNDONE_ALIKE = {"ledger.begin", "ledger.execute"}
#: The number of random stories in which streaming tasks and stages alternate.
MIXED = 12
OVERLAPS = 2

#: How many calls are tried after the first one that a second attempt did not reach, because a slow attempt may make a
#: few more.
_BEYOND_END = 4

BatchStage = tuple[KindName, str]


def batch_stages() -> list[BatchStage]:
    """Return every stage of every kind."""
    return [(kind, stage) for kind, found in KINDS.items() for stage in found.stages]


def batch_stages_of_test() -> list[BatchStage]:
    """Return the stages that `make test` stops, which are those that do for their kind what they do for no other.

    The other stages run the same code as for a normal or a retry batch, with rows from another file.
    """
    return [(kind, stage) for kind, stage in batch_stages() if (own := KINDS[kind].own) is None or stage in own]


def fails_in_test(batch_stage: BatchStage) -> bool:
    """Return whether `make test` has a stage's calls fail; a failing call has the same effect for every kind."""
    kind, stage = batch_stage
    return KINDS[kind].own is None and stage not in KINDS[kind].as_normal


def deaths_of_test(scene: Scene, batch_stage: BatchStage) -> list[int]:
    """Return the numbers of the calls at which `make test` has a stage die: the first, and those after a change.

    A death at any other call (`_NOTHING_CHANGED`) leaves the same state as a death at one of these.
    """
    kind = KINDS[batch_stage[0]]
    points = scene.points(*batch_stage)["die"]
    numbers = [number for number, point in enumerate(points, 1) if number == 1 or point not in _NOTHING_CHANGED]
    if kind.most is not None:
        return [numbers[at - 1] for at in spread(len(numbers), kind.most)]
    return thinned(numbers, again(batch_stage))[:: kind.every]


def failures_of_test(scene: Scene, batch_stage: BatchStage) -> list[int]:
    """Return the numbers of the calls that `make test` has fail.

    They exclude the beginning and the statements of a transaction, which the same lines undo as when its commit fails.
    Of consecutive equal calls, such as those that write a file, only the first fails, except where threads alternate,
    because their scheduling decides which calls are consecutive.
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
    """Return the numbers from 1 to `count`, or at most `most` of them evenly spread, including the last one."""
    if most is None:
        return range(1, count + 1)
    return sorted({max(1, turn * count // most) for turn in range(1, most + 1)})


def at_once(trials: Iterable[Callable[[], bool | None]], worlds: int = WORLDS_AT_ONCE) -> int:
    """Run trials, `worlds` at a time, and return their number; raises the exception of the first failing trial.

    A trial that returns False does not count, because there was nothing to try.
    """
    began = time.monotonic()
    with ThreadPoolExecutor(worlds) as pool:
        count = sum(tried is not False for tried in pool.map(lambda trial: trial(), trials))
    TRIED.append(Tried(count, began, time.monotonic()))
    return count


def kills(scene: Scene, batch_stage: BatchStage, numbers: Iterable[int] | None = None) -> Iterator[Callable[[], None]]:
    """Yield a trial for every call of a stage, or for `numbers`, in which it alternately exits or is killed there.

    It alternates for each name of a call; otherwise a stage could be killed at all commits and exit after each.
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
    """Return the numbers of the calls to try: the first dozen, then one in `every`."""
    return [number for at, number in enumerate(numbers, 1) if at <= FIRST_CALLS or at % every == 1 % every]


def again(batch_stage: BatchStage) -> int:
    """Return n if `make test` has one in n calls of a stage die or fail after the first dozen."""
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
    """Yield a trial for every call of a stage, or for `numbers`, that fails; if `lasting`, later calls fail too."""
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
    """Yield two trials for every request of a stage: its connection breaks before or after the request is read."""
    for number in range(1, requests(scene, batch_stage) + 1):
        yield lambda number=number: _drop(scene, batch_stage, number, read=False)  # type: ignore[misc]
        yield lambda number=number: _drop(scene, batch_stage, number, read=True)  # type: ignore[misc]


def _drop(scene: Scene, batch_stage: BatchStage, number: int, *, read: bool) -> None:
    trial = scene.trial(*batch_stage)
    trial.run(_stage(batch_stage), drop=(number, "no_response" if read else "unread")).expect(0)
    trial.recover()
    check(trial)


def overlaps(scene: Scene, batch_stage: BatchStage, most: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield trials in which an attempt pauses at a call, and continues after another attempt has finished.

    The other attempt is alternately the same stage or all work until the product is idle. At most `most` evenly spread
    calls are tried, including the last one.
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
    """Yield trials in which a stage is killed at a random call, and its recovery is killed at a random call too."""
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
    # a recovery with fewer calls finishes, which is also valid
    trial.recover(how_to_recover(trial, how), Fault("kill", second)).expect(0, KILLED)
    trial.recover(LATE)
    check(trial)


def every_pair(scene: Scene, batch_stage: BatchStage) -> Iterator[Callable[[], bool]]:
    """Yield a trial for every pair of calls: a stage is killed at the first, and its next attempt at the second.

    A pair whose second call is not reached does not count, because the second attempt has fewer calls left. For a kind
    with `most`, the first call is one of that many evenly spread calls.
    """
    count = scene.counts(*batch_stage)["die"]
    ends: dict[int, int] = {}
    for first in spread(count, KINDS[batch_stage[0]].most):
        for second in range(1, count + 1):
            yield lambda first=first, second=second: _pair(scene, batch_stage, first, second, ends)  # type: ignore[misc]


def _pair(scene: Scene, batch_stage: BatchStage, first: int, second: int, ends: dict[int, int]) -> bool:
    """Try a pair and return True, unless it is beyond the end of the second attempt; `ends` has that, by first call."""
    if second > ends.get(first, second) + _BEYOND_END:
        return False
    trial = scene.killed(*batch_stage, first)
    # after a batch is planned, another plan finds nothing
    again = trial.run(_stage(batch_stage), Fault("kill", second)).expect(0, KILLED, REFUSED)
    if not again.died:
        ends[first] = min(second, ends.get(first, second))
    trial.recover()
    check(trial)
    return True


def random_schedules(
    scene: Scene, count: int, seed: int = 1, first: int = 0, among: Sequence[BatchStage] | None = None
) -> Iterator[Callable[[], None]]:
    """Yield trials in which one to four faults of any kind hit a batch, one after another, at random calls.

    Batches that a streaming task may deliver are delivered by streaming tasks or stages at random. `among` has the
    stages to begin at.
    """
    return stories(count, seed, lambda dice: _schedule(scene, dice, among or batch_stages()), first)


def stories(
    count: int, seed: int, play: Callable[[random.Random], None], first: int = 0
) -> Iterator[Callable[[], None]]:
    """Yield random trials, each with its own generator, from number `first` on; a failing one names its generator."""
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
    """Return how a trial recovers: alternately immediately and late."""
    return [AT_ONCE, LATE, *([STREAMING_TASK_AT_ONCE, STREAMING_TASK_LATE] if trial.kind in STREAMING_KINDS else [])]


def how_to_recover(trial: Trial, how: str) -> str:
    """Return how a trial can recover; an early recovery would wait for a batch that is settled late."""
    return how if KINDS[trial.kind].early else LATE


def _stage(batch_stage: BatchStage) -> str:
    return ".".join(batch_stage)
