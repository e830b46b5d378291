"""Results of Java's Avro; ``python -m tests.values.java_avro`` stores them again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.kafka.maven import copy_jars

VERSIONS: Final = ("1.11.4", "1.12.0")
"""Confluent's registry and converter have both, by their version."""
ANSWERS: Final = Path(__file__).with_name("avro_schemas.tsv")
_JAVA: Final = Path(__file__).parent / "java"
_PATIENCE: Final = 120.0  # seconds


class JavaResult(NamedTuple):
    """Java's result for a schema.

    Args:
        schema: JSON.
        types: by version, the types by their full names, or ``!`` and an exception's class.
    """

    schema: str
    types: tuple[str, ...]


def stored_results() -> list[JavaResult]:
    """Return the stored results for schemas."""
    lines = (line.split("\t") for line in ANSWERS.read_text(encoding="utf-8").splitlines())
    return [JavaResult(schema, tuple(types)) for schema, *types in lines]


def run_java(version: str, lines: Sequence[str]) -> list[str]:
    """Return the result of Java's Avro for each line: a schema, optionally with a tab and a datum in hex.

    Raises:
        MavenError: its jars cannot be downloaded.
    """
    jars = copy_jars(_JAVA / f"avro-{version}.xml", f"avro-{version}")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    done = subprocess.run(
        [str(java), "-Xss4m", "-cp", ":".join(map(str, jars)), str(_JAVA / "Datums.java")],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def shown(schema: Any, named: dict[str, Any], seen: set[str] | None = None) -> str:
    """Return a resolved schema in the format of ``Datums.java``."""
    seen = set() if seen is None else seen
    if isinstance(schema, list):
        return f"({''.join(shown(branch, named, seen) + '|' for branch in schema)})"
    if isinstance(schema, str):
        return shown(named[schema], named, seen) if schema in named else schema.upper()
    kind, logical = schema["type"], f"~{schema['logicalType']}" if "logicalType" in schema else ""
    if kind in ("array", "map"):
        inner = shown(schema["items" if kind == "array" else "values"], named, seen)
        return f"[{inner}]" if kind == "array" else f"<{inner}>"
    if "name" not in schema:
        return f"{kind.upper()}{logical}"
    head = f"{kind.upper()}:{schema['name']}{logical}"
    if kind != "record" or schema["name"] in seen:
        return head
    seen.add(schema["name"])
    fields = "".join(f"{each['name']}={shown(each['type'], named, seen)};" for each in schema["fields"])
    return f"{head}{{{fields}}}"


if __name__ == "__main__":
    schemas = [json.dumps(json.loads(result.schema), ensure_ascii=False) for result in stored_results()]
    results = zip(schemas, *(run_java(version, schemas) for version in VERSIONS), strict=True)
    ANSWERS.write_text("".join("\t".join(line) + "\n" for line in results), encoding="utf-8")
