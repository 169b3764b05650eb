"""The detail of a stage's file as JSON: one encoder and one decoder for what the ledger keeps and Spark hands over."""

from __future__ import annotations

import msgspec

from eventbridge.model.landed import LandedRange
from eventbridge.model.routed import RoutedShare, RoutedSlice, SplitSlice, UnroutableEvent
from eventbridge.model.spent import Spent

#: What is known of a file beside its path and rows, told apart by its member `record`; None where nothing is.
FileDetail = LandedRange | RoutedSlice | RoutedShare | SplitSlice | UnroutableEvent | Spent | None

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[FileDetail] = msgspec.json.Decoder(FileDetail)


def encode_detail(detail: FileDetail) -> str:
    """Return a detail as JSON."""
    return _ENCODER.encode(detail).decode()


def decode_detail(text: str) -> FileDetail:
    """Read what `encode_detail` wrote; raises msgspec.DecodeError for anything else."""
    return _DECODER.decode(text)
