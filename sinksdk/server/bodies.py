"""Bodies of requests and responses, in Kafka Connect's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sinksdk.control.offsets import Changes
from sinksdk.control.registry import texts
from sinksdk.control.shown import ConnectorInfo, TaskInfo
from sinksdk.errors import ConfigException
from sinksdk.model.status import Waiting
from sinksdk.offsets import TopicPartition
from sinksdk.plugins.checks import nested_problems, redacted
from sinksdk.plugins.classes import ConnectorType
from sinksdk.settings.texts import kind_of
from sinksdk.source.positions import SourcePosition
from sinksdk.store.reports import Scalar, Unavailable

RawConfig = dict[str, Scalar | list[Any] | dict[str, Any]]


def as_strings(config: RawConfig, connector_class: str = "") -> dict[str, str]:
    written = texts(config)
    nested = {key: kind for key, value in config.items() if (kind := kind_of(value)) is not None}
    if problems := nested_problems(nested, {"connector.class": connector_class, **written}):
        raise ConfigException(problems)
    return written


_Digits = Annotated[str, Field(pattern="^[0-9]{1,19}$")]


def _number(value: object) -> object:
    # As in Kafka Connect, "7" is accepted, but true and 7.0 are not.
    if type(value) is int or (isinstance(value, str) and value.isascii() and value.isdigit()):
        return value
    raise ValueError("must be a whole number")


_Int32 = Annotated[int, Field(ge=0, lt=2**31)]
_Int64 = Annotated[int, Field(ge=0, lt=2**63)]

Partition = Annotated[_Int32, BeforeValidator(_number, json_schema_input_type=_Int32 | _Digits)]

Offset = Annotated[_Int64, BeforeValidator(_number, json_schema_input_type=_Int64 | _Digits)]


class Body(BaseModel):
    model_config = ConfigDict(frozen=True)


class CreateConnector(Body):
    """Body of ``POST /connectors``; ``initial_state`` as in KIP-980."""

    name: str | None = None
    config: RawConfig
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] | None = None


class TaskId(Body):
    connector: str
    task: int


class Connector(Body):
    """A connector with its configuration; secrets are hidden."""

    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: ConnectorType


class State(Body):
    state: str
    worker_id: str
    trace: str | None = None


class ConnectorState(State):
    """State of a connector; Kafka Connect lacks ``waiting`` and ``unavailable``."""

    waiting: Waiting | None = None
    unavailable: list[Unavailable] | None = Field(
        default=None, description="Partitions without a leader: at most the first 100."
    )


class TaskState(State):
    id: int


class Status(Body):
    """Response of ``GET /connectors/{name}/status``."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: ConnectorType


class Expanded(Body):
    """A connector of ``GET /connectors?expand=status&expand=info``."""

    status: Status | None = None
    info: Connector | None = None


class TaskConfig(Body):
    """An element of ``GET /connectors/{name}/tasks``."""

    id: TaskId
    config: dict[str, str]


class KafkaPartition(Body):
    """A topic partition in KIP-875's form."""

    kafka_topic: str = Field(min_length=1)
    kafka_partition: Partition


class KafkaOffset(Body):
    """The next offset to read."""

    kafka_offset: Offset


class PartitionOffset(Body):
    """A partition's offset; null resets it."""

    partition: KafkaPartition
    offset: KafkaOffset | None = None


class Offsets(Body):
    """Response of ``GET /connectors/{name}/offsets`` for a sink."""

    offsets: list[PartitionOffset]

    def by_partition(self) -> dict[TopicPartition, int | None]:
        return {
            TopicPartition(row.partition.kafka_topic, row.partition.kafka_partition): (
                row.offset.kafka_offset if row.offset else None
            )
            for row in self.offsets
        }

    @classmethod
    def of(cls, offsets: dict[TopicPartition, int]) -> Offsets:
        return cls(
            offsets=[
                PartitionOffset(
                    partition=KafkaPartition(kafka_topic=p.topic, kafka_partition=p.partition),
                    offset=KafkaOffset(kafka_offset=offset),
                )
                for p, offset in sorted(offsets.items())
            ]
        )


