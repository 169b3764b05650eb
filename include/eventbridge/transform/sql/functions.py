"""Lists the functions of Spark SQL that an expression may call, and how many arguments each takes.

A function is on the list if its result depends only on its arguments, if it reads and writes nothing else, and if the
arguments or `bounds` bound the size of the result. This excludes functions that call Java, read files, sessions, users,
clocks or random numbers, aggregate or generate rows, process XML, encrypt, or fail on purpose.
"""

from __future__ import annotations

from typing import Final

#: The functions, each with the number of arguments that it takes: `2`, `1-3`, or `1-` without a maximum.
_TEXTS: Final = """
    ascii/1 base64/1 bit_length/1 btrim/1-2 char/1 char_length/1 character_length/1 chr/1 concat/1-
    concat_ws/1- contains/2 crc32/1 decode/2- encode/2 endswith/2 find_in_set/2 format_number/2 format_string/1-
    hash/1- hex/1 initcap/1 instr/2 lcase/1 left/2 len/1 length/1 locate/2-3 lower/1 lpad/2-3 ltrim/1-2 luhn_check/1
    mask/1-5 md5/1 octet_length/1 overlay/3-4 parse_url/2-3 position/2-3 printf/1- regexp/2 regexp_count/2
    regexp_extract/2-3 regexp_extract_all/2-3 regexp_instr/2-3 regexp_like/2 regexp_replace/3-4 regexp_substr/2
    repeat/2 replace/2-3 reverse/1 right/2 rlike/2 rpad/2-3 rtrim/1-2 sha/1 sha1/1 sha2/2 soundex/1 space/1 split/2-3
    split_part/3 startswith/2 str_to_map/1-3 substr/2-3 substring/2-3 substring_index/3 to_binary/1-2 to_char/2
    to_varchar/2 translate/3 trim/1-2 try_parse_url/2-3 try_to_binary/1-2 try_url_decode/1 ucase/1 unbase64/1 unhex/1
    upper/1 url_decode/1 url_encode/1 xxhash64/1-
"""
_NUMBERS: Final = """
    abs/1 acos/1 acosh/1 asin/1 asinh/1 atan/1 atan2/2 atanh/1 bigint/1 bin/1 binary/1 bit_count/1 bit_get/2 boolean/1
    bround/1-2 cbrt/1 ceil/1-2 ceiling/1-2 conv/3 cos/1 cosh/1 cot/1 csc/1 decimal/1 degrees/1 double/1 e/0 exp/1
    expm1/1 factorial/1 float/1 floor/1-2 getbit/2 greatest/2- hypot/2 int/1 isnan/1 least/2- ln/1 log/1-2 log10/1
    log1p/1 log2/1 mod/2 nanvl/2 negative/1 pi/0 pmod/2 positive/1 pow/2 power/2 radians/1 rint/1 round/1-2 sec/1
    shiftleft/2 shiftright/2 shiftrightunsigned/2 sign/1 signum/1 sin/1 sinh/1 smallint/1 sqrt/1 string/1 tan/1 tanh/1
    tinyint/1 to_number/2 try_add/2 try_divide/2 try_mod/2 try_multiply/2 try_subtract/2 try_to_number/2 width_bucket/4
"""
_TIMES: Final = """
    add_months/2 convert_timezone/2-3 date/1 date_add/2 date_diff/2-3 date_format/2 date_from_unix_date/1 date_part/2
    date_sub/2 date_trunc/2 dateadd/2-3 datediff/2-3 datepart/2 day/1 dayname/1 dayofmonth/1 dayofweek/1 dayofyear/1
    from_unixtime/1-2 from_utc_timestamp/2 hour/1 last_day/1 make_date/3 make_dt_interval/0-4 make_interval/0-7
    make_timestamp/6-7 make_timestamp_ltz/6-7 make_timestamp_ntz/6 make_ym_interval/0-2 minute/1 month/1 monthname/1
    months_between/2-3 next_day/2 quarter/1 second/1 timestamp/1 timestamp_micros/1 timestamp_millis/1
    timestamp_seconds/1 timestampadd/3 timestampdiff/3 to_date/1-2 to_timestamp/1-2 to_timestamp_ltz/1-2
    to_timestamp_ntz/1-2 to_unix_timestamp/1-2 to_utc_timestamp/2 trunc/2 try_to_date/1-2 try_to_timestamp/1-2
    unix_date/1 unix_micros/1 unix_millis/1 unix_seconds/1 unix_timestamp/1-2 weekday/1 weekofyear/1 year/1
"""
_CONDITIONS: Final = """
    coalesce/1- equal_null/2 if/3 ifnull/2 isnotnull/1 isnull/1 nullif/2 nullifzero/1 nvl/2 nvl2/3 zeroifnull/1
"""
_DOCUMENTS: Final = """
    get_json_object/2 is_variant_null/1 json_array_length/1 json_object_keys/1 parse_json/1
    to_json/1 to_variant_object/1 try_parse_json/1 try_variant_get/2-3 variant_get/2-3
"""
_COLLECTIONS: Final = """
    aggregate/3-4 array/0- array_append/2 array_compact/1 array_contains/2 array_distinct/1 array_except/2
    array_insert/3 array_intersect/2 array_join/2-3 array_max/1 array_min/1 array_position/2 array_prepend/2
    array_remove/2 array_repeat/2 array_size/1 array_sort/1-2 array_union/2 arrays_overlap/2 arrays_zip/1- cardinality/1
    element_at/2 exists/2 filter/2 flatten/1 forall/2 get/2 map/0- map_concat/0- map_contains_key/2 map_entries/1
    map_filter/2 map_from_arrays/2 map_from_entries/1 map_keys/1 map_values/1 map_zip_with/3 named_struct/2- reduce/3-4
    sequence/2-3 size/1 slice/3 sort_array/1-2 struct/1- transform/2 transform_keys/2 transform_values/2
    try_element_at/2 zip_with/3
"""


