"""A plug-in: events from the files of a folder, a table of an SQLite database as target, and outputs without names."""

import sqlite3
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from eventbridge.plugins import (
    Message,
    Result,
    Size,
    SourceFields,
    SourceType,
    TargetFields,
    TargetType,
    TransformType,
)


class FolderFields(SourceFields):
    type: Literal["folder"] = "folder"
    folder: str = Field(description="the path of a folder with one event in each file *.json")


class Folder:
    def __init__(self, setup):
        self._folder = Path(setup.source.folder)

    def receive(self, at_most):
        files = sorted(self._folder.glob("*.json"))[:at_most]
        return [Message(body=file.read_bytes(), id=file.name) for file in files]

    def acknowledge(self, receipts):
        for name in receipts:
            (self._folder / name).unlink(missing_ok=True)

    def waiting(self):
        return sum(1 for _ in self._folder.glob("*.json"))


class SqliteFields(TargetFields):
    type: Literal["sqlite"] = "sqlite"
    database: str = Field(description="the path of the database")
    table: str = Field(pattern="^[a-z_]+$", description="a name in lower-case letters, such as orders")
    max_size: Size = Field(65_536, gt=0, description="a size such as 64KiB; larger payloads become dead letters")


class Sqlite:
    max_requests = 500  # in one transaction

    def __init__(self, setup):
        self._fields = setup.target
        self._database = sqlite3.connect(self._fields.database)
        self._database.execute(f"CREATE TABLE IF NOT EXISTS {self._fields.table} (id TEXT PRIMARY KEY, payload JSON)")

    def send(self, requests):
        results = {each.delivery_id: Result.accept() for each in requests}
        for each in requests:
            if len(each.payload) > self._fields.max_size:
                results[each.delivery_id] = Result.reject(f"the payload has {len(each.payload)} bytes")
        rows = [(each.delivery_id, each.payload.decode()) for each in requests if results[each.delivery_id].accepted]
        with self._database:  # a delivery that comes again has the same id
            self._database.executemany(f"INSERT OR IGNORE INTO {self._fields.table} VALUES (?, ?)", rows)
        return results

    def check(self):
        return None  # it could be opened

    def close(self):
        self._database.close()


class RedactSettings(BaseModel):
    names: list[str] = Field(min_length=1, description="the members of data to leave out")


def redact(settings):
    def render(event):
        return {name: value for name, value in event["data"].items() if name not in settings.names}

    return render


FOLDER = SourceType("folder", FolderFields, Folder)
SQLITE = TargetType("sqlite", SqliteFields, Sqlite)
REDACT = TransformType("redact", RedactSettings, redact)
