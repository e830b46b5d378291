"""Random types and values of Avro, Connect's envelopes and DDL, each with the expected Python object."""

from __future__ import annotations

import base64
import datetime as dt
import random
import string
from decimal import Decimal
from typing import Any, NamedTuple

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LEAST, MOST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 to 9999
LOGICAL = "org.apache.kafka.connect.data."


class Case(NamedTuple):
    """A value as it is written, and as a task sees it."""

    written: Any
    seen: Any


class Values:
    """Draws scalars by name, as Python objects."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def whole(self, bits: int) -> int:
        return self.chance.choice(
            [0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), self.chance.randrange(-100, 100)]
        )

    def real(self) -> float:
        return self.chance.choice([0.0, -1.5, 0.25, 1e10, float(self.chance.randrange(-999, 999)) / 8])

    def text(self) -> str:
        return "".join(self.chance.choices(string.ascii_letters + ' "\\\n\täß😀', k=self.chance.randrange(6)))

    def data(self, size: int | None = None) -> bytes:
        return self.chance.randbytes(self.chance.randrange(6) if size is None else size)

    def decimal(self, precision: int, scale: int) -> Decimal:
        digits = self.chance.randrange(-(10**precision) + 1, 10**precision)
        return Decimal(digits).scaleb(-scale)

    def day(self) -> dt.date:
        return dt.date.fromordinal(self.chance.randrange(1, 3_652_060))

    def ticks(self, per_second: int) -> int:
        return self.chance.choice([0, -1, self.chance.randrange(LEAST, MOST) * per_second + 1])

    def clock(self, per_second: int) -> int:
        return self.chance.randrange(86_400 * per_second)


def moment(ticks: int, per_second: int) -> dt.datetime:
    """Return the time of these ticks since the epoch, in UTC."""
    return EPOCH + dt.timedelta(microseconds=ticks * 1_000_000 // per_second)


def clock(ticks: int, per_second: int) -> dt.time:
    """Return the time of these ticks since midnight."""
    return moment(ticks, per_second).time()


class Avro:
    SCALARS = (
        *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
        *("decimal", "fixed_decimal", "date", "time-millis", "time-micros", "uuid"),
        *("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"),
        *("enum", "fixed"),
    )

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.draw = Values(chance)
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"ns.N{self._names}"

    def schema(self, depth: int = 3, *, within: str = "") -> Any:  # noqa: PLR0911 - a branch for each type
        kinds = [*self.SCALARS]
        if depth:
            kinds += ["record", "array", "map"] * 3
            kinds += ["optional", "optional", "union"] * (within != "union")
        kind = self.chance.choice(kinds)
        match kind:
            case "record":
                fields = [
                    {"name": f"f{number}", "type": self.schema(depth - 1)}
                    for number in range(self.chance.randrange(4))
                ]
                return {"type": "record", "name": self._name(), "fields": fields}
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case "optional":
                branch = self.schema(depth - 1, within="union")
                return ["null"] if branch == "null" else self.chance.sample(["null", branch], 2)
            case "union":
                return self._union(depth)
            case "enum":
                return {"type": "enum", "name": self._name(), "symbols": ["A", "B"]}
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": 3}
        return self._logical(kind)

    def _logical(self, kind: str) -> Any:
        match kind:
            case "decimal":
                return {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
            case "fixed_decimal":
                more = {"precision": 5, "scale": 2, "size": 4, "name": self._name()}
                return {"type": "fixed", "logicalType": "decimal", **more}
            case "date" | "time-millis":
                return {"type": "int", "logicalType": kind}
            case "uuid":
                return {"type": "string", "logicalType": kind}
        return {"type": "long", "logicalType": kind} if "-" in kind else kind

    def _union(self, depth: int) -> Any:
        found: dict[str, Any] = {}
        for _ in range(self.chance.randrange(2, 5)):
            branch = self.schema(depth - 1, within="union")
            found[branch_of(branch)] = branch
        return list(found.values())

    def case(self, schema: Any) -> Case:
        if isinstance(schema, list):
            return self._case_of_union(schema)
        kind = schema if isinstance(schema, str) else schema.get("logicalType", schema["type"])
        draw = self.draw
        match kind:
            case "record":
                cases = {field["name"]: self.case(field["type"]) for field in schema["fields"]}
                return Case({n: c.written for n, c in cases.items()}, {n: c.seen for n, c in cases.items()})
            case "array":
                items = [self.case(schema["items"]) for _ in range(self.chance.randrange(4))]
                return Case([item.written for item in items], [item.seen for item in items])
            case "map":
                pairs = {f"k{n}": self.case(schema["values"]) for n in range(self.chance.randrange(3))}
                return Case({k: c.written for k, c in pairs.items()}, {k: c.seen for k, c in pairs.items()})
            case "decimal":
                value: Any = draw.decimal(schema["precision"], schema["scale"])
            case "uuid":
                text = f"{self.chance.getrandbits(128):032x}"
                value = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
            case "date":
                value = draw.day()
            case _:
                value = self._scalar(kind, schema)
        return Case(value, value)

    def _scalar(self, kind: str, schema: Any) -> Any:
        draw = self.draw
        if "-" in kind:
            per_second = 1_000 if kind.endswith("millis") else 1_000_000
            if kind.startswith("time-"):
                return clock(draw.clock(per_second), per_second)
            found = moment(draw.ticks(per_second), per_second)
            return found.replace(tzinfo=None) if kind.startswith("local") else found
        return {
            "null": lambda: None,
            "boolean": lambda: self.chance.random() < 0.5,
            "int": lambda: draw.whole(32),
            "long": lambda: draw.whole(64),
            "float": draw.real,
            "double": draw.real,
            "bytes": draw.data,
            "string": draw.text,
            "enum": lambda: self.chance.choice(["A", "B"]),
            "fixed": lambda: draw.data(schema["size"]),
        }[kind]()

    def _case_of_union(self, branches: list[Any]) -> Case:
        branch = self.chance.choice(branches)
        case = self.case(branch)
        real = [one for one in branches if one != "null"]
        written = case.written if branch == "null" else (full_name(branch), case.written)
        if len(real) <= 1 or branch == "null":
            return Case(written, case.seen)
        return Case(written, {branch_of(one): case.seen if one is branch else None for one in real})


def full_name(branch: Any) -> str:
    """Return the name of a union's branch in fastavro."""
    if isinstance(branch, str):
        return branch
    return str(branch["name"] if branch["type"] in ("record", "enum", "fixed") else branch["type"])


