"""Checks of the documentation: code, commands' files, tests, links, generated parts."""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import json
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import sinksdk
import sinksdk.source
from sinksdk import testing

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("benchmarks/*.md"), *DOCS.rglob("*.md")]
)
EXECUTED = [
    DOCS / "make-it-exactly-once.md",
    DOCS / "run-from-python.md",
    DOCS / "test-harness.md",
    DOCS / "typed-values.md",
    DOCS / "write-a-connector.md",
    DOCS / "write-a-source.md",
    DOCS / "write-an-http-sink.md",
]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Fence(NamedTuple):
    language: str
    code: str


def fences(page: Path, *, generated: bool = True) -> list[Fence]:
    """Return the blocks of a page, with or without generated ones."""
    text = page.read_text()
    if not generated:
        text = re.sub(r"<!-- generated: .*?<!-- end -->", "", text, flags=re.DOTALL)
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Fence(*match) for match in found]


def without_fences(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slugs(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", without_fences(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


# -- code ----------------------------------------------------------------------------------------------


def test_readme_shows_the_task_of_the_example() -> None:
    (excerpt,) = (fence.code for fence in fences(README) if fence.language == "python")
    assert excerpt in (ROOT / "examples/folder_sink.py").read_text()


def test_page_shows_the_example_program() -> None:
    shown = next(fence.code for fence in fences(DOCS / "run-from-python.md") if fence.language == "python")
    assert shown == (ROOT / "examples/run_folder_sink.py").read_text()


@pytest.mark.parametrize(
    ("page", "file"),
    [
        (DOCS / "getting-started.md", "archive_readings.json"),
        (DOCS / "write-a-connector.md", "folder_sink.json"),
        (DOCS / "write-a-database-sink.md", "upsert_sink.json"),
        (DOCS / "write-an-http-sink.md", "webhook_sink.json"),
    ],
    ids=lambda item: item if isinstance(item, str) else item.name,
)
def test_pages_show_the_example_configurations(page: Path, file: str) -> None:
    shown = [json.loads(fence.code) for fence in fences(page) if fence.language == "json"]
    assert shown == [json.loads((ROOT / "examples" / file).read_text())]


@every_page
def test_python_compiles_and_json_parses(page: Path) -> None:
    for fence in fences(page):
        if fence.language == "python":
            compile(fence.code, str(page), "exec")
        if fence.language == "json":
            json.loads(fence.code)


@every_page
def test_every_code_block_names_its_language(page: Path) -> None:
    assert {fence.language for fence in fences(page)} <= {
        "bash",
        "json",
        "properties",
        "python",
        "sql",  # tests/integration/test_transform_plans.py runs these queries
        "text",
        "toml",
    }


@pytest.mark.slow
# When a task crashes, its files stay open.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.name)
def test_test_examples_pass(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, object] = {}
    for fence in fences(page, generated=False):
        if fence.language == "python":
            exec(compile(fence.code, str(page), "exec", dont_inherit=True), names)  # noqa: S102 - our own pages
    names.clear()
    gc.collect()


# -- references ----------------------------------------------------------------------------------------


@every_page
def test_named_tests_exist(page: Path) -> None:
    named = re.findall(r"((?:property_)?tests/[\w/]+\.py)::(\w+)", page.read_text())
    missing = [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]
    assert missing == []


@every_page
def test_named_files_exist(page: Path) -> None:
    roots = "examples|tests|property_tests|benchmarks|sinksdk|connectors/s3_archiver|docs"
    named = re.findall(rf"(?<![\w./-])((?:{roots})/[\w/.-]*\w)", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


@every_page
def test_links_have_targets(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in slugs(there)):
            broken.append(target)
    assert broken == []


def test_pages_link_only_to_pages() -> None:
    # The site has no other files: a link out of docs/ would be broken there.
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", without_fences(page)):
            assert target.startswith("https://") or (page.parent / target).resolve().is_relative_to(DOCS)


def test_every_page_is_in_the_sites_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    # Decisions are listed by their index, which test_every_decision_is_listed_with_its_status checks.
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if not page.name.startswith("00")]
    assert [page for page in pages if f" {page}\n" not in navigation] == []


def test_every_decision_is_listed_with_its_status() -> None:
    holding, _, superseded = (DOCS / "decisions/index.md").read_text().partition("## Superseded")
    row = re.compile(r"\| \[(\d{4})\]\(((\d{4})-[\w-]+\.md)\) \| ([^|(]+)")
    for listed, has_ended in ((holding, False), (superseded, True)):
        for number, name, start, title in row.findall(listed):
            page = (DOCS / "decisions" / name).read_text()
            assert number == start
            assert page.startswith(f"# {number}: {title.strip()}")
            assert ("**Status:** superseded by" in page) == has_ended
            assert re.findall(r"^## (.*)", page, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    files = {path.name for path in (DOCS / "decisions").glob("0*.md")}
    assert {name for _, name, *_ in row.findall(holding + superseded)} == files


# -- what comes from the code --------------------------------------------------------------------------


def test_generated_parts_are_up_to_date() -> None:
    render = generator().render
    stale = [page.name for page in DOCS.rglob("*.md") if render(page.read_text()) != page.read_text()]
    assert stale == []


def test_generating_docs_is_idempotent() -> None:
    render = generator().render
    for page in DOCS.rglob("*.md"):
        once = render(page.read_text())
        assert render(once) == once


@pytest.mark.parametrize(
    ("part", "check", "options"),
    [
        ("check-sink-options", testing.check_sink, testing.SinkOptions),
        ("check-source-options", testing.check_source, testing.SourceOptions),
    ],
)
def test_test_kit_page_lists_all_options(part: str, check: Any, options: Any) -> None:
    rows = [line.strip("| ").split(" | ") for line in generator().PARTS[part]().splitlines()[2:]]
    names = {*inspect.signature(check).parameters} - {"options"} | {*options.__annotations__}
    assert {row[0].strip("`") for row in rows} == names
    assert all(len(row) == 4 and all(row) for row in rows)
    required = {row[0].strip("`") for row in rows if row[1] == "**required**"}
    assert required == {row[0].strip("`") for row in rows if row[3] == "always"}


def test_every_generated_part_is_used() -> None:
    asked = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"<!-- generated: (\S+) -->", page.read_text())
    }
    assert asked == set(generator().PARTS)


def test_every_public_name_is_documented() -> None:
    page = (DOCS / "api.md").read_text()
    assert [name for name in (*sinksdk.__all__, *sinksdk.source.__all__) if f"| `{name}` |" not in page] == []


def test_contributing_lists_every_make_target_and_no_other() -> None:
    targets = set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([\w-]+)`", CONTRIBUTING.read_text()))
    assert named == targets