def words(text: str) -> frozenset[str]:
    """Return the words of a string; this package writes long lists of words as one string."""
    return frozenset(text.split())


def _read(*lists: str) -> dict[str, tuple[int, int | None]]:
    found: dict[str, tuple[int, int | None]] = {}
    for entry in " ".join(lists).split():
        name, _, numbers = entry.partition("/")
        least, several, most = numbers.partition("-")
        found[name] = (int(least), int(most) if most else None if several else int(least))
    return found


#: The minimum and maximum number of arguments of each function; the maximum is None if it is unlimited.
FUNCTIONS: Final = _read(_TEXTS, _NUMBERS, _TIMES, _CONDITIONS, _DOCUMENTS, _COLLECTIONS)

#: Functions that return a number, or an interval if an argument is one.
ARITHMETIC: Final = words("abs negative positive try_add try_divide try_mod try_multiply try_subtract")
#: Functions that always return one number, truth value, date or timestamp.
OF_ONE_NUMBER: Final = (
    frozenset(_read(_NUMBERS, _TIMES))
    - ARITHMETIC
    - words(
        """
        bin binary conv date_format from_unixtime greatest least make_dt_interval make_interval make_ym_interval string
        """
    )
) | words(
    """
    array_contains array_position array_size arrays_overlap ascii bit_length cardinality char_length character_length
    contains crc32 endswith equal_null find_in_set hash instr is_variant_null isnotnull isnull json_array_length len
    length locate luhn_check map_contains_key octet_length position regexp regexp_count regexp_instr regexp_like rlike
    size startswith xxhash64
    """
)

#: Functions whose arguments may be lambdas, such as x -> x + 1.
HIGHER_ORDER: Final = words(
    """
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
    zip_with
    """
)

#: Functions whose first argument, if they are given three, is a unit without quotes.
WITH_UNIT: Final = frozenset({"dateadd", "datediff", "date_diff", "timestampadd", "timestampdiff"})
UNITS: Final = words("year quarter month week day dayofyear hour minute second millisecond microsecond")

#: Replacements for some functions of Spark SQL that are not on the list.
INSTEAD: Final = {
    **dict.fromkeys(("now", "current_timestamp", "current_date", "localtimestamp"), "Use time, the event's own"),
    **dict.fromkeys(("rand", "random", "randn", "uuid", "shuffle"), "Use hash(id), which is the same at every retry"),
    **dict.fromkeys(("from_json", "json_tuple"), "Use parse_json(text):member::type"),
    **dict.fromkeys(("count", "sum", "avg", "max", "min"), "Use aggregate, array_max or array_min over an array"),
    **dict.fromkeys(("explode", "inline", "stack", "posexplode"), "Use transform or filter over the array"),
    "schema_of_variant": "Use json_object_keys(data:member::string)",
    **dict.fromkeys(("raise_error", "assert_true"), "Write a condition that is false, or missing: error"),
}
