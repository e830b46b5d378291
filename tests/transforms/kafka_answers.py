"""Results of Kafka's own transforms: ``python -m tests.transforms.kafka_answers`` writes ``answers.json``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.kafka.maven import copy_jars
from tests.transforms.cases import CASES, Case

KAFKA: Final = "4.1.0"
ANSWERS: Final = Path(__file__).with_name("answers.json")
_HERE: Final = Path(__file__).parent
_PATIENCE: Final = 120.0  # seconds


def run_kafka(cases: Sequence[Case]) -> str:
    """Return the results of Kafka's classes for the cases, as JSON with a line for each.

    Raises:
        MavenError: its jars cannot be downloaded.
    """
    jars = copy_jars(_HERE / "pom.xml", f"kafka-connect-transforms-{KAFKA}")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    done = subprocess.run(
        [str(java), "-cp", ":".join(map(str, jars)), str(_HERE / "java" / "Answers.java")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lines = ",\n".join(
        json.dumps(answer, separators=(",", ":"), sort_keys=True) for answer in found["answers"]
    )
    return f'{{"keys":{json.dumps(found["keys"], sort_keys=True)},\n"answers":[\n{lines}]}}\n'


@functools.cache
def stored_results() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(ANSWERS.read_text())
    return answers


if __name__ == "__main__":
    ANSWERS.write_text(run_kafka(CASES))
