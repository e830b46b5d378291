"""Cases for Kafka's own transforms and predicates: a class, its configuration, and records.

``java/Answers.java`` answers them, and ``answers.json`` stores cases and answers.
"""

from __future__ import annotations

from typing import Any, Final

Case = dict[str, Any]


def _fields(*fields: tuple[str, Any]) -> dict[str, Any]:
    """Return a structure in the schema of Connect's JSON; every field is optional."""
    return {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": name, "optional": True, **(kind if isinstance(kind, dict) else {"type": kind})}
            for name, kind in fields
        ],
    }


def _case(name: str, config: dict[str, str], *records: dict[str, Any]) -> Case:
    return {"class": name, "config": config, "records": list(records)}


def _value(value: Any, schema: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {"value": value, **({"valueSchema": schema} if schema else {}), **others}


def _key(key: Any, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"key": key, **({"keySchema": schema} if schema else {}), "value": {"a": 1}}


_ADDRESS: Final = _fields(("street", "string"), ("zip", "int32"))
_PERSON: Final = _fields(("name", "string"), ("age", "int32"), ("address", _ADDRESS), ("note", "string"))
_ANNE: Final = {"name": "Anne", "age": 30, "address": {"street": "Elm", "zip": 12345}, "note": None}
_TAGS: Final = _fields(("tags", {"type": "array", "items": {"type": "string"}}))
_NUMBERS: Final = _fields(
    ("i8", "int8"),
    ("i16", "int16"),
    ("i32", "int32"),
    ("i64", "int64"),
    ("f32", "float"),
    ("f64", "double"),
    ("b", "boolean"),
    ("s", "string"),
)
_ONES: Final = {"i8": 1, "i16": 300, "i32": 70000, "i64": 5000000000, "f32": 1.5, "f64": -2.75, "b": True}
_STAMP: Final = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
_DAY: Final = {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1}
_CLOCK: Final = {"type": "int32", "name": "org.apache.kafka.connect.data.Time", "version": 1}
_TIMES: Final = _fields(
    ("at", _STAMP), ("day", _DAY), ("clock", _CLOCK), ("unix", "int64"), ("text", "string")
)
_MOMENT: Final = 1700000001234
_OLD: Final = -11676096000000  # 1600-01-01: Java uses another calendar before 1582

_PLAIN: Final = (_value(_ANNE), _value(None), _value("text"), _value([1]), _value({}))
_TYPED: Final = (
    *(_value(_ANNE, _PERSON), _value(None, _PERSON), _value("text", {"type": "string"})),
    _value(None, {"type": "string", "optional": True}),
)


def _insert() -> list[Case]:
    all_fields = {
        "topic.field": "topic",
        "partition.field": "partition",
        "offset.field": "offset?",
        "timestamp.field": "at!",
        "static.field": "name",
        "static.value": "fixed",
    }
    stamped = [{**record, "timestamp": _MOMENT} for record in (*_PLAIN, *_TYPED[1:])]
    person = _value({"age": 3}, _fields(("age", "int32")), timestamp=_MOMENT)
    return [
        _case("InsertField$Value", all_fields, *stamped, person),
        _case("InsertField$Key", all_fields, _key({"id": 1}), _key(None), _key(5)),
        _case("InsertField$Value", {"timestamp.field": "at"}, *_PLAIN, *_TYPED),
        _case("InsertField$Value", {"static.field": "source", "static.value": "a"}, *_PLAIN, *_TYPED),
        _case("InsertField$Value", {"static.field": "source"}, _value({"a": 1})),
        _case("InsertField$Value", {"static.value": "source"}, _value({"a": 1})),
        _case("InsertField$Value", {}, _value({"a": 1})),
    ]


def _replace() -> list[Case]:
    configs: list[dict[str, str]] = [
        {"exclude": "age, nothing"},
        {"include": "name,address"},
        {"include": "name,age", "exclude": "age"},
        {"renames": "name:full,age:years"},
        {"renames": "name:full", "include": "full,age"},
        {"renames": "age:name", "exclude": "name"},
        {},
        {"renames": "name"},
        {"renames": "name:a:b"},
    ]
    cases = [_case("ReplaceField$Value", config, *_PLAIN, *_TYPED) for config in configs]
    return [
        *cases,
        _case("ReplaceField$Key", {"exclude": "b"}, _key({"a": 1, "b": 2}), _key(None), _key("k")),
    ]


def _mask() -> list[Case]:
    everything = {**_ONES, "s": "secret", "l": [1, 2], "m": {"a": 1}, "n": None}
    names = ",".join([*everything, "missing"])
    typed = _value({**_ONES, "s": "secret"}, _NUMBERS)
    empty = _value(dict.fromkeys([*_ONES, "s"]), _NUMBERS)
    return [
        _case("MaskField$Value", {"fields": names}, _value(everything), typed, empty, *_PLAIN, *_TYPED[1:]),
        _case(
            "MaskField$Value", {"fields": "s,missing", "replacement": "xxx"}, _value(everything), typed, empty
        ),
        _case("MaskField$Value", {"fields": "i64,i32,i8", "replacement": "42"}, _value(everything), typed),
        _case("MaskField$Value", {"fields": "f32,f64", "replacement": "4.5"}, _value(everything), typed),
        _case("MaskField$Value", {"fields": "i64", "replacement": "4.5"}, _value(everything), typed),
        _case("MaskField$Value", {"fields": "i8", "replacement": "300"}, _value({"i8": 1}), typed),
        _case("MaskField$Value", {"fields": "b", "replacement": "true"}, _value(everything), typed),
        _case("MaskField$Value", {"fields": "l", "replacement": "x"}, _value(everything)),
        _case("MaskField$Value", {"fields": "tags"}, _value({"tags": ["a"]}, _TAGS)),
        _case("MaskField$Value", {"fields": "address"}, _value(_ANNE), _value(_ANNE, _PERSON)),
        _case("MaskField$Value", {"fields": "at,day,clock"}, _value({"at": 5, "day": 5, "clock": 5}, _TIMES)),
        _case("MaskField$Value", {"fields": "at", "replacement": "5"}, _value({"at": 5}, _TIMES)),
        _case("MaskField$Key", {"fields": "id"}, _key({"id": 7}), _key(None)),
        _case("MaskField$Value", {}),
        _case("MaskField$Value", {"fields": ""}),
        _case("MaskField$Value", {"fields": "a", "replacement": ""}),
    ]


def _extract() -> list[Case]:
    nested = {"field.syntax.version": "V2"}
    dotted = {"a.b": 1, "a": {"b": 2, "c.d": 3}, "x`y": 4}
    return [
        _case("ExtractField$Value", {"field": "name"}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "missing"}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "address.zip"}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "address.zip", **nested}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "address.zip.x", **nested}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "address.no", **nested}, *_PLAIN, *_TYPED),
        _case("ExtractField$Value", {"field": "address.zip", **nested}, _value({"address": None}, _PERSON)),
        _case("ExtractField$Value", {"field": "a.b"}, _value(dotted)),
        _case("ExtractField$Value", {"field": "a.b", **nested}, _value(dotted)),
        _case("ExtractField$Value", {"field": "`a.b`", **nested}, _value(dotted)),
        _case("ExtractField$Value", {"field": "a.`c.d`", **nested}, _value(dotted)),
        _case("ExtractField$Value", {"field": "x`y", **nested}, _value(dotted)),
        _case("ExtractField$Value", {"field": "`x`y`", **nested}, _value(dotted)),
        _case("ExtractField$Value", {"field": "`x\\`.y`", **nested}, _value({"x`.y": 5})),
        _case("ExtractField$Value", {"field": "a.", **nested}, _value({"a": {"": 1}})),
        _case("ExtractField$Value", {"field": "`a", **nested}),
        _case("ExtractField$Value", {"field": "a", "field.syntax.version": "V3"}),
        _case("ExtractField$Value", {}),
        _case("ExtractField$Key", {"field": "id"}, _key({"id": 7}), _key(None), _key("k")),
        _case("ExtractField$Key", {"field": "id"}, _key({"id": 7}, _fields(("id", "int32")))),
    ]


