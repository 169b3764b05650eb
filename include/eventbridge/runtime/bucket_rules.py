"""Reads rule files from a folder or from a bucket.

A bucket is read only by the process that publishes rules for all hosts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eventbridge.config.connection import Connection
from eventbridge.config.setting_types import is_bucket_prefix
from eventbridge.errors import RuleFileError, UserError
from eventbridge.rules import RuleSet
from eventbridge.rules.files import SUFFIXES
from eventbridge.rules.load import load_rules
from eventbridge.store.open import open_store


def load_rule_files(
    folder: Path | str, connections: Callable[[str], Connection], *, cache: Path | None = None
) -> RuleSet:
    """Return the buses and rules in a folder or under a bucket's prefix, `s3://connection@bucket/prefix`.

    For a folder, `cache` is passed to `load_rules`; for a bucket, it is not used. Raises RuleFileError with all errors
    of the files, and the errors of `rule_folder`.
    """
    with rule_folder(folder, connections) as found:
        return load_rules(found, cache=None if is_bucket_prefix(folder) else cache)


@contextmanager
def rule_folder(folder: Path | str, connections: Callable[[str], Connection]) -> Iterator[Path]:
    """Yield a local folder with the rule files of `folder`, which may be a bucket's prefix.

    For a prefix, the folder has copies, which are removed after the block. A RuleFileError raised in the block names
    the files in the bucket. Hidden files are omitted. Raises UserError if there is no rule file below the prefix, and
    StoreError if a file cannot be read, so that such a failure never removes a rule.
    """
    if not is_bucket_prefix(folder):
        yield Path(folder)
        return
    store = open_store(str(folder), connections)  # a store does not list hidden files
    paths = [path for path in store.list("") if path.endswith(SUFFIXES)]
    if not paths:
        raise UserError(f"There is no rule file below {store.uri}. Put one there whose name ends in .yaml.")
    with tempfile.TemporaryDirectory(prefix="eventbridge-rules-") as copies:
        for path in paths:
            copy = Path(copies, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(store.get(path))
        try:
            yield Path(copies)
        except RuleFileError as error:
            there = f"{store.uri}/"
            found = [replace(each, file=each.file.replace(f"{copies}/", there, 1)) for each in error.errors]
            raise RuleFileError(found) from None
