"""Parses media types: the kind of data, and the codec of its text."""

from __future__ import annotations

import re
from encodings.aliases import aliases
from typing import Final

# JSON format of CloudEvents, section 3.1.1: a subtype json, or one that ends with +json.
_JSON = re.compile(r"[^/;]+/(?:[^/;]*\+)?json", re.IGNORECASE)
# RFC 9110, 5.6.6: a parameter's value is a token or a quoted string.
_PARAMETER = re.compile(r'[ \t]*;[ \t]*(?:([^=;"\s]+)=("(?:[^"\\]|\\.)*"|[^;"\s]*))?[ \t]*', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

# Python has more codecs than these: some are not encodings of text (rot13, zlib), some take quadratic time (idna,
# punycode), and any name makes it search for a module.
_CODECS: Final = frozenset(
    re.findall(
        "[a-z0-9_]+",
        """
        ascii big5 big5hkscs cp037 cp273 cp424 cp437 cp500 cp775 cp850 cp852 cp855 cp857 cp858 cp860 cp861 cp862
        cp863 cp864 cp865 cp866 cp869 cp932 cp949 cp950 cp1006 cp1026 cp1125 cp1140 cp1250 cp1251 cp1252 cp1253
        cp1254 cp1255 cp1256 cp1257 cp1258 euc_jis_2004 euc_jisx0213 euc_jp euc_kr gb18030 gb2312 gbk hp_roman8 hz
        iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr iso8859_2
        iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13
        iso8859_14 iso8859_15 iso8859_16 johab koi8_r koi8_u kz1048 latin_1 mac_cyrillic mac_greek mac_iceland
        mac_latin2 mac_roman mac_turkish ptcp154 shift_jis shift_jis_2004 shift_jisx0213 tis_620 utf_16 utf_16_be
        utf_16_le utf_32 utf_32_be utf_32_le utf_8
        """,
    )
)
_CODEC_OF: Final = {name: codec for name, codec in aliases.items() if codec in _CODECS} | {
    codec: codec for codec in _CODECS
}
#: Codecs that give the same bytes after decoding and encoding.
_REVERSIBLE: Final = frozenset(("ascii", "latin_1", "utf_8"))


def kind_of(media_type: str) -> str:
    """Return a media type in lower case and without parameters; "" for none."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether data of a media type is JSON; its charset does not matter, JSON is UTF-8 (RFC 8259, 8.1)."""
    return _JSON.fullmatch(kind_of(media_type)) is not None


def charset_of(media_type: str) -> str:
    """Return the parameter `charset` of a media type as written; "" without one."""
    position = media_type.find(";")
    while position >= 0 and (found := _PARAMETER.match(media_type, position)):
        if (found[1] or "").lower() == "charset":
            value = found[2]
            return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
        position = found.end() if found.end() < len(media_type) else -1
    return ""


def codec_of(media_type: str) -> str | None:
    """Return Python's name of the text encoding: UTF-8 without a charset, None for an unknown charset."""
    charset = charset_of(media_type)
    return _CODEC_OF.get(re.sub("[^a-z0-9]+", "_", charset.lower())) if charset else "utf_8"


def text_of(body: bytes, codec: str) -> str | None:
    """Return bytes as text; None if that text, encoded again, gives other bytes. Raises UnicodeDecodeError."""
    text = body.decode(codec)
    if codec in _REVERSIBLE:
        return text
    try:
        return text if text.encode(codec) == body else None
    except UnicodeEncodeError:
        return None
