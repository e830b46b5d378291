"""The public names: what connector authors import, and its cost."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import sinksdk
import sinksdk.source
import sinksdk.testing
from sinksdk import (
    ConnectException,
    OffsetAndMetadata,
    SinkRecords,
    SinkTask,
    SinkTaskContext,
    Token,
    TopicPartition,
)

NAMES = [
    "BatchPolicy",
    "ClosingReason",
    "ConfigException",
    "ConnectException",
    "Connector",
    "ConnectorConfig",
    "ConnectorContext",
    "ConnectorIdentity",
    "Converted",
    "DataException",
    "ErrantRecordReporter",
    "FencedException",
    "Header",
    "KafkaTopics",
    "Meaning",
    "MissingSourceTopicException",
    "OffsetAndMetadata",
    "OffsetOutOfRangeException",
    "OffsetRange",
    "Option",
    "RetriableException",
    "RunningConnector",
    "SinkConnector",
    "SinkRecord",
    "SinkRecords",
    "SinkTask",
    "SinkTaskContext",
    "Summary",
    "Token",
    "TopicDirectory",
    "TopicPartition",
    "UnpublishableException",
    "Verdict",
    "bad_json",
    "committed_offsets",
    "json_texts",
    "read_config_file",
    "read_json",
    "run",
    "start",
]

SOURCE_NAMES = [
    "ConnectorContext",
    "ConnectorTransactionBoundaries",
    "ExactlyOnceSupport",
    "OffsetStorageReader",
    "RecordMetadata",
    "Scalar",
    "SourceConnector",
    "SourceConnectorConfig",
    "SourceOffset",
    "SourcePartition",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "TransactionContext",
]

TESTING_NAMES = [
    "Call",
    "Capabilities",
    "ConnectorHarness",
    "Crash",
    "FakeContext",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "Guarantee",
    "KitError",
    "ManualClock",
    "MemoryCommitLog",
    "MemoryDestination",
    "MemoryOrigin",
    "Report",
    "SinkContractError",
    "SinkOptions",
    "SinkTaskHarness",
    "SinkTaskMachine",
    "SourceCapabilities",
    "SourceContractError",
    "SourceOptions",
    "SourceReport",
    "Trial",
    "bytes_record",
    "check_machine",
    "check_sink",
    "check_source",
    "json_record",
    "replay",
    "replay_source",
    "sink_machine",
]

MODULES: list[ModuleType] = [sinksdk, sinksdk.source, sinksdk.testing]


def test_public_names_are_exactly_these() -> None:
    assert sinksdk.__all__ == NAMES
    assert sinksdk.source.__all__ == SOURCE_NAMES
    assert sinksdk.testing.__all__ == TESTING_NAMES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_names_are_sorted_and_exist(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_sinksdk_exports_no_other_names() -> None:
    others = {name for name in vars(sinksdk) if not name.startswith("_")} - set(NAMES)
    strangers = {name for name in others if not isinstance(getattr(sinksdk, name), ModuleType)}
    assert strangers <= {"TYPE_CHECKING", "Any", "annotations"}


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sinksdk' has no attribute 'SinkTusk'"):
        _ = sinksdk.SinkTusk


HEAVY = ("pyspark", "boto3", "botocore", "sqlalchemy", "hypothesis", "pandas", "fastavro", "typer", "moto")


@pytest.mark.slow
@pytest.mark.parametrize(
    "imported", ["sinksdk", "sinksdk.engine.task_run", "sinksdk.source", "sinksdk.engine.worker_source_task"]
)
def test_importing_sinksdk_loads_no_heavy_libraries(imported: str) -> None:
    code = f"import sys, {imported}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


@pytest.mark.slow
def test_importing_the_test_kit_loads_no_heavy_libraries() -> None:
    code = "import sys, sinksdk.testing; print(*sorted({'pyspark', 'hypothesis', 'sqlalchemy'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


def members(module: ModuleType) -> list[tuple[str, object]]:
    """Public names of a module, and public methods and properties of its classes, with their full names."""
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        found.append((f"{module.__name__}.{name}", value))
        if inspect.isclass(value):
            found += [
                (f"{module.__name__}.{name}.{attribute}", member)
                for attribute, member in vars(value).items()
                if not attribute.startswith("_")
                and (inspect.isfunction(member) or isinstance(member, classmethod | property))
            ]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    silent = [name for name, member in members(module) if not inspect.getdoc(member)]
    assert silent == []


# -- what authors may rely on ------------------------------------------------------------------------


class OldContext(SinkTaskContext):
    """An author's context, written before ``is_closing`` existed."""

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset()

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return None

    def configs(self) -> dict[str, str]:
        return {}

    def generation(self) -> int:
        return 1

    def prepared(self, tokens: object) -> None: ...

    def offset(self, offsets: object) -> None: ...

    def timeout(self, seconds: float) -> None: ...

    def request_commit(self) -> None: ...

    def fail(self, partition: TopicPartition, error: BaseException) -> None: ...

    def errant_record_reporter(self) -> None:
        return None


def test_context_without_is_closing_has_defaults() -> None:
    context = OldContext()
    assert context.is_closing() is False
    assert context.closing_reason() is None
    assert context.deadline() is None
    assert context.count(TopicPartition("t", 0), files=1) is None


class Least(SinkTask):
    def put(self, records: SinkRecords) -> None:
        self.last = records


def test_only_put_is_abstract() -> None:
    task, partition = Least(), TopicPartition("t", 0)
    task.initialize(OldContext())
    task.start(None)
    task.open([partition])
    offsets = {partition: OffsetAndMetadata(7)}
    assert task.pre_commit(offsets) == offsets
    task.publish(partition, [])
    task.discard(partition, [])
    task.close([partition])
    task.stop()
    with pytest.raises(TypeError, match="put"):
        SinkTask()


@pytest.mark.parametrize("method", ["publish", "discard"])
def test_tokens_require_publish_and_discard(method: str) -> None:
    with pytest.raises(
        NotImplementedError, match=rf"Least passed tokens .* does not implement {method}\(\): t-0 has a, b"
    ):
        getattr(Least(), method)(TopicPartition("t", 0), [Token("a"), Token("b")])


def test_all_errors_are_connect_exceptions() -> None:
    errors = [getattr(sinksdk, name) for name in NAMES if name.endswith("Exception")]
    assert all(issubclass(error, ConnectException) for error in errors)