def _value_to_key() -> list[Case]:
    return [
        _case("ValueToKey", {"fields": "name, age"}, *_PLAIN, *_TYPED),
        _case("ValueToKey", {"fields": "missing"}, *_PLAIN, *_TYPED),
        _case("ValueToKey", {"fields": "address"}, _value(_ANNE, _PERSON, key="k")),
        _case("ValueToKey", {}),
        _case("ValueToKey", {"fields": ""}),
    ]


def _flatten() -> list[Case]:
    deep = _fields(("a", _fields(("b", _fields(("c", "int32"))), ("d", "string"))))
    none_last = {"a": {"b": 1}, "z": None}
    records = (_value({"a": {"b": {"c": 1}, "d": "x"}}), _value({"a": {"b": {"c": 1}, "d": "x"}}, deep))
    rest = (_value(none_last), _value({"l": [1]}), _value({"a": {}}), _value({"a": None}))
    absent = (_value({"a": {"b": None, "d": "x"}}, deep), _value({"a": None}, deep))
    return [
        _case("Flatten$Value", {}, *records, *rest, *absent, *_PLAIN, *_TYPED),
        _case("Flatten$Value", {"delimiter": "_"}, *records),
        _case("Flatten$Value", {"delimiter": ""}, *records),
        _case("Flatten$Value", {}, _value({"tags": ["a"]}, _TAGS), _value({"at": 5}, _TIMES)),
        _case("Flatten$Key", {}, _key({"a": {"b": 1}}), _key(None)),
    ]


