"""Secrets are found in a response however its server writes them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from eventbridge.config.redaction import WITHHELD, forms_of, veiled

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
    "HTML by Node": "pa+ss/wo&lt;r&gt;d&amp;&#39;&quot;=é\U0001f511",
    "HTML by Mustache": "pa+ss&#x2F;wo&lt;r&gt;d&amp;&#39;&quot;&#x3D;é\U0001f511",
    "HTML by PHP": "pa+ss/wo&lt;r&gt;d&amp;&#039;&quot;=&eacute;&#128273;",
    "JSON by Gson": """"pa+ss/wo\\u003cr\\u003ed\\u0026\\u0027\\"\\u003dé\U0001f511\"""",
    "JSON in JSON": json.dumps(json.dumps(SECRET)),
    "HTML in JSON": json.dumps(html.escape(SECRET)),
    "HTML in JSON by Go": """"pa+ss/wo\\u0026lt;r\\u0026gt;d\\u0026amp;\\u0026#39;\\u0026#34;=é\U0001f511\"""",
    "JSON in HTML": html.escape(json.dumps(SECRET)),
    "URL by .NET": "pa%2bss%2fwo%3cr%3ed%26%27%22%3d%c3%a9%f0%9f%94%91",
    "URL, twice": quote(quote(SECRET, safe=""), safe=""),
}

#: The same for credentials in base64.
ENCODED_PAIR = {
    "URL": "c2g%2FPz4%2BaHVzaA%3D%3D",
    "URL by .NET": "c2g%2fPz4%2baHVzaA%3d%3d",
    "JSON by Gson": "c2g/Pz4+aHVzaA\\u003d\\u003d",
    "JSON by .NET": "c2g/Pz4\\u002BaHVzaA==",
    "JSON by PHP": "c2g\\/Pz4+aHVzaA==",
    "HTML by Mustache": "c2g&#x2F;Pz4+aHVzaA&#x3D;&#x3D;",
}


@pytest.mark.parametrize("encoder", ENCODED)
def test_a_secret_is_found_as_any_encoder_writes_it(encoder: str) -> None:
    """Nothing of it is left but asterisks, and what stands beside it stays."""
    text = veiled(f"bad token {ENCODED[encoder]}!".encode(), forms_of([SECRET])).decode()

    assert text.startswith("bad token ")
    quotes = r'(?:\\{0,1}"|&quot;)*'
    assert re.fullmatch(rf"{quotes}\*+{quotes}!", text.removeprefix("bad token "))


@pytest.mark.parametrize("secret", [SECRET, "sesame", "d3adb33f-4711", "pässwörd"])
@pytest.mark.parametrize("before", ["", "a", "ab", "Bearer "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_in_base64(secret: str, before: str, encode: Callable[[bytes], bytes]) -> None:
    """Wherever a secret begins in what is encoded, at most four bits at each of its edges stay."""
    shown = veiled(b'{"request": "' + encode(f"{before}{secret}/end".encode()) + b'"}', forms_of([secret]))
    encoded = shown.removeprefix(b'{"request": "').removesuffix(b'"}')

    assert encoded.count(b"*") >= len(secret.encode()) * 8 // 6 - 1
    begin, end = encoded.index(b"*"), encoded.rindex(b"*")
    assert set(encoded[begin : end + 1]) == {ord("*")}
    # the edges: characters that hold bits of what stands beside the secret
    assert begin * 6 < len(before.encode()) * 8 + 6
    assert (end + 1) * 6 > (len(before.encode()) + len(secret.encode())) * 8 - 6


@pytest.mark.parametrize("encoder", ENCODED_PAIR)
def test_a_secret_is_found_in_base64_that_is_escaped(encoder: str) -> None:
    """The credentials of basic authentication end in `=`, and may hold `+` and `/`."""
    secret = "c2g/Pz4+aHVzaA=="
    written = ENCODED_PAIR[encoder]

    assert set(veiled(written.encode(), forms_of([secret]))) == {ord("*")}


def test_overlapping_secrets_are_masked_whole() -> None:
    """Of two secrets that share characters in a response, nothing stays."""
    assert veiled(b"-abcdefghijkl-", forms_of(["abcdefgh", "efghijkl"])) == b"-************-"


def test_a_long_secret_is_masked_whole() -> None:
    """A token of 8,000 characters is found, although one expression of RE2 takes fewer."""
    token = base64.b64encode(hashlib.shake_256(b"token").digest(6_000)).decode()

    assert set(veiled(f"bad {token}".encode(), forms_of([token]))) == set(b"bad *")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (b"no such key: k-1", "k-1"),
        (b'{"key": "p\\u00f6"}', "pö"),
        (b"GET /?key=a%2Fb", "a/b"),
        (base64.b64encode(b"Bearer abcde;"), "abcde"),
        (b"x", "x"),
    ],
)
def test_a_text_with_a_short_secret_is_withheld(text: bytes, secret: str) -> None:
    """Asterisks for a short secret would show where it stands in other words; so nothing of the text is kept."""
    assert veiled(text, forms_of([secret])) == WITHHELD


def test_a_text_without_a_short_secret_is_kept() -> None:
    """Only a text that repeats the secret is withheld; a longer secret in it is masked."""
    assert (
        veiled(b"unknown order 7, key hush-hush", forms_of(["k-1", "hush-hush"])) == b"unknown order 7, key *********"
    )


def test_no_value_is_no_secret() -> None:
    """An empty password is not found everywhere."""
    assert forms_of([""]) == ()


def test_a_secret_is_not_shown_by_what_finds_it() -> None:
    """A form that is printed by mistake shows nothing."""
    assert "hush" not in repr(forms_of(["hush-hush"]))


@pytest.mark.parametrize("secret", [*ENCODED, "sesame"])
def test_no_form_is_longer_than_said(secret: str) -> None:
    """So many bytes more of a response are read, so that a secret is found that begins where it is cut."""
    [form] = forms_of([SECRET])

    assert all(end - begin <= form.longest for begin, end in form.spans(ENCODED.get(secret, secret).encode()))
