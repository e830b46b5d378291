"""Run the configurations of several sites one after the other on one Spark.

Each argument is a site's folder, which gets ``outcome.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from typer.testing import CliRunner

from sinksdk.cli.app import app
from sinksdk.spark import context


def main() -> None:
    kept = context.start_spark("several", "local[2]")
    stop = kept.stop
    kept.stop = lambda: None  # type: ignore[method-assign] # each run would end it, and start the next one
    context.start_spark = lambda *_, **__: kept
    for folder in map(Path, sys.argv[1:]):
        os.chdir(folder)
        arguments = ["archive.json", "--topic-directory", "topics", "--store", "sqlite:///store.sqlite"]
        result = CliRunner().invoke(app, ["run", *arguments, "--master", "local[2]", "--until-caught-up"])
        outcome = {"code": result.exit_code, "output": result.output}
        written = folder / "outcome.part"
        written.write_text(json.dumps(outcome))
        written.rename(folder / "outcome.json")  # the file appears with its whole content
    stop()


if __name__ == "__main__":
    main()