def branch_of(branch: Any) -> str:
    """Return the name of a union's branch in Connect."""
    return full_name(branch).rpartition(".")[2]


class Json:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.draw = Values(chance)

    def connect(self, depth: int = 3) -> dict[str, Any]:
        kinds = ["boolean", "int8", "int16", "int32", "int64", "float", "double", "string", "bytes"]
        kinds += ["Decimal", "Date", "Time", "Timestamp"]
        kinds += ["struct", "array", "map", "pairs"] * 2 * (depth > 0)
        kind, optional = self.chance.choice(kinds), self.chance.random() < 0.5
        schema: dict[str, Any] = {"type": kind, "optional": optional}
        match kind:
            case "struct":
                count = self.chance.randrange(4)
                schema["fields"] = [{**self.connect(depth - 1), "field": f"f{n}"} for n in range(count)]
            case "array":
                schema["items"] = self.connect(depth - 1)
            case "map":
                schema |= {"keys": {"type": "string", "optional": False}, "values": self.connect(depth - 1)}
            case "pairs":
                schema |= {"type": "map", "keys": {"type": "int32", "optional": False}}
                schema["values"] = self.connect(depth - 1)
            case "Decimal":
                schema |= {"type": "bytes", "name": f"{LOGICAL}Decimal", "parameters": {"scale": "2"}}
            case "Date" | "Time":
                schema |= {"type": "int32", "name": f"{LOGICAL}{kind}"}
            case "Timestamp":
                schema |= {"type": "int64", "name": f"{LOGICAL}{kind}"}
        return schema

    def connect_case(self, schema: dict[str, Any]) -> Case:  # noqa: PLR0911 - a branch for each type
        if schema["optional"] and self.chance.random() < 0.25:
            return Case(None, None)
        kind, draw = schema["type"], self.draw
        match kind:
            case "struct":
                cases = {field["field"]: self.connect_case(field) for field in schema["fields"]}
                written = {
                    name: case.written
                    for name, case in cases.items()
                    if case.written is not None or self.chance.random() < 0.5
                }
                return Case(written, {name: case.seen for name, case in cases.items()})
            case "array":
                items = [self.connect_case(schema["items"]) for _ in range(self.chance.randrange(4))]
                return Case([item.written for item in items], [item.seen for item in items])
            case "map":
                size, is_object = self.chance.randrange(3), schema["keys"]["type"] == "string"
                pairs = [
                    (f"k{n}" if is_object else n, self.connect_case(schema["values"])) for n in range(size)
                ]
                seen = {key: case.seen for key, case in pairs}
                written = [[key, case.written] for key, case in pairs]
                return Case(dict(written) if is_object else written, seen)
        match schema.get("name", "").removeprefix(LOGICAL):
            case "Decimal":
                value = draw.decimal(10, 2)
                unscaled = int(value.scaleb(2))
                data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
                return Case(base64.b64encode(data).decode(), value)
            case "Date":
                day = draw.day()
                return Case((day - EPOCH.date()).days, day)
            case "Time":
                millis = draw.clock(1_000)
                return Case(millis, clock(millis, 1_000))
            case "Timestamp":
                millis = draw.ticks(1_000)
                return Case(millis, moment(millis, 1_000))
        if kind == "bytes":
            data = draw.data()
            return Case(base64.b64encode(data).decode(), data)
        value = {
            "boolean": lambda: self.chance.random() < 0.5,
            "float": draw.real,
            "double": draw.real,
            "string": draw.text,
        }.get(kind, lambda: draw.whole(int(kind[3:])))()
        return Case(value, value)

    def ddl(self, depth: int = 3) -> str:
        kinds = ["boolean", "TINYINT", "smallint", "INT", "bigint", "FLOAT", "double", "STRING", "binary"]
        kinds += ["DECIMAL(8,3)", "date", "TIMESTAMP", "timestamp_ntz"]
        kinds += ["struct", "array", "map"] * 3 * (depth > 0)
        kind = self.chance.choice(kinds)
        match kind:
            case "struct":
                fields = (f"f{n}: {self.ddl(depth - 1)}" for n in range(self.chance.randrange(1, 4)))
                return f"STRUCT<{', '.join(fields)}>"
            case "array":
                return f"array<{self.ddl(depth - 1)}>"
            case "map":
                return f"MAP<STRING, {self.ddl(depth - 1)}>"
        return kind

    def ddl_case(self, kind: Any) -> Case:  # noqa: PLR0911, C901 - a branch for each type
        """Return a value of a Spark type, described by its JSON."""
        if self.chance.random() < 0.2:
            return Case(None, None)
        if isinstance(kind, dict):
            return self._nested(kind)
        draw = self.draw
        match kind:
            case "decimal(8,3)":
                value: Any = draw.decimal(8, 3)
                return Case(str(value) if self.chance.random() < 0.5 else float(value), value)
            case "date":
                return Case(str(day := draw.day()), day)
            case "timestamp":
                value = moment(draw.ticks(1_000_000), 1_000_000)
                return Case(
                    value.isoformat().replace("+00:00", self.chance.choice(["Z", "+00:00", ""])), value
                )
            case "timestamp_ntz":
                value = moment(draw.ticks(1_000_000), 1_000_000).replace(tzinfo=None)
                return Case(value.isoformat(), value)
            case "binary":
                return Case(base64.b64encode(data := draw.data()).decode(), data)
            case "boolean":
                value = self.chance.random() < 0.5
            case "float" | "double":
                value = draw.real()
            case "string":
                value = draw.text()
            case _:
                value = draw.whole({"byte": 8, "short": 16, "integer": 32, "long": 64}[kind])
        return Case(value, value)

    def _nested(self, kind: dict[str, Any]) -> Case:
        match kind["type"]:
            case "struct":
                cases = {field["name"]: self.ddl_case(field["type"]) for field in kind["fields"]}
                written = {n: c.written for n, c in cases.items() if c.written is not None}
                return Case({**written, "unknown": 1}, {n: c.seen for n, c in cases.items()})
            case "array":
                items = [self.ddl_case(kind["elementType"]) for _ in range(self.chance.randrange(4))]
                return Case([item.written for item in items], [item.seen for item in items])
        pairs = {f"k{n}": self.ddl_case(kind["valueType"]) for n in range(self.chance.randrange(3))}
        return Case({k: c.written for k, c in pairs.items()}, {k: c.seen for k, c in pairs.items()})
