"""Imports point one way, and the engine uses only what is passed to it.

The tests read the source: imports inside of functions and under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import sinksdk

ROOT = Path(sinksdk.__file__).parent.parent
FLOORS: tuple[tuple[str, ...], ...] = (
    ("support",),
    ("offsets",),
    ("errors",),
    ("values",),
    ("records", "compatibility"),
    ("settings",),
    ("transforms", "context"),
    ("model",),
    ("config", "task"),
    ("connector",),
    ("source",),
    # The engine does not know where commits are stored; the store does not know who commits.
    ("engine", "store"),
    ("plugins", "topics"),
    # Operators and drivers share records in the store: a driver writes the status that operators read.
    ("worker", "control", "testing"),
    # The driver launches generations through an interface, so that the simulation runs it without Spark.
    ("runtime", "spark"),
    ("launch", "frames", "metrics"),
    ("server",),
    ("cli",),
    ("__main__",),
)
"""The packages of sinksdk by layer, the lowest first. A package imports only packages of lower layers."""

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

PARTS = {path.name.removesuffix(".py") for path in (ROOT / "sinksdk").iterdir()} - {
    "__init__",
    "__pycache__",
    "connectors",  # a link to the folder of connectors, which import public names only
    "templates",  # the templates of ``sinksdk new``, which import public names only
}

EXCEPTIONS = {("sinksdk/__init__.py", "sinksdk.store"), ("sinksdk/__init__.py", "sinksdk.launch")}
"""``sinksdk.run``, ``sinksdk.committed_offsets`` and related names are imported when they are first used."""


def sources(folder: str) -> list[Path]:
    """Return all modules below a folder of the repository."""
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


@functools.cache
def own_sources() -> list[Path]:
    """Return all modules of sinksdk itself; connectors and templates in it have rules of their own."""
    others = {ROOT / "sinksdk" / "connectors", ROOT / "sinksdk" / "templates"}
    return [path for path in sources("sinksdk") if others.isdisjoint(path.parents)]


def imports(path: Path) -> list[str]:
    """Full names of what a module imports: ``a.b`` for ``import a.b``, ``a.b.c`` for ``from a.b import c``."""
    package = path.relative_to(ROOT).parts[:-1]
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            names += (f"{module}.{alias.name}" for alias in node.names)
    return names


def part_of(name: str) -> str | None:
    """Return the part of sinksdk that a full name belongs to; None for public names and for other packages."""
    root, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    return part if root == "sinksdk" and part in PARTS else None


def test_modules_import_only_from_lower_floors() -> None:
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path in own_sources()
        if (own := room_of(path)) != "__init__"
        for name in imports(path)
        if (room := part_of(name)) not in (None, own) and FLOOR_OF[room] >= FLOOR_OF[own]
    ]
    assert wrong == []


def room_of(path: Path) -> str:
    """Return the package of sinksdk that a module belongs to."""
    return path.relative_to(ROOT / "sinksdk").parts[0].removesuffix(".py")


def test_modules_have_no_circular_imports() -> None:
    paths = [*own_sources(), *sources("connectors")]
    remaining = {module_name(path): modules_of_ours(path) for path in paths}
    for name, used in remaining.items():
        remaining[name] = {other for other in used if other != name and other in remaining}
    while loaded := [name for name, used in remaining.items() if not used & remaining.keys()]:
        for name in loaded:
            del remaining[name]
    assert remaining == {}


def module_name(path: Path) -> str:
    """Return a module's dotted name; for ``__init__`` this is the name of its package."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"sinksdk.{name}" if name.startswith("connectors") else name  # a link to the folder of connectors


def test_nothing_in_sinksdk_imports_a_connector() -> None:
    all_of_them = [(path, name) for path in own_sources() for name in imports(path)]
    assert [found for found in all_of_them if found[1].startswith("sinksdk.connectors.")] == []


def test_every_room_is_on_a_floor() -> None:
    assert not PARTS - {"py.typed"} - FLOOR_OF.keys()


def modules_of_ours(path: Path) -> set[str]:
    """Return the modules of sinksdk that a module imports, or from which it imports names."""
    found = {name for name in imports(path) if name.startswith("sinksdk.")}
    return {name if is_module(name) else name.rpartition(".")[0] for name in found}


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or any(path.with_suffix(kind).exists() for kind in (".py", ".c"))


