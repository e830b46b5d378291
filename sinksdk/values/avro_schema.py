"""Avro schemas, parsed as leniently as Java's parser does for Confluent's AvroConverter."""

from __future__ import annotations

import functools
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sinksdk.errors import DataException

# Registries contain schemas that stricter parsers refuse: defaults of another type, invalid namespaces.
# Java's Avro (1.11) accepts them with setValidateDefaults(false).
PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
# Confluent's AvroData keeps the default of Connect's schema in this property of a type.
CONNECT_DEFAULT: Final = "connect.default"
# Logical type, in resolved schemas, of a decimal that Avro's library ignores and AvroData reads.
CONNECT_DECIMAL: Final = "connect-decimal"
_PRECISION: Final = 64  # precision that AvroData writes for a decimal without one
_ORDERS: Final = ("ascending", "descending", "ignore")
_MOST_SIZE: Final = 2**31 - 1
_NULLABLE_BRANCHES: Final = 2
# The pattern also matches texts, because a text may contain the characters of a comment.
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\r\n]*', re.DOTALL)
_LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    ),
}


@dataclass(frozen=True, eq=False)
class AvroSchema:
    """A writer's schema.

    Args:
        text: the schema's JSON in its registry.
        readable: the JSON for a file's header, without references and parts that only Java tolerates.
        resolved: the schema for fastavro.
    """

    text: str
    readable: str = field(repr=False)
    resolved: Any = field(repr=False)

    @functools.cached_property
    def null_branch(self) -> int | None:
        is_nullable = isinstance(self.resolved, list) and "null" in self.resolved
        return self.resolved.index("null") if is_nullable else None

    @property
    def has_null(self) -> bool:
        return self.resolved == "null" or self.null_branch is not None

    @functools.cached_property
    def reader(self) -> Callable[[Any], Any]:
        return datum_reader(self.resolved)


def as_schema(found: Any) -> AvroSchema:
    return found if isinstance(found, AvroSchema) else parse_schema(json.dumps(found))


def parse_schema(text: str, references: Sequence[Any] = (), *, replaces_nulls: bool = False) -> AvroSchema:
    """Parse a schema. Raises DataException if Java's parser would refuse it.

    Args:
        references: the parsed JSON of the schemas that it refers to.
        replaces_nulls: whether a null is read as its default, as by Connect's ``Struct.get``.
    """
    try:
        root = schema_json(text)
        elsewhere = {**_definitions(references, None), **_definitions(root, None)}
        parser = _Parser(elsewhere, replaces_nulls=replaces_nulls)
        written, resolved = parser.of(root, None)
    except ValueError as error:
        raise DataException(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise DataException("the schema has too many levels") from error
    except _Refused as error:
        raise DataException(str(error)) from error
    is_changed = parser.has_changed or _without_comments(text) != text
    return AvroSchema(text, json.dumps(written) if is_changed else text, resolved)


def schema_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        plain = _without_comments(text)  # Java's parser accepts comments
        if plain == text:
            raise
        return json.loads(plain)


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)


def datum_reader(
    resolved: Any, *, is_plain: bool = False, names_branches: bool = False, fills_branches: bool = False
) -> Callable[[Any], Any]:
    """Return a function that reads a datum from a stream as Python objects.

    Args:
        is_plain: ignore logical types: whole numbers instead of times are faster and have all years, and
            fastavro would round decimals.
        names_branches: read a value of a union of several types as an object, whose field has the name of
            the branch in Connect.
        fills_branches: such objects have a field for each branch. They take memory and time for each.
    """
    import fastavro  # noqa: PLC0415 - slow to import, and needed for Avro only

    made = _ForFastavro(is_plain=is_plain, names_branches=names_branches, fills_branches=fills_branches)
    plain = made.of(resolved)
    is_wrapped = bool(made.enums) and (isinstance(plain, list) or plain["type"] != "record")
    if is_wrapped:  # fastavro parses all other schemas again for each datum
        plain = {"type": "record", "name": "root", "fields": [{"name": "value", "type": plain}]}
    parsed: Any = fastavro.parse_schema(plain)
    for symbols, own in made.enums:  # fastavro refuses symbols beyond ASCII, which Java accepts
        symbols[:] = own
    read = fastavro.schemaless_reader

    def of(datum: Any) -> Any:
        # Java also reads invalid UTF-8 with replacement characters.
        return read(datum, parsed, None, handle_unicode_errors="replace")

    def of_wrapped(datum: Any) -> Any:
        found: Any = of(datum)
        return found["value"]

    return of_wrapped if is_wrapped else of


