"""Writes the two files that the DAGs folder of an existing Airflow needs, for `eventbridge init-airflow`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventbridge.errors import UserError

_MARK = "Written by `eventbridge init-airflow`."

# Airflow silently skips a file that does not contain the words `airflow` and `dag`.
FILES: Final[Mapping[str, str]] = {
    "eventbridge_dags.py": f'''"""The DAGs of EventBridge, for Airflow. {_MARK}"""

from eventbridge.airflow.dags import airflow_dags

globals().update(airflow_dags())
''',
    "eventbridge_rule_errors.py": f'''"""Shows errors in rule files as an import error; defines no DAG. {_MARK}"""

from eventbridge.airflow.schedule import refuse_rule_errors

refuse_rule_errors()
''',
}


def dags_folder_of_airflow() -> Path:
    """Return the DAGs folder of the Airflow that this process's environment configures."""
    from airflow.configuration import conf

    return Path(conf.get("core", "dags_folder"))


def write_dag_files(folder: Path) -> list[Path]:
    """Write the files into a DAGs folder, which is created if it is missing; return the new or changed files.

    Raises UserError, and writes nothing, if one of the files exists and has another origin, or if other files define
    the same DAGs, such as the DAG files of a checkout.
    """
    texts = {folder / name: text for name, text in FILES.items()}
    for file in sorted(folder.rglob("*.py")):
        found = file.read_text(errors="replace")
        if file in texts and _MARK not in found:
            raise UserError(
                f"{file} exists and was not written by `eventbridge init-airflow`. Move it, or choose another folder"
            )
        if file not in texts and "eventbridge.airflow.dags" in found:
            raise UserError(f"{file} defines the same DAGs. Remove it, or choose another folder; nothing was written")
    changed = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    folder.mkdir(parents=True, exist_ok=True)
    for file in changed:
        file.write_text(texts[file])
    return changed
