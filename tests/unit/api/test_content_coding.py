"""A body in a content coding is decompressed up to the limit, or refused with an explanation."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from eventbridge.api.bodies import MAX_BYTES, check_content_coding, unpacked
from eventbridge.api.refusal import CallRefused


def coded(*codings: str) -> Headers:
    """Return headers with these content codings, each in a header of its own."""
    return Headers(raw=[(b"content-encoding", each.encode()) for each in codings])


@given(st.lists(st.binary(max_size=100_000), min_size=1, max_size=4))
def test_a_compressed_body_is_decompressed(parts: list[bytes]) -> None:
    """Gzip, also with several members, and deflate, which is the format of zlib."""
    whole = b"".join(parts)

    assert unpacked(coded("gzip"), b"".join(map(gzip.compress, parts))) == whole
    assert unpacked(coded("X-GZip"), gzip.compress(whole, mtime=0)) == whole
    assert unpacked(coded("deflate"), zlib.compress(whole)) == whole


def test_a_body_without_a_coding_is_unchanged() -> None:
    """`identity` is no coding; an empty body is empty in every coding."""
    packed = gzip.compress(b"a", mtime=0)

    assert unpacked(coded(), packed) == packed
    assert unpacked(coded("identity", ""), packed) == packed
    assert unpacked(coded("gzip"), b"") == b""


@pytest.mark.parametrize("codings", [("br",), ("zstd",), ("gzip, gzip",), ("deflate", "gzip"), ("aws-chunked",)])
def test_other_codings_are_refused(codings: tuple[str, ...]) -> None:
    """415, with the supported codings in Accept-Encoding, before the body is read."""
    with pytest.raises(CallRefused) as refused:
        check_content_coding(coded(*codings))

    assert refused.value.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    assert refused.value.headers == {"accept-encoding": "gzip, deflate"}


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_decompression_bomb_is_refused(coding: str) -> None:
    """413; of a body that decompresses to 1 GiB, little more than the limit is ever in memory."""
    packer = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}[coding])
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1_024)) + packer.flush()
    assert len(bomb) < 2 << 20

    tracemalloc.start()
    with pytest.raises(CallRefused, match="decompresses to more than 8,388,608 bytes") as refused:
        unpacked(coded(coding), bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert peak < 4 * MAX_BYTES


def test_a_body_of_the_largest_size_is_accepted() -> None:
    """The limit applies to the decompressed size, to the byte."""
    assert len(unpacked(coded("gzip"), gzip.compress(bytes(MAX_BYTES), mtime=0))) == MAX_BYTES
    with pytest.raises(CallRefused):
        unpacked(coded("gzip"), gzip.compress(bytes(MAX_BYTES + 1), mtime=0))


@pytest.mark.parametrize(
    ("coding", "content", "said"),
    [
        ("gzip", b"{}", "incorrect header check"),
        ("deflate", gzip.compress(b"a", mtime=0), "incorrect header check"),
        ("gzip", gzip.compress(b"a" * 1_000, mtime=0)[:-1], "it ends early"),
        ("gzip", gzip.compress(b"a", mtime=0) + b"{}", "incorrect header check"),
        ("deflate", zlib.compress(b"a") * 2, "data follows its end"),
        ("gzip", gzip.compress(b"", mtime=0) * 1_001, "data follows its end"),
        ("gzip", gzip.compress(b"a", mtime=0)[:-8] + bytes(8), "incorrect data check"),
    ],
)
def test_a_body_that_is_not_in_its_coding_is_refused(coding: str, content: bytes, said: str) -> None:
    """400: truncated, damaged, followed by other data, or with too many members."""
    with pytest.raises(CallRefused, match=f"is not valid {coding}, .*{said}") as refused:
        unpacked(coded(coding), content)

    assert refused.value.status == HTTPStatus.BAD_REQUEST
