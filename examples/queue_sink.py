"""Sends records to an SQS queue of its own, created when the connector starts and removed when it is
deleted."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import Field

from sinksdk import (
    ConfigException,
    ConnectException,
    ConnectorConfig,
    RetriableException,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
)

MESSAGES = 10  # per batch: SQS's limit


class QueueConfig(ConnectorConfig):
    queue_prefix: str = Field(
        alias="queue.prefix",
        pattern=r"^[\w-]{1,47}$",
        description="Prefix of the queue's name; the connector's incarnation follows.",
    )
    sqs_endpoint: str | None = Field(
        default=None, alias="sqs.endpoint", description="URL of the endpoint, if it is not AWS."
    )
    sqs_region: str = Field(default="us-east-1", alias="sqs.region", description="Region of the queue.")
    queue_url: str = Field(default="", alias="queue.url", description="Set by the connector.")

    def connect(self) -> Any:
        return boto3.client("sqs", endpoint_url=self.sqs_endpoint, region_name=self.sqs_region)


class QueueTask(SinkTask):
    def start(self, config: QueueConfig) -> None:
        self.config = config
        self.sqs = config.connect()

    def put(self, records: SinkRecords) -> None:
        """Sent records are durable, so the default `pre_commit` commits them. A retry sends them twice."""
        messages = [message_of(row, record) for row, record in enumerate(records)]
        for start in range(0, len(messages), MESSAGES):
            self.send(messages[start : start + MESSAGES])

    def send(self, messages: Sequence[Mapping[str, str]]) -> None:
        try:
            response = self.sqs.send_message_batch(QueueUrl=self.config.queue_url, Entries=messages)
        except (BotoCoreError, ClientError) as error:
            raise RetriableException(f"{self.config.queue_url}: {error}") from error
        for failed in response.get("Failed", ()):
            kind = ConnectException if failed["SenderFault"] else RetriableException
            offset = failed["Id"].partition("-")[0]
            raise kind(f"{self.config.queue_url}: offset {offset}: {failed.get('Message')}")

    def stop(self) -> None:
        if hasattr(self, "sqs"):  # start may have failed
            self.sqs.close()


def message_of(row: int, record: SinkRecord) -> dict[str, str]:
    """Return a message with a unique id, also for records of one offset, which a transform may create."""
    content = {name: getattr(record, name) for name in ("topic", "partition", "offset", "value")}
    return {"Id": f"{record.offset}-{row}", "MessageBody": json.dumps(content)}


class QueueSink(SinkConnector):
    config_class, task_class = QueueConfig, QueueTask

    def start(self, config: QueueConfig) -> None:
        self.config = config
        try:
            self.sqs = config.connect()
            created = self.sqs.create_queue(QueueName=self.queue)  # an existing one is left unchanged
        except (BotoCoreError, ClientError, ValueError) as error:
            raise ConfigException(f"cannot create the queue {self.queue}: {error}") from error
        self.url = created["QueueUrl"]

    @property
    def queue(self) -> str:
        """The queue's name: a connector of the same name created later has another incarnation."""
        return f"{self.config.queue_prefix}-{self.identity.incarnation}"

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"queue.url": self.url}] * max_tasks

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        if not hasattr(self, "sqs"):
            return  # start failed before it created the queue
        try:
            if is_deleted:
                self.remove_queue()
        finally:
            self.sqs.close()

    def remove_queue(self) -> None:
        """Find the queue by its name: this process may not have created it."""
        try:
            url = self.sqs.get_queue_url(QueueName=self.queue)["QueueUrl"]
            self.sqs.delete_queue(QueueUrl=url)
        except self.sqs.exceptions.QueueDoesNotExist:
            return  # already removed
