"""The goals of the matcher, and its minimum results."""

from __future__ import annotations

from typing import Final

KERNEL: Final = {1: 1_500_000, 10: 800_000, 100: 650_000, 1_000: 500_000, 10_000: 300_000}
"""Events of 519 bytes per CPU-second of the kernel alone, strict validation included, by number of mixed rules."""

ROUTE: Final = {1: 320_000, 10: 300_000, 100: 310_000, 1_000: 300_000, 10_000: 150_000}
"""The same in Spark's workers: read, validate, match, ids out."""

_PROTOTYPE: Final = {
    "kernel": {1: 1_549_000, 10: 765_000, 100: 605_000, 1_000: 485_000, 10_000: 272_000},
    "route": {1: 312_000, 10: 289_000, 100: 318_000, 1_000: 293_000, 10_000: 139_000},
}
"""What a prototype reached that did not validate what it read; where it is a range, its upper end."""

_LEAST: Final = 0.9

FLOORS: Final = {who: {count: _LEAST * rate for count, rate in rates.items()} for who, rates in _PROTOTYPE.items()}
"""The least, in the same units, by `kernel` and `route`."""

TIMES_EVENT_RULER: Final = {10: 3.0, 100: 10.0, 1_000: 40.0, 10_000: 10.0}
"""How many times Event Ruler's rate the kernel's shall be; set for events of 519 bytes."""

OF_MIXED: Final = 0.2
"""The least that any rule set reaches of the rate of as many mixed rules."""

WHOLE_ROUTE_EVENTS: Final = 200_000
"""Events per CPU-second of route as a whole where few match."""

WHOLE_ROUTE_DELIVERIES: Final = 200_000
"""Deliveries per CPU-second of it where many do."""

MEGABYTES: Final = 400.0
FIRST_SECONDS: Final = 1.0
COMPILE_SECONDS: Final = 5.0
CHANGE_SECONDS: Final = 0.5
READY_SECONDS: Final = 2.0
