"""Writes the two files that a DAGs folder of anybody's Airflow needs: `eventbridge init-airflow`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventbridge.errors import UserError

_MARK = "Written by `eventbridge init-airflow`."

# Airflow passes silently over a file without the words `airflow` and `dag`.
FILES: Final[Mapping[str, str]] = {
    "eventbridge_dags.py": f'''"""The DAGs of EventBridge, for Airflow. {_MARK}"""

from eventbridge.orchestrate.dags import airflow_dags

globals().update(airflow_dags())
''',
    "eventbridge_rule_errors.py": f'''"""Shows errors in rule files as an import error; makes no DAG. {_MARK}"""

from eventbridge.orchestrate.schedule import refuse_rule_errors

refuse_rule_errors()
''',
}


def dags_folder_of_airflow() -> Path:
    """Return the DAGs folder of the Airflow that this process's environment configures."""
    from airflow.configuration import conf

    return Path(conf.get("core", "dags_folder"))


def write_dag_files(folder: Path) -> list[Path]:
    """Write the files into a DAGs folder and return those that are new or changed; makes a missing folder.

    Raises UserError, and writes nothing, if another author's file has one of the names, or if other files make the
    same DAGs, as those of a checkout do.
    """
    texts = {folder / name: text for name, text in FILES.items()}
    for file in sorted(folder.rglob("*.py")):
        found = file.read_text(errors="replace")
        if file in texts and _MARK not in found:
            raise UserError(
                f"{file} is there, and not written by `eventbridge init-airflow`. Move it, or name another folder"
            )
        if file not in texts and "eventbridge.orchestrate.dags" in found:
            raise UserError(f"{file} makes the same DAGs. Remove it, or name another folder; nothing was written")
    changed = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    folder.mkdir(parents=True, exist_ok=True)
    for file in changed:
        file.write_text(texts[file])
    return changed