class _ForFastavro:
    def __init__(self, *, is_plain: bool, names_branches: bool, fills_branches: bool) -> None:
        self._is_plain = is_plain
        self._names_branches = names_branches
        self._fills_branches = fills_branches
        self._names: dict[str, str] = {}
        self._unions = 0
        self.enums: list[tuple[list[str], list[str]]] = []

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._names.get(schema, schema)
        made = _without(schema, "logicalType") if self._is_plain else dict(schema)
        if "name" in made:
            made["name"] = self._names.setdefault(made["name"], f"t{len(self._names)}")
        if "fields" in made:
            made["fields"] = [
                {"name": each["name"], "type": self.of(each["type"])} for each in made["fields"]
            ]
        for part in ("items", "values"):
            if part in made:
                made[part] = self.of(made[part])
        if made["type"] == "enum" and not all(symbol.isascii() for symbol in made["symbols"]):
            made["symbols"] = [f"s{number}" for number in range(len(made["symbols"]))]
            self.enums.append((made["symbols"], schema["symbols"]))
        return made

    def _union(self, branches: list[Any]) -> list[Any]:
        read = [self.of(branch) for branch in branches]
        names = [branch_name(branch) for branch in branches if branch != "null"]
        if not self._names_branches or len(names) <= 1:
            return read
        return [
            "null" if branch == "null" else self._branch(branch_name(branch), schema, names)
            for branch, schema in zip(branches, read, strict=True)
        ]

    def _branch(self, own: str, schema: Any, names: Iterable[str]) -> Any:
        self._unions += 1
        shown = dict.fromkeys(names) if self._fills_branches else (own,)
        fields = [{"name": name, "type": schema if name == own else "null"} for name in shown]
        return {"type": "record", "name": f"union{self._unions}", "fields": fields}


# -- Java's rules ------------------------------------------------------------------------------------------


