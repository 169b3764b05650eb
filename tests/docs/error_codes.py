"""The page of error codes, generated from the table in the code.

`PYTHONPATH=tests python -m docs.error_codes` writes it.
"""

from __future__ import annotations

from pathlib import Path

from eventbridge.api.error_codes import CODES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "error-codes.md"
_HEAD = """# Error codes

A refused call of the [HTTP API](../howto/page.md#use-the-http-api) gets `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)):

| member | meaning |
|---|---|
| `type` | a URL on the server, whose page explains the code |
| `code` | one of the codes below, for programs |
| `title`, `status` | the name and the number of the HTTP status |
| `detail` | what was wrong with this call, and what to do |
| `remedy` | what to do about this code in general, as in the table below |
| `errors` | the wrong values, if several can be named: each with `location`, `message` and, if known, `remedy` |

## Codes

| code | status | meaning | what to do |
|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    rows = (
        f'| <a id="{code}"></a>`{code}` | {each.status.value} | {each.meaning} | {each.remedy} |'
        for code, each in CODES.items()
    )
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
