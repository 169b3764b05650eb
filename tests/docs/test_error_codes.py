"""docs/reference/error-codes.md lists the codes that the API uses."""

from __future__ import annotations

import re
from pathlib import Path

from docs.error_codes import PAGE, page

from eventbridge.api.error_codes import BY_STATUS, CODES
from eventbridge.api.refusal import CallRefused

API = Path(__file__).parents[2] / "include" / "eventbridge" / "api"


def test_the_page_is_generated() -> None:
    """It matches the table in the code."""
    assert PAGE.read_text() == page(), "run: PYTHONPATH=tests python -m docs.error_codes"


def test_every_code_says_what_to_do() -> None:
    """Meaning and remedy are sentences, and a problem has the remedy of its code."""
    for code, each in CODES.items():
        assert (each.meaning.endswith("."), each.remedy.endswith("."), len(each.remedy) > 20) == (True,) * 3, code
        assert CallRefused(each.status, "wrong", code=code).remedy == each.remedy


def test_every_code_is_used_and_known() -> None:
    """Each code in the source is in the table, and each in the table is used, by name or by its status."""
    used = {code for file in API.rglob("*.py") for code in re.findall(r'code="([a-z_]+)"', file.read_text())}

    assert used - set(CODES) == set()
    assert set(CODES) - used - set(BY_STATUS.values()) - {"token_required", "token_invalid", "no_such_call"} == set()
