"""Makes CloudEvents of a parcel carrier, in any number, reproducible by seed and block.

All text is joined column by column in Arrow, 2 us an event, so that two million events no matcher has seen before
cost seconds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Size = Literal[519, 4096]
"""Mean bytes of an event."""

SIZES: Final[tuple[Size, ...]] = (519, 4096)

Numbers = npt.NDArray[np.int64]

NOUNS: Final = [
    "parcel",
    "pallet",
    "route",
    "pickup",
    "customs",
    "return",
    "label",
    "invoice",
    "claim",
    "driver",
    "locker",
    "sensor",
]
VERBS: Final = ["announced", "accepted", "changed", "refused", "completed"]
TYPES: Final = [f"io.carrier.{noun}.{verb}" for verb in VERBS for noun in NOUNS]
REGIONS: Final = ["eu-north", "eu-south", "us-east", "us-west", "ap-south", "ap-east"]
HUBS: Final = 400
STATES: Final = ["waiting", "moving", "lost", "done", "stopped", "late", "again"]
TIERS: Final = ["none", "wood", "stone", "iron", "glass"]
COUNTRIES: Final = ["DE", "FR", "PL", "IT", "ES", "NL", "US", "CA", "MX", "JP", "IN", "SE"]
SHIPPERS: Final = 20_000
NAMES: Final = ["ada", "bo", "carl", "dora", "emil", "fay", "gus", "hana", "ivo", "jun", "kim", "lea"]
MAIL_HOSTS: Final = ["carrier.example", "mail.test", "post.example.org", "inbox.test", "letters.example", "box.test"]
LABELS: Final = ["fragile", "cold", "express", "gift", "heavy", "insured", "upright", "export"]
NETWORKS: Final = (10, 81, 172, 192, 203)
AGENTS: Final = [
    "scanner/4.1 (linux; arm64)",
    "gate/2",
    "app/11.3 (phone; os 18.1)",
    "py-client/2.32",
    'kiosk/1 \\"Z\u00fcrich\\"',
]
SKUS: Final = 2_000
FAULTS: Final = 300

_BLOCK: Final = 20_000


def zipf(count: int, exponent: float = 0.8) -> npt.NDArray[np.float64]:
    """Return the shares of `count` things of which the first are the most frequent."""
    weights = np.arange(1.0, count + 1) ** -exponent
    return np.asarray(weights / weights.sum(), np.float64)


def make_events(
    count: int, size: Size = 519, *, seed: int = 1, block: int = 0, fresh_sources: bool = False
) -> pa.Array:
    """Return `count` events as JSON texts (Arrow strings); other blocks hold other events of the same kind.

    With `fresh_sources` no two events have the same source.
    """
    parts = [
        _events(min(_BLOCK, count - first), size, fresh_sources, np.random.default_rng([seed, block, first]))
        for first in range(0, count, _BLOCK)
    ]
    return pa.concat_arrays(parts)


def _events(count: int, size: Size, fresh_sources: bool, rng: np.random.Generator) -> pa.Array:
    kind = rng.choice(len(TYPES), count, p=zipf(len(TYPES)))
    region = rng.integers(0, len(REGIONS), count)
    noun = pick(NOUNS, kind % len(NOUNS))
    has_lines = rng.random(count) < 0.4
    has_fault = rng.random(count) < 0.1
    pieces = [
        '{"specversion":"1.0","id":"', *_hexadecimal(rng, count, 2), "-", *_hexadecimal(rng, count, 1),
        "-", *_hexadecimal(rng, count, 1), "-", *_hexadecimal(rng, count, 3),
        '","source":"/depots/', pick(REGIONS, region), "/hub-", _digits(rng.integers(0, HUBS, count), 3),
        *(["/", *_hexadecimal(rng, count, 4)] if fresh_sources else []), "/", noun,
        '","type":"', pick(TYPES, kind),
        '","subject":"', noun, "/",
        _digits(rng.integers(0, 1000, count), 3), _digits(rng.integers(0, 10_000, count), 4),
        '","time":"2026-11-', _digits(rng.integers(1, 31, count), 2), "T", _digits(rng.integers(0, 24, count), 2),
        ":", _digits(rng.integers(0, 60, count), 2), ":", _digits(rng.integers(0, 60, count), 2),
        ".", _digits(rng.integers(0, 1000, count), 3),
        'Z","datacontenttype":"application/json","data":{"region":"', pick(REGIONS, region),
        '","state":"', pick(STATES, rng.choice(len(STATES), count, p=[0.15, 0.15, 0.03, 0.58, 0.03, 0.03, 0.03])),
        '","weight":', pc.cast(pa.array(np.round(np.exp(rng.normal(4, 1.2, count)), 2)), pa.string()),
        ',"unit":"', pick(["kg", "g", "lb"], rng.integers(0, 3, count)),
        '","shipper":{"id":"s-', *_digits5((SHIPPERS * rng.random(count) ** 2).astype(np.int64)),
        '","tier":"', pick(TIERS, rng.choice(len(TIERS), count, p=[0.5, 0.2, 0.15, 0.1, 0.05])),
        '","country":"', pick(COUNTRIES, rng.integers(0, len(COUNTRIES), count)),
        '","email":"', pick(NAMES, rng.integers(0, len(NAMES), count)), _digits(rng.integers(0, 3000, count), 4),
        "@", pick(MAIL_HOSTS, rng.integers(0, len(MAIL_HOSTS), count)),
        '"},"priority":', pick("012345", rng.integers(0, 6, count)),
        ',"gateway":"', pick([str(network) for network in NETWORKS], rng.integers(0, len(NETWORKS), count)),
        *[part for _ in range(3) for part in (".", pick(_BYTES, rng.integers(0, 256, count)))],
        '","agent":"', pick(AGENTS, rng.integers(0, len(AGENTS), count)), '"',
        pick(_LABEL_SETS, rng.integers(0, len(_LABEL_SETS), count)),
        *_lines(rng, count, has_lines),
        _optional(has_fault, pick(_FAULT_TEXTS, rng.integers(0, len(_FAULT_TEXTS), count))),
    ]  # fmt: skip
    if size == 4096:
        fillers = _fillers()
        pieces.append(pick(fillers, rng.integers(0, len(fillers), count)))
    return pc.binary_join_element_wise(*pieces, "}}", "")


def pick(texts: Sequence[str], indexes: Numbers) -> pa.Array:
    """Return the texts at these indexes."""
    return pa.array(list(texts), pa.string()).take(pa.array(indexes))


def _digits(numbers: Numbers, width: int) -> pa.Array:
    return pick([f"{number:0{width}d}" for number in range(int(numbers.max(initial=0)) + 1)], numbers)


def _digits5(numbers: Numbers) -> list[pa.Array]:
    return [_digits(numbers // 1000, 2), _digits(numbers % 1000, 3)]


def _hexadecimal(rng: np.random.Generator, count: int, words: int) -> list[pa.Array]:
    return [pick(_WORDS, rng.integers(0, len(_WORDS), count)) for _ in range(words)]


def _lines(rng: np.random.Generator, count: int, there: npt.NDArray[np.bool_]) -> list[pa.Array]:
    second = there & (rng.random(count) < 0.5)
    first_texts = pick(_LINE_TEXTS, rng.integers(0, len(_LINE_TEXTS), count))
    second_texts = pick(_LINE_TEXTS, rng.integers(0, len(_LINE_TEXTS), count))
    return [
        _optional(there, pc.binary_join_element_wise(',"lines":[', first_texts, "")),
        _optional(second, pc.binary_join_element_wise(",", second_texts, "")),
        _optional(there, pa.array(["]"] * count)),
    ]


def _optional(there: npt.NDArray[np.bool_], texts: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(there), texts, "")


def _fillers() -> list[str]:
    """Return what makes an event 4 KiB long: members that no rule asks for, of every type, with escapes."""
    draw = random.Random(4096)
    return [_filler(draw) for _ in range(128)]


def _filler(draw: random.Random) -> str:
    text = ""
    while len(text.encode()) < _FILLER_BYTES:
        step = {
            "at": f"2026-10-{draw.randrange(1, 31):02d}T{draw.randrange(24):02d}:15:00Z",
            "place": draw.choice(["Z\u00fcrich", "\u0141\u00f3d\u017a", "Graz", "Malm\u00f6", "Porto"]),
            "note": "\n".join(draw.choices(["seen", 'put "there"', "taken\\over", "\u20ac 5 due"], k=3)),
            "position": [round(draw.uniform(-90, 90), 6), round(draw.uniform(-180, 180), 6)],
            "by": {"id": draw.randrange(10**9), "trusted": draw.random() < 0.5, "until": None},
        }
        text += ("," if text else "") + json.dumps(step, separators=(",", ":"), ensure_ascii=draw.random() < 0.3)
    return f',"history":[{text}]'


_FILLER_BYTES: Final = 3_486
_BYTES: Final = [str(number) for number in range(256)]
_WORDS: Final = [f"{number:04x}" for number in range(65_536)]
_LINE_TEXTS: Final = [f'{{"sku":"K-{sku:04d}","quantity":{number}}}' for sku in range(SKUS) for number in range(1, 5)]
_FAULT_TEXTS: Final = [
    f',"fault":{{"code":"F{code:03d}","final":{final}}}' for code in range(FAULTS) for final in ("true", "false")
]
_LABEL_SETS: Final = ['', ',"labels":[]'] * 8 + [
    ',"labels":["' + '","'.join(sorted({first, second, third})) + '"]'
    for first in LABELS for second in LABELS for third in LABELS[:1]
]  # fmt: skip
