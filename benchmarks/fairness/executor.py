"""Push slots as in Airflow: the waiting task with the highest weight starts first, in its pool, once a slot is free."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eventbridge.policy.chunking import PoolSlots


@dataclass
class Executor:
    """So many slots for all pools together; `pools` says how many each may have of them."""

    slots: int
    pools: Mapping[str, int]
    _waiting: list[tuple[int, int, str, Callable[[], Any], Future[Any]]] = field(default_factory=list)
    _running: Counter[str] = field(default_factory=Counter)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _ended: bool = False

    def standing(self) -> dict[str, PoolSlots]:
        """Return the pools as Airflow's REST API tells them."""
        with self._changed:
            return {name: PoolSlots(slots, max(0, slots - self._running[name])) for name, slots in self.pools.items()}

    def submit(self, pool: str, weight: int, work: Callable[[], Any]) -> Future[Any]:
        """Have `work` wait for a slot; its result is the future's."""
        future: Future[Any] = Future()
        with self._changed:
            self._waiting.append((-weight, next(self._numbers), pool, work, future))
            self._waiting.sort(key=lambda each: each[:2])
            self._changed.notify_all()
        return future

    @contextmanager
    def running(self) -> Iterator[None]:
        """Give slots for the block; what waits at its end is cancelled."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.slots)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._ended = True
                for *_, future in self._waiting:
                    future.cancel()
                self._waiting.clear()
                self._changed.notify_all()
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None and not self._ended:
                    self._changed.wait()
                if found is None:
                    return
                self._waiting.remove(found)
                _, _, pool, work, future = found
                self._running[pool] += 1
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._changed:
                    self._running[pool] -= 1
                    self._changed.notify_all()

    def _next(self) -> tuple[int, int, str, Callable[[], Any], Future[Any]] | None:
        return next((each for each in self._waiting if self._running[each[2]] < self.pools.get(each[2], 1)), None)
