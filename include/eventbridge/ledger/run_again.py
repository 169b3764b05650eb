"""Runs a method of the ledger again if its transaction was lost: its server restarted, or undid it for another one.

It does so only if nothing can have changed: the transaction was lost before its commit was sent, and the method has
committed no other before it. If a commit has no response, it may have been made; the caller gets an error, and a stage
that runs again finds out from the rows, as after a kill. So no statement has to be idempotent.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from eventbridge.errors import LedgerError
from eventbridge.ledger.database import Database, commits_of_this_thread
from eventbridge.ledger.remedies import TransactionLostError

_L = TypeVar("_L", bound=Database)

#: For how long: a server that restarts is back by then, and one of two transactions in a deadlock has finished.
_SECONDS = 30.0


def runs_lost_transactions_again(ledger: type[_L]) -> type[_L]:
    """Return the class with public methods and properties that rerun lost transactions; those of Database do not."""
    for part in reversed(ledger.__mro__[1:]):
        if part is Database or not issubclass(part, Database):
            continue
        for name, value in vars(part).items():
            if name.startswith("_"):
                continue
            if isinstance(value, FunctionType):
                setattr(ledger, name, _again(value))
            elif isinstance(value, property) and value.fget is not None:
                setattr(ledger, name, property(_again(value.fget)))
    return ledger


def _again(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        until = time.monotonic() + _SECONDS
        # an iterator would be empty the second time
        arguments = tuple(_kept(each) for each in arguments)
        named = {name: _kept(each) for name, each in named.items()}
        while True:
            committed = commits_of_this_thread()
            try:
                return method(*arguments, **named)
            except TransactionLostError as error:
                if time.monotonic() > until or commits_of_this_thread() != committed:
                    raise LedgerError(str(error)) from error
            time.sleep(random.uniform(0.01, 0.1))  # random, so that two transactions in a deadlock do not retry at once

    return call


def _kept(argument: Any) -> Any:
    return list(argument) if isinstance(argument, Iterator) else argument