def _hoist() -> list[Case]:
    return [
        _case("HoistField$Value", {"field": "inner"}, *_PLAIN, *_TYPED),
        _case("HoistField$Key", {"field": "id"}, _key("k"), _key(None), _key(5, {"type": "int32"})),
        _case("HoistField$Value", {}),
    ]


_TARGETS: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


def _cast() -> list[Case]:
    texts = {
        "n": "12",
        "big": "300",
        "f": "1.5",
        "t": "TRUE",
        "x": "abc",
        "p": "+7",
        "sp": " 7 ",
        "hex": "0x1p3",
    }
    cases = []
    for target in _TARGETS:
        names = [*_ONES, "s"]
        config = {"spec": ",".join(f"{name}:{target}" for name in names)}
        numbers = {**_ONES, "s": "7"}
        large = {"i64": 2**63 - 1, "f64": 1e20, "f32": -1e30, "i32": -129, "b": False, "s": "-8"}
        cases.append(_case("Cast$Value", config, _value(numbers), _value(large), *_PLAIN))
        cases.append(_case("Cast$Value", config, _value(numbers, _NUMBERS), _value(large, _NUMBERS), *_TYPED))
        given = {**texts, "l": [1], "m": {"a": 1}}
        cases += [_case("Cast$Value", {"spec": f"{name}:{target}"}, _value(given)) for name in given]
        cases.append(
            _case("Cast$Value", {"spec": target}, _value(12), _value("12"), _value(None), _value({}))
        )
        cases.append(_case("Cast$Value", {"spec": target}, _value(True), _value(-1.5), _value([1])))
        typed = (_value(12, {"type": "int32"}), _value("1", {"type": "string"}))
        cases.append(_case("Cast$Value", {"spec": target}, *typed))
    floats = [0.1, 1e7, 1.0, 123456789.0, 1e-4, 0.001, 1.5e300, 9999999.0, 12345678.9]
    cases.append(_case("Cast$Value", {"spec": "string"}, *(_value(number) for number in floats)))
    singles = [0.1, 16777216.0, 1e10, 1.1e-5, 3.4e38]
    cases.append(_case("Cast$Value", {"spec": "string"}, *(_value(n, {"type": "float"}) for n in singles)))
    times = _value({"at": _MOMENT, "day": 19000, "clock": 3723004, "unix": 5, "text": "x"}, _TIMES)
    cases.extend(
        _case("Cast$Value", {"spec": f"at:{target},day:{target},clock:{target}"}, times)
        for target in ("int32", "int64", "string", "boolean", "float64")
    )
    refused = ("", "a:struct", "a:int", "int32,b:string", "a:b:c", "struct")
    cases.extend(_case("Cast$Value", {"spec": spec}) for spec in refused)
    return [*cases, _case("Cast$Key", {"spec": "string"}, _key(5), _key(None)), _case("Cast$Value", {})]


