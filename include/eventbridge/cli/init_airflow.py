"""`eventbridge init-airflow`: add EventBridge's DAGs to an Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventbridge.cli.output import JsonOption, print_line, show_json
from eventbridge.errors import UserError


def init_airflow(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The DAGs folder; default: [core] dags_folder of Airflow.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the folder if it is missing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write two files into Airflow's DAGs folder: one imports all DAGs, the other shows errors in rule files.

    You may repeat it: files that are up to date stay as they are. It never changes a file that it did not write.
    """
    from eventbridge.airflow.init_airflow import FILES, dags_folder_of_airflow, write_dag_files

    chosen = folder or dags_folder_of_airflow()
    created = not chosen.is_dir()
    if created and not create:
        raise UserError(_missing(chosen, named=folder is not None))
    changed = write_dag_files(chosen)
    files = [chosen / name for name in FILES]
    if as_json:
        show_json(
            {
                "folder": str(chosen),
                "created": created,
                "files": [{"file": file.name, "written": file in changed} for file in files],
            }
        )
        return
    if created:
        print_line(f"created {chosen}")
    for file in files:
        print_line(f"wrote {file}" if file in changed else f"{file} is up to date")


def _missing(folder: Path, *, named: bool) -> str:
    if named:
        return (
            f"the folder {folder} does not exist. Correct the name, or pass --create: "
            "Airflow reads DAGs from the folder that `[core] dags_folder` names"
        )
    return (
        f"Airflow's `[core] dags_folder` is {folder}, which does not exist. If your Airflow is elsewhere, set "
        "AIRFLOW_HOME or name the folder; if the folder is right, pass --create"
    )
