"""`eventbridge init-airflow` writes two files into a DAGs folder and changes no foreign one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbridge.errors import EXTRAS
from eventbridge.version import __version__

FILES = ["eventbridge_dags.py", "eventbridge_rule_errors.py"]


def test_it_writes_two_files_that_airflow_looks_into(tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """Safe mode passes over a file without the words `airflow` and `dag`."""
    result = eventbridge("init-airflow", str(tmp_path / "dags"), "--create")
    texts = [(tmp_path / "dags" / name).read_text().lower() for name in FILES]

    assert result.code == 0
    assert all("airflow" in text and "dag" in text for text in texts)


def test_a_folder_that_is_missing_is_made_only_on_request(tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """A mistyped name makes no folder that no Airflow reads: the error offers --create."""
    refused = eventbridge("init-airflow", str(tmp_path / "dgas"))

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(
        f"Error: the folder {tmp_path / 'dgas'} does not exist. Correct the name, or pass --create"
    )
    assert not (tmp_path / "dgas").exists()
    assert eventbridge("init-airflow", str(tmp_path / "dgas"), "--create").code == 0
    assert {file.name for file in (tmp_path / "dgas").iterdir()} == set(FILES)


def test_the_folder_that_airflow_names_is_made_only_on_request_too(
    tmp_path: Path, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AIRFLOW_HOME unset or wrong it is no folder of the user's Airflow: the error says whose word it is."""
    folder = tmp_path / "airflow" / "dags"
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(folder))
    refused = eventbridge("init-airflow")

    assert (refused.code, refused.out) == (2, "")
    assert f"Airflow's `[core] dags_folder` is {folder}, which does not exist" in refused.err
    assert "AIRFLOW_HOME" in refused.err
    assert "--create" in refused.err
    assert not folder.parent.exists()
    assert eventbridge("init-airflow", "--create").out.splitlines()[0] == f"Created {folder}."
    assert {file.name for file in folder.iterdir()} == set(FILES)


def test_it_may_be_repeated(tmp_path: Path, eventbridge: Callable[..., Any]) -> None:
    """What is up to date stays; a file of an older version is written again."""
    eventbridge("init-airflow", str(tmp_path))
    (tmp_path / FILES[0]).write_text('"""Written by `eventbridge init-airflow`."""')
    found = eventbridge("init-airflow", str(tmp_path), "--json").json

    assert found == {
        "folder": str(tmp_path),
        "created": False,
        "files": [{"file": FILES[0], "written": True}, {"file": FILES[1], "written": False}],
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("eventbridge_rule_errors.py", "mine = 1", "not written by `eventbridge init-airflow`"),
        (
            "eventbridge_deliver_events.py",
            "from eventbridge.airflow.dags.deliver_events import x",
            "defines the same DAGs",
        ),
    ],
)
def test_a_foreign_file_is_left_alone(
    tmp_path: Path, eventbridge: Callable[..., Any], name: str, text: str, said: str
) -> None:
    """Neither is it changed, nor is anything written that would clash with it."""
    (tmp_path / name).write_text(text)
    result = eventbridge("init-airflow", str(tmp_path))

    assert result.code == 2
    assert said in result.err
    assert [file.name for file in tmp_path.glob("*.py")] == [name]
    assert (tmp_path / name).read_text() == text


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    """A command that needs a package of an extra names the package, the extra and a command that works today."""
    code = (
        "import sys; sys.modules['airflow'] = None; sys.argv[1:] = ['init-airflow']\n"
        "from eventbridge.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr == (
        "Error: airflow is not installed. It belongs to the airflow extra: "
        f"pip install 'eventbridge_airflow-{__version__}-py3-none-any.whl[airflow]', "
        "with the path of the wheel that you installed. In a checkout, `make wheel` builds it in the folder dist\n"
    )


def test_every_extra_that_is_named_is_one_of_the_package() -> None:
    """pyproject.toml has the extras that the message about a missing package names."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()

    assert set(EXTRAS.values()) == set(tomllib.loads(text)["project"]["optional-dependencies"])


def test_the_install_page_lists_every_extra() -> None:
    """docs/howto/install.md has a row for each extra of pyproject.toml, and for no other."""
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = (root / "docs" / "howto" / "install.md").read_text().partition("| extra | for |")[2].partition("\n\n")[0]

    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(extras)
