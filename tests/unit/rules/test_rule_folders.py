"""Which files of the rules folder are read: every one that is named as a rule file, and none may vanish in silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules

BUS = "buses:\n  orders:\n    source: {type: embedded}\n"


def test_a_linked_folder_is_read_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    """Rules that are kept elsewhere and linked count; a link to a folder above is not followed again."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "orders.yaml").write_text(BUS)
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "team").symlink_to(elsewhere)
    (elsewhere / "again").symlink_to(rules)

    assert set(load_rules(rules).buses) == {"orders"}


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    """A rule file that is named and not there would mean that its rules were removed."""
    (tmp_path / "orders.yaml").write_text(BUS)
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere.yaml")

    with pytest.raises(RuleFileError, match=r"gone\.yaml"):
        load_rules(tmp_path)


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Its rules would vanish in silence; checked as a user without rights, as root may read everything."""
    (tmp_path / "orders.yaml").write_text(BUS)
    hidden = tmp_path / "team"
    hidden.mkdir()
    hidden.chmod(0)
    tmp_path.chmod(0o755)
    code = (
        "import os\nfrom pathlib import Path\nfrom eventbridge.rules.load import load_rules\n"
        "def load_error():\n    try:\n        load_rules(Path())\n        return ''\n"
        "    except Exception as error:\n        return str(error)\n"
        "load_error()\n"  # whatever is imported on the way is imported with all rights
        "if os.getuid() == 0: os.setuid(65534)\n"
        "print(load_error())\n"
    )

    output = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    hidden.chmod(0o755)
    assert "team" in output.stdout
    assert "cannot be read" in output.stdout


def test_a_file_in_place_of_the_folder_is_reported_as_such(tmp_path: Path) -> None:
    """Naming one rule file instead of its folder says what to name."""
    file = tmp_path / "orders.yaml"
    file.write_text(BUS)

    with pytest.raises(RuleFileError, match="this is a file"):
        load_rules(file)
