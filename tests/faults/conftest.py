"""Says at the end of a run of tests how many trials the crash matrix was made of, and how long they took."""

from __future__ import annotations

import pytest
from faults import matrix


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write one line, if there was a trial."""
    if matrix.TRIED.trials:
        terminalreporter.write_line(f"crash matrix: {matrix.TRIED}")
