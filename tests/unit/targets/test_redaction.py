"""Secrets are found in an answer however its server writes them."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, quote_plus

import pytest

from eventbridge.targets.redaction import forms_of, veiled

SECRET = """pa+ss/wo<r>d&'"=é\U0001f511"""

ENCODED = {
    "as it is": SECRET,
    "URL": quote(SECRET, safe=""),
    "URL, slashes as they are": quote(SECRET),
    "form": quote_plus(SECRET),
    "JSON by Python": json.dumps(SECRET),
    "JSON in UTF-8": json.dumps(SECRET, ensure_ascii=False),
    "JSON by Go": """"pa+ss/wo\\u003cr\\u003ed\\u0026'\\"=é\U0001f511\"""",
    "JSON by .NET": """"pa\\u002Bss/wo\\u003Cr\\u003Ed\\u0026\\u0027\\u0022=\\u00E9\\uD83D\\uDD11\"""",
    "JSON by PHP": """"pa+ss\\/wo<r>d&'\\"=\\u00e9\\ud83d\\udd11\"""",
    "JSON of a header": json.dumps(SECRET.encode().decode("latin-1"), ensure_ascii=False),
    "HTML by Python": html.escape(SECRET),
    "HTML by Jinja": "pa+ss/wo&lt;r&gt;d&amp;&#39;&#34;=é\U0001f511",
    "HTML by Go": "pa&#43;ss/wo&lt;r&gt;d&amp;&#39;&#34;=é\U0001f511",
}


@pytest.mark.parametrize("encoder", ENCODED)
def test_a_secret_is_found_as_any_encoder_writes_it(encoder: str) -> None:
    """Nothing of it is left but asterisks, and what stands beside it stays."""
    text = veiled(f"bad token {ENCODED[encoder]}!".encode(), forms_of([SECRET])).decode()

    assert text.startswith("bad token ")
    assert set(text.removeprefix("bad token ").replace('"', "")) == {"*", "!"}


def test_what_is_short_is_no_secret() -> None:
    """Five characters would be found in every other answer."""
    assert forms_of(["shops"]) == ()