class _Refused(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Definition:
    schema: Any
    space: str | None


def _definitions(schema: Any, space: str | None) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    if isinstance(schema, list | tuple):
        for branch in schema:
            found = {**_definitions(branch, space), **found}
    elif isinstance(schema, dict):
        kind, inner = schema.get("type"), space
        if isinstance(kind, str) and kind in NAMED and isinstance(schema.get("name"), str):
            full, inner = _full_name(schema, space)
            found[full] = _Definition(schema, space)
        parts = [schema.get("items"), schema.get("values")]
        fields = schema.get("fields")
        if isinstance(fields, list):
            parts += [each.get("type") for each in fields if isinstance(each, dict)]
        for part in parts:
            found = {**_definitions(part, inner), **found}
    return found


class _Parser:
    def __init__(self, elsewhere: Mapping[str, _Definition], *, replaces_nulls: bool) -> None:
        self._elsewhere = elsewhere
        self._replaces_nulls = replaces_nulls
        self._kinds: dict[str, str] = {}
        self._moved: set[str] = set()
        # Whether a definition was moved to the first use of its name, or a part was removed.
        self.has_changed = False

    def of(self, schema: Any, space: str | None) -> tuple[Any, Any]:
        if isinstance(schema, str):
            return self._reference(schema, schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if not isinstance(kind, str):
            raise _Refused(f"not a schema: its type is missing or not a string{_called(schema)}")
        if kind in PRIMITIVES:
            resolved = _with_logical_type({"type": kind}, schema) if "logicalType" in schema else kind
            return self._without_decimal(schema, resolved), resolved
        if kind in NAMED:
            return self._named(kind, schema, space)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in schema:
                raise _Refused(f"its {kind} has no {part}")
            written, resolved = self.of(schema[part], space)
            made = {"type": kind, part: resolved, **self._connect_default(written, resolved)}
            return {**schema, part: written}, made
        return self._reference(kind, schema, space)

    def _reference(self, name: str, written: Any, space: str | None) -> tuple[Any, Any]:
        if name in PRIMITIVES:
            return written, name
        full = name if "." in name or not space else f"{space}.{name}"
        tried = [full.removeprefix(".") if full.count(".") == 1 else full, name.rpartition(".")[2]]
        for each in tried:
            if each in self._kinds:
                return self._without_dot(written, each, space), each
        for each in tried:
            if each in self._elsewhere:
                self.has_changed = True
                return self._moved_here(each)
        raise _Refused(f"'{name}' is neither an Avro type nor defined")

    def _without_dot(self, written: Any, full: str, space: str | None) -> Any:
        # Only Java 1.11 accepts a dot before a name without namespace.
        name = written if isinstance(written, str) else written["type"]
        if space or not name.startswith("."):
            return written
        self.has_changed = True
        return full if isinstance(written, str) else {**written, "type": full}

    def _moved_here(self, full: str) -> tuple[Any, Any]:
        definition = self._elsewhere[full]
        self._moved.add(full)
        written, resolved = self._define(definition.schema["type"], definition.schema, definition.space, full)
        space, _, short = full.rpartition(".")
        return {**written, "name": short, "namespace": space}, resolved

    def _union(self, branches: list[Any], space: str | None) -> tuple[Any, Any]:
        written, resolved = [], []
        for branch in branches:
            if isinstance(branch, list):
                raise _Refused("a union is a direct branch of a union")
            one, other = self.of(branch, space)
            written.append(one)
            resolved.append(other)
        kinds = [_full_branch_name(branch) for branch in resolved]
        if len(set(kinds)) < len(kinds):
            twice = next(kind for kind in kinds if kinds.count(kind) > 1)
            raise _Refused(f"a union contains {twice} twice")
        return written, resolved

    def _named(self, kind: str, schema: Any, space: str | None) -> tuple[Any, Any]:
        name = schema.get("name")
        if not isinstance(name, str):
            raise _Refused(f"a schema of type {kind} has no name")
        full, _ = _full_name(schema, space)
        if full in self._moved and self._elsewhere[full].schema is schema:
            self._moved.discard(full)  # the definition was moved to the first use of its name
            return full if "." in full or not space else f".{full}", full
        return self._define(kind, schema, space, full)

    def _without_decimal(self, schema: Any, resolved: Any) -> Any:
        is_valid = isinstance(resolved, dict) and resolved.get("logicalType") == "decimal"
        if schema.get("logicalType") != "decimal" or is_valid:
            return schema
        self.has_changed = True
        return _without(schema, "logicalType")

    def _define(self, kind: str, schema: Any, space: str | None, full: str) -> tuple[Any, Any]:
        _check_name(full.rpartition(".")[2])
        if full in self._kinds:
            raise _Refused(f"'{full}' is defined twice")
        if full in PRIMITIVES:
            raise _Refused(f"'{full}' is defined, but is the name of an Avro type")
        _check_aliases(schema, are_names=True)
        self._kinds[full] = "record" if kind == "error" else kind
        if kind == "enum":
            symbols = _symbols(schema)
            if schema.get("default", symbols[:1]) not in (*symbols, symbols[:1]):
                self.has_changed, schema = True, _without(schema, "default")
            return schema, {"type": kind, "name": full, "symbols": symbols}
        if kind == "fixed":
            resolved = _with_logical_type({"type": kind, "name": full, "size": _size(schema)}, schema)
            return self._without_decimal(schema, resolved), resolved
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise _Refused(f"record '{full}' has no fields")
        _, inner = _full_name(schema, space)
        made = [self._field(each, inner) for each in fields]
        names = [each["name"] for _, each in made]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise _Refused(f"record '{full}' has two fields '{twice}'")
        written, resolved = ([each[side] for each in made] for side in (0, 1))
        return {**schema, "fields": written}, {"type": "record", "name": full, "fields": resolved}

    def _field(self, given: Any, space: str | None) -> tuple[Any, Any]:
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(name, str):
            raise _Refused("a field has no name")
        _check_name(name)
        if "type" not in given:
            raise _Refused(f"field '{name}' has no type")
        if str(given.get("order", _ORDERS[0])).lower() not in _ORDERS:
            raise _Refused(f"the order of field '{name}' is not one of {', '.join(_ORDERS)}")
        _check_aliases(given, are_names=False)
        written, resolved = self.of(given["type"], space)
        if "default" in given and not self._is_default(given["default"], resolved):
            self.has_changed, given = True, _without(given, "default")
        made = {"name": name, "type": resolved, **self._connect_default(written, resolved)}
        return {**given, "type": written}, made

    def _connect_default(self, written: Any, resolved: Any) -> dict[str, Any]:
        is_nullable = (
            isinstance(resolved, list) and len(resolved) == _NULLABLE_BRANCHES and "null" in resolved
        )
        if not is_nullable or not self._replaces_nulls:
            return {}
        number = 1 - resolved.index("null")
        branch = written[number]
        if isinstance(branch, str):  # the branch is a name, whose definition has the properties
            definition = self._elsewhere.get(str(resolved[number]))
            branch = {} if definition is None else definition.schema
        default = branch.get(CONNECT_DEFAULT)
        return {} if default is None else {CONNECT_DEFAULT: default}

    def _is_default(self, value: Any, resolved: Any) -> bool:
        if isinstance(resolved, list):
            return any(self._is_default(value, branch) for branch in resolved)
        kind = resolved if isinstance(resolved, str) else resolved["type"]
        return _DEFAULTS[kind if kind in _DEFAULTS else self._kinds[kind]](value)


def _full_name(schema: Mapping[str, Any], space: str | None) -> tuple[str, str | None]:
    name, own = str(schema["name"]), schema.get("namespace")
    if "." in name:
        space, _, name = name.rpartition(".")
    elif isinstance(own, str):
        space = own
    return (f"{space}.{name}", space) if space else (name, None)


def _check_name(name: str) -> None:
    # Java accepts letters and digits of all scripts, if they have one unit of UTF-16.
    for place, letter in enumerate(name):
        category = unicodedata.category(letter) if ord(letter) <= 0xFFFF else ""  # noqa: PLR2004 - see above
        if not (letter == "_" or category.startswith("L") or (place and category == "Nd")):
            raise _Refused(f"it contains the name '{name}', which is not legal in Avro")
    if not name:
        raise _Refused("it contains an empty name")


def _check_aliases(schema: Mapping[str, Any], *, are_names: bool) -> None:
    aliases = schema.get("aliases")
    if aliases is None:
        return
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise _Refused("aliases are not a list of names")
    for alias in aliases if are_names else ():
        _check_name(alias.rpartition(".")[2])


def _symbols(schema: Mapping[str, Any]) -> list[str]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise _Refused("an enum has no list of symbols")
    for symbol in symbols:
        _check_name(symbol)
    if len(set(symbols)) < len(symbols):
        raise _Refused("an enum has a duplicate symbol")
    return symbols


def _size(schema: Mapping[str, Any]) -> int:
    size: Any = schema.get("size")
    if not _is_int(size) or not 0 <= size <= _MOST_SIZE:
        raise _Refused("a schema of type fixed has no valid size")
    return int(size)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


_DEFAULTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    **dict.fromkeys(("int", "long"), _is_int),
    **dict.fromkeys(("float", "double"), _is_number),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), _is_text),
    "array": lambda value: isinstance(value, list),
    **dict.fromkeys(("map", "record"), lambda value: isinstance(value, dict)),
}


