"""Follows docs/test-your-connector.md as a reader would, then runs the modules of docs/test-kit.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = (DOCS / "test-your-connector.md", DOCS / "test-kit.md")
STORY, REPLAY, SHOWN, SOURCE_STORY, SOURCE_SHOWN = range(5)


def blocks(language: str) -> list[str]:
    pages = "".join(page.read_text() for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```$", pages, re.DOTALL | re.MULTILINE)


def save(folder: Path, *names: str) -> None:
    for block in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        if name and name[1] in names:
            (folder / name[1]).write_text(block)


def repair(folder: Path) -> None:
    mended = next(block for block in blocks("python") if block.startswith("def file_name"))
    module = (folder / "my_sink.py").read_text()
    (folder / "my_sink.py").write_text(
        re.sub(r"def file_name.*?\n\n\n", f"{mended}\n\n", module, flags=re.DOTALL)
    )


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", "t", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.search(r"^(E +)sinksdk\S+Error: ", ran.stdout, re.MULTILINE)
    if found is None:
        return ran.returncode, ran.stdout
    lines = ran.stdout.replace(found[0], found[1]).splitlines()
    return ran.returncode, "\n".join(line.removeprefix(found[1]).rstrip() for line in lines)


@pytest.mark.slow
def test_walkthrough_of_a_sink_works(tmp_path: Path) -> None:
    texts = blocks("text")
    save(tmp_path, "my_sink.py", "test_my_sink.py")
    code, output = run(tmp_path, "test_my_sink.py")
    assert code == 1
    assert texts[STORY] in output
    assert texts[REPLAY] in output

    save(tmp_path, "test_regressions.py", "test_rows.py", "test_with_vacuum.py")
    code, output = run(tmp_path, "test_regressions.py")
    assert (code, texts[STORY] in output) == (1, True)

    repair(tmp_path)
    code, output = run(tmp_path, "-s")
    assert code == 0
    assert texts[SHOWN] in output
    assert "4 passed" in output


@pytest.mark.slow
def test_walkthrough_of_a_source_works(tmp_path: Path) -> None:
    texts = blocks("text")
    save(tmp_path, "my_source.py", "test_my_source.py")
    code, output = run(tmp_path)
    assert code == 1
    assert texts[SOURCE_STORY] in output

    module = tmp_path / "my_source.py"
    module.write_text(module.read_text().replace('{"line": number}', '{"line": number + 1}'))
    code, output = run(tmp_path, "-s")
    assert code == 0
    assert texts[SOURCE_SHOWN] in output
