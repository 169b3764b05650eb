"""Settings of locations; a part of `Settings`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from eventbridge.config.rules_place import FolderOrBucket, RulesFrom, in_bucket
from eventbridge.config.setting_types import Folder, Folders, LedgerUrl, Uri
from eventbridge.config.setting_types import setting as _setting


class PlaceSettings(BaseModel):
    """The locations of state, data, buses and rule files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Folder = _setting(Path(".eventbridge"), "folder", "All state of one machine; the next three lie in it.")
    ledger_url: LedgerUrl = _setting(
        lambda data: f"sqlite:///{data['home']}/ledger.sqlite",
        "SQLAlchemy URL",
        "The database of state: SQLite, in a file of one host, or `postgresql://`, on a server, for several.",
        repr=False,  # it may hold a password
    )
    store_uri: Uri = _setting(
        lambda data: f"file://{data['home']}/store",
        "URI",
        "The object store of data: archive, deliveries, audit; a folder, or s3://connection@bucket/prefix.",
        repr=False,  # it may contain a key
    )
    bus_folder: Folder = _setting(
        lambda data: data["home"] / "bus", "folder", "The embedded buses, one SQLite file each; a fast local disk."
    )
    file_target_folders: Folders = _setting(
        lambda data: (data["home"] / "files",),
        "folders",
        "The folders that file targets may write below, separated by colons; a relative path counts from the first.",
        min_length=1,
    )
    rules_folder: FolderOrBucket = _setting(
        Path("include/rules"),
        "folder or URI",
        "The rule files, used as written; or s3://connection@bucket/prefix, from where they are published.",
    )
    rules_from: RulesFrom = _setting(
        lambda data: "published" if in_bucket(data["rules_folder"]) else "files",
        "files or published",
        "What new batches go by: this host's files, or what `eventbridge rules publish` put in force (so of a bucket).",
    )
