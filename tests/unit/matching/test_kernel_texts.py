"""Wildcards and `contains`: one walk finds all that hold, however many parts they share."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
from generative.kernel_agreement import results

from eventbridge.event.json_document import write_document
from eventbridge.matching import compile_rules
from eventbridge.matching.compiled import acceptance
from eventbridge.matching.kernel.texts import SIGN_BYTES, byte_classes, choose_signs, failures_of
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.pattern.nodes import Contains, Wildcard


def test_failures_are_the_longest_borders() -> None:
    """For each beginning: the longest shorter beginning that it ends with."""
    for size in range(1, 8):
        for letters in itertools.product(b"ab", repeat=size):
            part = bytes(letters)
            borders = [
                max(size for size in range(end) if part[:size] == part[end - size : end])
                for end in range(1, len(part) + 1)
            ]

            assert failures_of(part) == borders


def test_a_sign_is_a_part_that_few_others_have() -> None:
    """Of equally rare parts the longest, cut to what the automaton looks for."""
    signs = choose_signs([(b"", b"log", b".txt"), (b"", b"log", b".csv"), (b"x" * 50, b"y")])

    assert signs == [b".txt", b".csv", b"x" * SIGN_BYTES]


def test_every_byte_may_occur() -> None:
    """256 different bytes have 2^8 columns, fewer share column 0 for the rest."""
    classes, shift = byte_classes([bytes(range(256))])

    assert shift == 8
    assert sorted(classes.tolist()) == list(range(256))
    assert byte_classes([b"ba"])[1] == 2


def test_wildcards_that_share_parts_hold_as_the_reference_says() -> None:
    """Every wildcard over two letters of up to five signs, and `contains`, on every text of up to seven letters."""
    shapes = ["".join(one) for size in range(1, 6) for one in itertools.product("ab*", repeat=size)]
    shapes = [shape for shape in shapes if "**" not in shape]
    conditions = [Wildcard(shape) for shape in shapes] + [Contains(shape) for shape in shapes if "*" not in shape]
    patterns = [parse_pattern({"a": [{type(one).__name__.lower(): one.text}]}) for one in conditions]
    texts = ["".join(one) for size in range(8) for one in itertools.product("ab", repeat=size)]
    tests = [acceptance(one) for one in conditions]
    found = compile_rules(patterns).match(pa.array([write_document({"a": text}) for text in texts]))

    assert results(found) == [[rule for rule, test in enumerate(tests) if test(text)] for text in texts]


def test_long_parts_are_compared_whole() -> None:
    """A sign is only the beginning of a part: what follows it must fit too."""
    random_ = random.Random(1)
    shapes = ["*" + "x" * 12 + "".join(random_.choices("xyé", k=20)) + end for end in ("*", "*z") for _ in range(30)]
    texts = [
        shape.strip("*").replace("*", "")[:cut] + end for shape in shapes for cut in (31, 99) for end in ("", "z", "xz")
    ]
    tests = [acceptance(Wildcard(shape)) for shape in shapes]
    found = compile_rules([parse_pattern({"a": [{"wildcard": shape}]}) for shape in shapes]).match(
        pa.array([write_document({"a": text}) for text in texts])
    )

    assert results(found) == [[rule for rule, test in enumerate(tests) if test(text)] for text in texts]