def _without(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != name}


def _with_logical_type(resolved: dict[str, Any], schema: Mapping[str, Any]) -> Any:
    kind, logical = resolved["type"], str(schema.get("logicalType")).lower()  # AvroData ignores the case
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if is_valid_decimal(precision, scale, resolved.get("size")):
            return {**resolved, "logicalType": logical, "precision": precision, "scale": scale}
        # AvroData reads the scale alone: an Oracle NUMBER has a scale of 127, and 64 digits.
        if precision is None or _is_real(precision):
            scale = _java_int(scale) if _is_real(scale) else 0
            return {**resolved, "logicalType": CONNECT_DECIMAL, "precision": _PRECISION, "scale": scale}
    # Invalid logical types are ignored, as Avro specifies.
    if logical in _LOGICAL.get(kind, ()):
        return {**resolved, "logicalType": logical}
    return resolved if kind == "fixed" else kind


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _java_int(number: Any) -> int:
    if isinstance(number, float):
        return int(max(min(number, 2.0**31 - 1), -(2.0**31)))
    # The result of Java's intValue; 0 for a BigInteger, which Avro's library drops.
    return int((number + 2**31) % 2**32 - 2**31) if -(2**63) <= number < 2**63 else 0


def is_valid_decimal(precision: Any, scale: Any, size: int | None = None) -> bool:
    if not (_is_int(precision) and _is_int(scale)) or not 0 <= scale <= precision or precision < 1:
        return False
    return size is None or (size > 0 and precision <= math.floor(math.log10(2) * (8 * size - 1)))


def _full_branch_name(resolved: Any) -> str:
    if isinstance(resolved, str):
        return resolved
    return str(resolved.get("name", resolved["type"]))


def branch_name(resolved: Any) -> str:
    # Connect's AvroData names a branch after its named type, without namespace, or after its type.
    return _full_branch_name(resolved).rpartition(".")[2]


def _called(schema: Any) -> str:
    name = schema.get("name") if isinstance(schema, dict) else None
    return f" ('{name}')" if isinstance(name, str) else ""


def named_types(resolved: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in _all(resolved):
        if isinstance(each, dict) and "name" in each:
            found[each["name"]] = each
    return found


def _all(resolved: Any) -> Iterator[Any]:
    waiting = [resolved]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += [each[part] for part in ("items", "values") if part in each]
            waiting += [part["type"] for part in each.get("fields", ())]