def _timestamps() -> list[Case]:
    cases = []
    text = "2023-11-14T22:13:21.234Z"
    times = {"at": _MOMENT, "day": 19675, "clock": 3723004, "unix": _MOMENT, "text": text}
    pattern = "yyyy-MM-dd'T'HH:mm:ss.SSSX"
    for target in ("string", "unix", "Date", "Time", "Timestamp"):
        for name in times:
            config = {"field": name, "target.type": target, "format": pattern}
            typed = (_value(times, _TIMES), _value(dict.fromkeys(times), _TIMES), _value(None, _TIMES))
            cases.append(_case("TimestampConverter$Value", config, *typed))
        config = {"target.type": target, "format": pattern}
        plain = (_value(_MOMENT), _value(text), _value(None), _value(1.5), _value("no"), _value(-1))
        cases.append(_case("TimestampConverter$Value", config, *plain))
        config = {**config, "field": "unix"}
        plain = (_value(times), _value({}), _value({"unix": None}), _value("text"), _value(None))
        cases.append(_case("TimestampConverter$Value", config, *plain))
    for precision in ("seconds", "milliseconds", "microseconds", "nanoseconds"):
        unix = {"unix.precision": precision}
        to_unix = {"target.type": "unix", "format": pattern, **unix}
        cases.append(_case("TimestampConverter$Value", to_unix, _value(text), _value(_MOMENT)))
        to_text = {"target.type": "string", "format": pattern, **unix}
        cases.append(_case("TimestampConverter$Value", to_text, _value(_MOMENT), _value(-1500)))
    for pattern, sample in _PATTERNS:
        to_text = {"target.type": "string", "format": pattern}
        moments = (_MOMENT, 0, _OLD, 951782400000, 1704067199999)
        cases.append(_case("TimestampConverter$Value", to_text, *map(_value, moments)))
        to_unix = {"target.type": "unix", "format": pattern}
        shorter = sample[:-1] if pattern.startswith("y") else sample[1:]
        samples = (sample, f"{sample} and more", shorter, "", f" {sample}")
        cases.append(_case("TimestampConverter$Value", to_unix, *map(_value, samples)))
    keyed = {"target.type": "string", "format": "yyyy"}
    return [
        *cases,
        _case("TimestampConverter$Key", keyed, _key(_MOMENT), _key(None)),
        _case("TimestampConverter$Value", {"target.type": "unix"}, _value("2020"), _value(5)),
        _case("TimestampConverter$Value", {"target.type": "string"}),
        _case("TimestampConverter$Value", {"target.type": "string", "format": "bad"}),
        _case("TimestampConverter$Value", {"target.type": "text"}),
        _case("TimestampConverter$Value", {}),
        _case("TimestampConverter$Value", {"target.type": "unix", "unix.precision": "days"}),
    ]


_PATTERNS: Final = (
    ("yyyy-MM-dd", "2024-02-29"),
    ("yyyy-MM-dd HH:mm:ss", "2024-02-29 23:59:58"),
    ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-29 23:59:58.007"),
    ("yyyy-MM-dd'T'HH:mm:ss'Z'", "2024-02-29T23:59:58Z"),
    ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-02-29T23:59:58+0130"),
    ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T23:59:58-05:00"),
    ("dd/MM/yyyy", "31/12/1999"),
    ("yyyyMMddHHmmss", "20240229235958"),
    ("yy-M-d H:m:s", "24-2-9 3:4:5"),
    ("MMM dd, yyyy hh:mm:ss a", "Feb 29, 2024 11:59:58 PM"),
    ("EEE, d MMMM yyyy", "Thu, 29 February 2024"),
    ("yyyy 'o''clock' kk", "2024 o'clock 24"),
    ("yyyy-DDD", "2024-060"),
)


