"""Rule files that lie in a bucket: read as those of a folder, by whoever publishes them for all hosts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from eventbridge.config.connection import Connection
from eventbridge.errors import RuleFileError, UserError
from eventbridge.rule import RuleSet, load_rules
from eventbridge.rule.load import SUFFIXES
from eventbridge.store.open import open_store

#: A bucket's prefix begins like this: `s3://connection@bucket/prefix`.
BUCKET_SCHEME = "s3://"


def load_bucket_rules(uri: str, connections: Callable[[str], Connection]) -> RuleSet:
    """Return the buses and rules of every `.yaml` and `.yml` file below a prefix, hidden ones left out.

    Raises RuleFileError with all mistakes, their files named below `uri`, UserError where no file lies there, and
    StoreError where the bucket cannot be read: what cannot be read never removes a rule.
    """
    store = open_store(uri, connections)  # it lists no hidden files
    paths = [path for path in store.list("") if path.endswith(SUFFIXES)]
    if not paths:
        raise UserError(f"No rule file lies below {store.uri}. Put one there whose name ends in .yaml.")
    with tempfile.TemporaryDirectory(prefix="eventbridge-rules-") as folder:
        for path in paths:
            copy = Path(folder, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(store.get(path))
        try:
            return load_rules(Path(folder))
        except RuleFileError as error:
            there = f"{store.uri}/"
            found = [replace(each, file=each.file.replace(f"{folder}/", there, 1)) for each in error.mistakes]
            raise RuleFileError(found) from None
