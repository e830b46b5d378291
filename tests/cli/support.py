from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner, Result

from sinksdk import TopicPartition
from sinksdk.cli.app import app
from sinksdk.topics import write_records

SINK = '''
from pathlib import Path

from pydantic import Field

from sinksdk import ConfigException, ConnectorConfig, SinkConnector, SinkRecords, SinkTask, Verdict


class Config(ConnectorConfig):
    compatibility = {
        "format.class": Verdict.ignored("files hold plain lines"),
        "lines.encoding": Verdict.unsupported("lines are UTF-8: take it out").when({"UTF-8": Verdict.same()}),
    }
    other_defaults = {"lines.per.file": "ten, not one"}
    folder: str = Field(alias="out.folder", description="Folder the lines go to.")
    lines: int = Field(default=10, ge=1, alias="lines.per.file", description="Lines of one file.")


class Task(SinkTask):
    def put(self, records: SinkRecords) -> None:
        pass


class Sink(SinkConnector):
    """Writes lines.

    At length.
    """

    config_class = Config
    task_class = Task

    def start(self, config):
        if not Path(config.folder).is_dir():
            raise ConfigException(f"'out.folder': there is no folder {config.folder}")
        self.folder = Path(config.folder)

    def stop(self, is_deleted=False):
        if is_deleted:
            (self.folder / "deleted").write_text(str(is_deleted))

    def validate(self, config):
        return ["'lines.per.file' is unlucky: choose another"] if config.lines == 13 else []


class NoTask(SinkConnector):
    pass


class Unfinished(SinkConnector):
    task_class = Task

    def __init__(self):
        raise RuntimeError("not today")


class AbstractTask(SinkTask):
    pass


class Abstract(SinkConnector):
    config_class = Config
    task_class = AbstractTask


class WantingTask(Task):
    def __init__(self, folder):
        self.folder = folder


class Wanting(SinkConnector):
    config_class = Config
    task_class = WantingTask


no_class = 1
'''


class Here:
    """A working directory with a connector in ``linesink.py``, in which the command line runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runner = CliRunner()

    def config(self, *, name: str = "lines", **config: Any) -> Path:
        """Write a configuration; underscores in keys stand for dots, None removes a key."""
        keys = {"connector.class": "linesink:Sink", "topics": "flights", "out.folder": str(self.folder)}
        keys |= {key.replace("_", "."): value for key, value in config.items()}
        document = {"name": name, "config": {key: value for key, value in keys.items() if value is not None}}
        return self.file("config.json", json.dumps(document))

    def file(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.write_text(content, encoding="utf-8")
        return path

    def topic(self, name: str = "flights", records: int = 3) -> Path:
        rows = pa.table({"offset": range(records), "key": [b"k"] * records, "value": [b"v"] * records})
        write_records(self.folder / "topics", TopicPartition(name, 0), rows)
        return self.folder / "topics"

    def sinksdk(self, *arguments: object) -> Result:
        return self._runner.invoke(app, [str(argument) for argument in arguments])
