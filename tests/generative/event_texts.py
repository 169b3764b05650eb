"""Hypothesis strategies for the JSON text of events, with white space, escapes and repeated keys."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

NAMES: Final = ("a", "b", "items", "long name, longer than thirty-two bytes")
_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])
_PIECES = st.sampled_from(
    [
        *(
            '\\"',
            "\\\\",
            "\\/",
            "\\b",
            "\\f",
            "\\n",
            "\\r",
            "\\t",
            "\\u0000",
            "\\u001F",
            "\\u000a",
            "\\u0041",
            "\\u00e9",
        ),
        *("\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\uDE00", "\\ud800\\ud800", "\\u2028", "\\u005c", "\\u0022"),
        *(
            "a",
            "é",
            "€",
            "😀",
            "\x7f",
            "${a}",
            "}",
            "{",
            "[",
            ",",
            ":",
            "/",
            "plain text of more than thirty-two bytes",
        ),
    ]
)
strings: Final = st.lists(_PIECES, max_size=5).map(lambda pieces: '"' + "".join(pieces) + '"')
numbers: Final = st.sampled_from(
    ["0", "-0", "1.50", "17", "1e400", "-1.0E-5", "123456789012345678901234567890", "0.10", "9007199254740993"]
) | st.integers().map(str)
#: Spellings of the same few keys.
keys: Final = st.sampled_from([f'"{name}"' for name in NAMES] + ['"\\u0061"', '"\\u0062"', '"é"', '"\\ud800"', '""'])


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.tuples(_SPACE, values, _SPACE).map("".join)
    return st.tuples(_SPACE, st.lists(element, max_size=4)).map(lambda pair: f"[{pair[0]}{','.join(pair[1])}]")


def _object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(_SPACE, keys, _SPACE, st.just(":"), _SPACE, values, _SPACE).map("".join)
    return st.tuples(_SPACE, st.lists(member, max_size=4)).map(lambda pair: f"{{{pair[0]}{','.join(pair[1])}}}")


values: Final = st.recursive(
    st.sampled_from(["null", "true", "false"]) | numbers | strings,
    lambda inner: _array(inner) | _object(inner),
    max_leaves=12,
)


@st.composite
def event_texts(draw: st.DrawFn) -> bytes:
    """Draw the text of one CloudEvent; some have no data, or data that is not JSON. None repeats a member."""
    members = ['"specversion":"1.0"', '"id" : "e1"', '"source":"/s"', '"type":"t"']
    members += [f'"data":{draw(_SPACE)}{draw(values)}' for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1])))]
    members += draw(
        st.lists(
            st.sampled_from(
                [
                    '"subject":null',
                    '"subject":"s \\u00e9\\""',
                    '"ext":true',
                    '"number": 5',
                    '"datacontenttype":"application/json"',
                    '"datacontenttype":"application/\\u006ason"',
                    '"datacontenttype":"text/plain"',
                    '"datacontenttype":null',
                ]
            ),
            max_size=3,
            unique_by=lambda member: member.partition(":")[0],
        )
    )
    if '"data":' not in "".join(members) and draw(st.booleans()):
        members.append('"data_base64":"aGk="')
    separator = draw(_SPACE) + "," + draw(_SPACE)
    return f"{draw(_SPACE)}{{{draw(_SPACE)}{separator.join(draw(st.permutations(members)))}}}{draw(_SPACE)}".encode()