class SourcePartitionOffset(Body):
    """A source partition's offset; null resets it."""

    partition: dict[str, Scalar]
    offset: dict[str, Scalar] | None = None


class SourceOffsetsBody(Body):
    """Response of ``GET /connectors/{name}/offsets`` for a source."""

    offsets: list[SourcePartitionOffset]

    @classmethod
    def of(cls, positions: Sequence[SourcePosition]) -> SourceOffsetsBody:
        return cls(
            offsets=[
                SourcePartitionOffset(partition=dict(partition), offset=dict(offset))
                for partition, offset in positions
            ]
        )


class AlterAnyOffsets(Body):
    """Body of ``PATCH /connectors/{name}/offsets``: at least one offset."""

    offsets: list[SourcePartitionOffset] = Field(min_length=1)

    def of_sink(self) -> dict[TopicPartition, int | None]:
        try:
            return Offsets.model_validate(self.model_dump()).by_partition()
        except ValidationError as error:
            raise ConfigException(
                [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            ) from error

    def of_source(self) -> Changes:
        return [(row.partition, row.offset) for row in self.offsets]


class Message(Body):
    message: str


class Error(Body):
    """An error in Kafka Connect's form."""

    error_code: int
    message: str


class ActiveTopics(Body):
    """Topics of which the connector has read records."""

    topics: list[str]


class Plugin(Body):
    """An element of ``GET /connector-plugins``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    class_: str = Field(alias="class")
    type: ConnectorType
    version: str


# The eleven attributes are those of KIP-769.
class ConfigDefinition(Body):
    """Definition of a configuration key (KIP-769)."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: Literal["HIGH", "MEDIUM", "LOW"]
    documentation: str
    group: str | None = None
    width: str = "NONE"
    display_name: str
    dependents: list[str] = []
    order: int = -1


class ConfigValue(Body):
    """A key's value with its problems.

    Kafka Connect lacks ``warnings``: they do not prevent the start, such as a key without effect, which may
    be misspelt.
    """

    name: str
    value: str | None
    recommended_values: list[str] = []
    errors: list[str] = []
    warnings: list[str] = []
    visible: bool = True


class ConfigInfo(Body):
    """A configuration key; without a definition if the connector does not have it."""

    definition: ConfigDefinition | None
    value: ConfigValue


class ConfigInfos(Body):
    """Response of ``PUT /connector-plugins/{plugin}/config/validate``."""

    name: str
    error_count: int
    groups: list[str] = []
    configs: list[ConfigInfo]


class Level(Body):
    """Body of ``PUT /admin/loggers/{name}``."""

    level: str


class LoggerLevel(Body):
    """A logger's level; ``last_modified`` (KIP-976) is unknown."""

    level: str
    last_modified: int | None = None


class ServerInfo(Body):
    """Response of ``GET /``."""

    version: str
    commit: str
    kafka_cluster_id: str


class Alive(Body):
    """Response of ``GET /live``."""

    status: Literal["alive"] = "alive"


class Health(Body):
    """Response of ``GET /health`` and ``GET /ready``."""

    status: Literal["healthy", "unhealthy"]
    message: str


def connector_body(info: ConnectorInfo) -> Connector:
    tasks = [TaskId(connector=info.name, task=task.number) for task in info.tasks]
    return Connector(name=info.name, config=redacted(info.config), tasks=tasks, type=info.type)


def status_body(info: ConnectorInfo) -> Status:
    return Status(
        name=info.name,
        connector=ConnectorState(
            state=info.state,
            worker_id=info.driver,
            trace=info.trace,
            waiting=info.waiting,
            unavailable=list(info.unavailable) or None,
        ),
        tasks=[task_state(task, info.driver) for task in info.tasks],
        type=info.type,
    )


def task_state(task: TaskInfo, driver: str) -> TaskState:
    return TaskState(id=task.number, state=task.state, worker_id=driver, trace=task.trace)
