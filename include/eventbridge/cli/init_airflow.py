"""`eventbridge init-airflow`: make EventBridge's DAGs known to an Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, say, show_json


def init_airflow(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The DAGs folder; default: [core] dags_folder of Airflow.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make FOLDER if it is missing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write two files into Airflow's DAGs folder: one imports all DAGs, one shows mistakes in rule files.

    May be repeated: what is up to date is left alone. A file that this command did not write is never changed.
    """
    from eventbridge.orchestrate.init_airflow import FILES, dags_folder_of_airflow, write_dag_files

    chosen = folder or dags_folder_of_airflow()
    changed = write_dag_files(chosen, create=create or folder is None)  # Airflow's own cannot be mistyped here
    files = [chosen / name for name in FILES]
    if as_json:
        show_json({"folder": str(chosen), "files": [{"file": file.name, "written": file in changed} for file in files]})
        return
    for file in files:
        say(f"{file} {'is written' if file in changed else 'is up to date'}")