def _headers() -> list[Case]:
    marked = {"value": {"a": 1, "b": "x"}, "headers": [["h", "1"], ["g", "2"], ["h", "3"]]}
    fields = _fields(("a", "int32"), ("b", "string"))
    typed = {**marked, "valueSchema": fields}
    values = ("text", "5", "true", "1.5", "", "null", "[1,2]", '{"a":1}', "2020-01-01", " x ", "a,b", '"q"')
    return [
        *(
            _case("InsertHeader", {"header": "n", "value.literal": value}, marked, _value(None))
            for value in values
        ),
        _case("InsertHeader", {"header": "n"}),
        _case("InsertHeader", {"value.literal": "n"}),
        _case("DropHeaders", {"headers": "h,x"}, marked, _value(None)),
        _case("DropHeaders", {}),
        _case("DropHeaders", {"headers": ""}),
        *(
            _case(
                "HeaderFrom$Value", {"fields": "a,b", "headers": "x,h", "operation": operation}, marked, typed
            )
            for operation in ("move", "copy")
        ),
        _case(
            "HeaderFrom$Value", {"fields": "z", "headers": "x", "operation": "copy"}, marked, *_PLAIN, *_TYPED
        ),
        _case(
            "HeaderFrom$Value",
            {"fields": "v", "headers": "x", "operation": "move"},
            *(_value({"v": value}) for value in (True, 1.5, [1, "a"], {"k": 1}, None, 'say "x"', "")),
        ),
        _case(
            "HeaderFrom$Key", {"fields": "a", "headers": "x", "operation": "move"}, _key({"a": 1}), _key(None)
        ),
        _case("HeaderFrom$Value", {"fields": "a", "headers": "x,y", "operation": "move"}),
        _case("HeaderFrom$Value", {"fields": "a", "headers": "x", "operation": "drop"}),
        _case("HeaderFrom$Value", {"fields": "a", "headers": "x"}),
    ]


def _others() -> list[Case]:
    marked = {"value": {"a": 1}, "headers": [["h", "1"]], "topic": "orders"}
    return [
        _case("Filter", {}, _value({"a": 1}), _value(None)),
        _case("SetSchemaMetadata$Value", {"schema.name": "n", "schema.version": "2"}, *_TYPED, _value(None)),
        _case("SetSchemaMetadata$Value", {"schema.version": "x"}),
        _case("SetSchemaMetadata$Value", {}, _value(1)),
        _case("SetSchemaMetadata$Key", {"schema.name": "n"}, _key({"a": 1}), _key(None)),
        _case("DropHeaders", {"headers": "h"}, marked),
        _case("predicates.RecordIsTombstone", {}, _value(None), _value({}), _value(None, _PERSON)),
        *(
            _case("predicates.TopicNameMatches", {"pattern": pattern}, marked, _value(1))
            for pattern in ("orders", "ord", "o.*", "(?i)ORDERS", ".*", "t|orders", "[o-s]+")
        ),
        _case("predicates.TopicNameMatches", {"pattern": "("}),
        _case("predicates.TopicNameMatches", {}),
        _case("predicates.HasHeaderKey", {"name": "h"}, marked, _value(1)),
        _case("predicates.HasHeaderKey", {}),
        _case("predicates.HasHeaderKey", {"name": ""}),
    ]


# -- values with a schema of every kind, as Avro and JSON with an envelope give them -----------------

