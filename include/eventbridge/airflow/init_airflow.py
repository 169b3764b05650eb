"""Writes the two files that the DAGs folder of an existing Airflow needs, for `eventbridge init-airflow`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventbridge.errors import UserError

_MARK = "Written by `eventbridge init-airflow`."

# Each text contains the words `airflow` and `dag`, because Airflow silently skips files without them.
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
    """Write the files into a DAGs folder, which is created if it is missing, and return the new or changed files.

    Raises UserError and writes nothing if a file with one of these names has another origin, or if another file, such
    as a DAG file of a checkout, defines the same DAGs.
    """
    texts = {folder / name: text for name, text in FILES.items()}
    for file in sorted(folder.rglob("*.py")):
        found = file.read_text(errors="replace")
        if file in texts and _MARK not in found:
            raise UserError(
                f"{file} was not written by `eventbridge init-airflow`. Move it, or choose another folder; nothing was "
                "written"
            )
        if file not in texts and "eventbridge.airflow.dags" in found:
            raise UserError(f"{file} defines the same DAGs. Remove it, or choose another folder; nothing was written")
    changed = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    folder.mkdir(parents=True, exist_ok=True)
    for file in changed:
        file.write_text(texts[file])
    return changed
