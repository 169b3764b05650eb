"""The detail of a stage's file as JSON: one encoder and one decoder for the ledger and for Spark's results."""

from __future__ import annotations

import msgspec

from eventbridge.model.landed import LandedRange
from eventbridge.model.routed import RoutedShare, RoutedSlice, SplitSlice, UnroutableEvent
from eventbridge.model.spent import Spent

#: The detail of a file beside its path and rows; its member `record` names the type. None: there is none.
FileDetail = LandedRange | RoutedSlice | RoutedShare | SplitSlice | UnroutableEvent | Spent | None

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[FileDetail] = msgspec.json.Decoder(FileDetail)


def encode_detail(detail: FileDetail) -> str:
    """Return a detail as JSON."""
    return _ENCODER.encode(detail).decode()


def decode_detail(text: str) -> FileDetail:
    """Read the text of `encode_detail`; raises msgspec.DecodeError for any other text."""
    return _DECODER.decode(text)