_DECIMAL: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "20"},
}
_LINE: Final = _fields(("sku", "string"), ("n", "int32"))
_ORDER: Final = _fields(
    ("id", "int64"),
    ("small", "int8"),
    ("price", _DECIMAL),
    ("raw", "bytes"),
    ("single", "float"),
    ("paid", "boolean"),
    ("at", _STAMP),
    ("day", _DAY),
    ("clock", _CLOCK),
    ("lines", {"type": "array", "items": {**_LINE, "optional": True}}),
    ("tags", {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32", "optional": True}}),
    ("to", _fields(("name", "string"), ("home", _ADDRESS))),
)
_BOOKED: Final = {
    "id": 7,
    "small": -128,
    "price": "BNI=",  # 12.34
    "raw": "AP8=",
    "single": 0.1,
    "paid": True,
    "at": _MOMENT,
    "day": 19675,
    "clock": 3723004,
    "lines": [{"sku": "a", "n": 1}, None, {"sku": None, "n": 2}],
    "tags": {"a": 1, "b": None},
    "to": {"name": "Anne", "home": {"street": "Elm", "zip": 12345}},
}
_EMPTY: Final = dict.fromkeys(_BOOKED)
_PARTLY: Final = {**_EMPTY, "lines": [], "tags": {}, "to": {"name": None, "home": None}}
_ORDERS: Final = tuple(_value(value, _ORDER, timestamp=_MOMENT) for value in (_BOOKED, _EMPTY, _PARTLY, None))
_FLAT: Final = _fields(*((f["field"], f) for f in _ORDER["fields"] if f["field"] != "tags"))
_FLATS: Final = tuple(
    _value(value and {name: item for name, item in value.items() if name != "tags"}, _FLAT)
    for value in (_BOOKED, _EMPTY, _PARTLY, None)
)


def _structures() -> list[Case]:
    names = list(_BOOKED)
    v2 = {"field.syntax.version": "V2"}
    return [
        _case(
            "InsertField$Value", {"topic.field": "t", "timestamp.field": "ts", "offset.field": "o!"}, *_ORDERS
        ),
        _case("InsertField$Value", {"static.field": "id", "static.value": "x"}, *_ORDERS),
        _case("ReplaceField$Value", {"include": "price,to,lines", "renames": "to:for,price:cost"}, *_ORDERS),
        _case("ReplaceField$Value", {"exclude": ",".join(names)}, *_ORDERS),
        *(_case("MaskField$Value", {"fields": name}, *_ORDERS) for name in names),
        *(_case("MaskField$Value", {"fields": name, "replacement": "5"}, *_ORDERS) for name in names),
        _case("MaskField$Value", {"fields": "missing"}, *_ORDERS),
        *(_case("ExtractField$Value", {"field": name}, *_ORDERS) for name in (*names, "to.name", "missing")),
        *(
            _case("ExtractField$Value", {"field": path, **v2}, *_ORDERS)
            for path in ("to.home", "to.home.zip", "to.missing", "id.x", "lines.sku", "tags.a")
        ),
        _case("HoistField$Value", {"field": "whole"}, *_ORDERS),
        _case("Flatten$Value", {}, *_ORDERS, *_FLATS),
        _case("Flatten$Value", {"delimiter": "_"}, *_FLATS),
        *(
            _case("Cast$Value", {"spec": f"{name}:{kind}"}, *_ORDERS)
            for name in names
            for kind in ("int8", "int64", "float32", "boolean", "string")
        ),
        _case("Cast$Value", {"spec": "missing:string"}, *_ORDERS),
        *(
            _case(
                "TimestampConverter$Value", {"field": name, "target.type": kind, "format": "yyyy"}, *_ORDERS
            )
            for name in ("at", "day", "clock", "id", "small", "raw", "to", "missing")
            for kind in ("string", "unix", "Timestamp", "Date", "Time")
        ),
        *(
            _case("HeaderFrom$Value", {"fields": name, "headers": "h", "operation": operation}, *_ORDERS)
            for name in (*names, "missing")
            for operation in ("move", "copy")
            if name != "raw" or operation == "move"
        ),
        _case("ValueToKey", {"fields": "id,to,lines"}, *_ORDERS),
        _case("ValueToKey", {"fields": "id,id"}, *_ORDERS),
        _case("predicates.RecordIsTombstone", {}, *_ORDERS),
    ]


CASES: Final = [
    *(*_insert(), *_replace(), *_mask(), *_extract(), *_value_to_key(), *_flatten(), *_hoist(), *_cast()),
    *(*_timestamps(), *_headers(), *_others(), *_structures()),
]
