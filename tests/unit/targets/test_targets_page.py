"""docs/reference/targets.md: every extra of a connection that is used, and examples that can be used as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from eventbridge.config.connection import connections_from_environment
from eventbridge.targets.http.credentials import EXTRAS, credentials_of
from eventbridge.targets.http.fields import PREFIXES
from eventbridge.targets.http.header_names import is_reserved
from eventbridge.targets.http.tls import tls_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "targets.md").read_text()


def examples() -> dict[str, str]:
    """Return the variables of the page's examples."""
    blocks = re.findall(r"^```connections\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return dict(shlex.split(line)[0].split("=", 1) for block in blocks for line in block.splitlines())


def test_every_extra_that_is_read_is_on_the_page() -> None:
    """What the code asks a connection for stands in the table, and nothing else does."""
    sources = [
        ROOT / "include" / "eventbridge" / "targets" / "http" / f"{name}.py"
        for name in ("credentials", "tls", "address")
    ]
    text = "".join(path.read_text() for path in sources)
    rows = re.findall(r"^\| (extras? .*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert named == EXTRAS
    read = re.findall(r'(?:_text|_pem)\(connection, "(\w+)"\)|extra\.get\("(\w+)"', text)
    assert {name for pair in read for name in pair if name} - named == set()


def test_the_examples_can_be_used() -> None:
    """Each is read, and is what its name says."""
    look_up = connections_from_environment(examples())
    found = {name.removeprefix("EVENTBRIDGE_CONN_").lower(): name for name in examples()}
    held = {short: credentials_of(look_up(short)) for short in found}

    assert [tls_of(look_up(short)).certificate for short in found] == [None] * len(found)
    begins = {short: [str(line).split(" ")[0] for line in each.lines] for short, each in held.items() if each.lines}
    assert begins == {"basic": ["authorization:"], "bearer": ["authorization:"], "api_key": ["x-api-key:"]}
    assert held["api_key_query"].query == "key=k-4711-abcdef"
    assert held["oauth2"].client is not None
    assert [key.version for key in held["signed"].signing_keys] == ["v1"]
    assert [key.version for key in held["signed_by_two"].signing_keys] == ["v1", "v1a"]


def test_every_prefix_of_headers_that_an_event_must_not_set_is_on_the_page() -> None:
    """An event may not set the headers of signatures, whichever set of them a target has."""
    for prefix in (*PREFIXES.values(), "proxy"):
        assert is_reserved(f"{prefix}-id")
        assert f"`{prefix}-...`" in PAGE