def test_imports_inside_functions_and_blocks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "sinksdk" / "engine" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "import a.b\nfrom . import c\nfrom .. import runtime\nfrom ..store.base import Store\n"
        "if TYPE_CHECKING:\n    from sinksdk.spark import job\ndef f():\n    import os\n"
    )
    assert sorted(imports(module)) == [
        "a.b",
        "os",
        "sinksdk.engine.c",
        "sinksdk.runtime",
        "sinksdk.spark.job",
        "sinksdk.store.base.Store",
    ]


# -- the engine --------------------------------------------------------------------------------------

OUTSIDE = {"pyspark", "sqlalchemy", "boto3", "socket", "os", "pathlib", "subprocess", "threading", "requests"}


@pytest.mark.parametrize("path", sources("sinksdk/engine"), ids=lambda path: path.name)
def test_the_engine_imports_no_io_modules(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert roots & OUTSIDE == set()
    assert "time" not in roots or path.name == "clock.py"
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & {"open", "input", "print"} == set()


# -- connectors --------------------------------------------------------------------------------------

PUBLIC_MODULES = (
    "sinksdk.records",
    "sinksdk.connector",
    "sinksdk.config",
    "sinksdk.source",
    "sinksdk.testing",
    "sinksdk.support.delays",  # one table of all delays
    "sinksdk.support.s3",  # one table of S3's errors, for commit stores and connectors
    "sinksdk.values.avro_schema",  # one parser and one walk, for converters and for files
    "sinksdk.values.avro_walk",
    "sinksdk.values.calendar",  # folders by time also have dates after the year 9999
    "sinksdk.values.decimals",  # a type that files have and Arrow lacks
    "sinksdk.values.framing",
    "sinksdk.values.json_text",  # verify checks lines with the rules of the JSON converter
)
PUBLIC_NAMES = (
    "sinksdk.topics.kafka.KafkaClient",
    "sinksdk.topics.kafka.schema_registry.connect",
    "sinksdk.topics.write_records",
)


@pytest.mark.parametrize(
    "path",
    sources("connectors") + sources("sinksdk/templates"),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_connectors_use_public_names_only(path: Path) -> None:
    used = [
        name
        for name in imports(path)
        if name.split(".")[0] == "sinksdk" and not name.startswith("sinksdk.connectors.s3_archiver.")
    ]
    public = {"sinksdk", *(f"sinksdk.{name}" for name in sinksdk.__all__)}
    assert [
        name
        for name in used
        if name not in {*public, *PUBLIC_NAMES} and name.rpartition(".")[0] not in PUBLIC_MODULES
    ] == []


ARCHIVER = "sinksdk.connectors.s3_archiver"
ARCHIVER_FLOORS: tuple[tuple[str, ...], ...] = (
    # Keys and metadata of the objects in the bucket, for the modules that write or read them.
    ("archive",),
    ("s3", "formats"),
    ("partitioners",),
    # ``files`` writes, ``verify`` reads back, ``compatibility`` judges configurations.
    ("files", "verify", "compatibility"),
    # Lower packages receive only their own settings; from here on, modules know all settings.
    ("config",),
    ("task",),
    ("connector",),
    ("__init__", "__main__"),
)
"""The archiver's packages and top modules by layer, the lowest first."""


def archiver_room(path: Path) -> str:
    return path.relative_to(ROOT / "connectors" / "s3_archiver").parts[0].removesuffix(".py")


def test_the_archivers_modules_import_only_from_lower_floors() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(ARCHIVER_FLOORS) for room in rooms}
    wrong = []
    for path in sources("connectors/s3_archiver"):
        own = archiver_room(path)
        for name in imports(path):
            if name != ARCHIVER and not name.startswith(f"{ARCHIVER}."):
                continue
            inside = name.removeprefix(ARCHIVER).strip(".").partition(".")[0]
            room = inside if inside in floor_of else "__init__"
            if room != own and floor_of[room] >= floor_of[own]:
                wrong.append((str(path.relative_to(ROOT)), name))
    assert wrong == []


def test_the_connectors_folder_is_not_a_package() -> None:
    assert not (ROOT / "connectors" / "__init__.py").exists()
