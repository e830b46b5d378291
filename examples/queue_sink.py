"""Sends records to an SQS queue of its own, which it makes when it starts and removes when it is deleted."""

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

MESSAGES = 10  # of a batch, at most: SQS's own limit


class QueueConfig(ConnectorConfig):
    queue_prefix: str = Field(
        alias="queue.prefix",
        pattern=r"^[\w-]{1,47}$",
        description="What the queue's name begins with; the connector's incarnation follows.",
    )
    sqs_endpoint: str | None = Field(default=None, alias="sqs.endpoint", description="Not on AWS: its URL.")
    sqs_region: str = Field(default="us-east-1", alias="sqs.region", description="Region of the queue.")
    queue_url: str = Field(default="", alias="queue.url", description="Told to the tasks by the connector.")

    def connect(self) -> Any:
        return boto3.client("sqs", endpoint_url=self.sqs_endpoint, region_name=self.sqs_region)


class QueueTask(SinkTask):
    def start(self, config: QueueConfig) -> None:
        self.config = config
        self.sqs = config.connect()

    def put(self, records: SinkRecords) -> None:
        """What is sent is durable, and committed by the default `pre_commit`. A retry sends it twice."""
        messages = [message_of(row, record) for row, record in enumerate(records)]
        for start in range(0, len(messages), MESSAGES):
            self.send(messages[start : start + MESSAGES])

    def send(self, messages: Sequence[Mapping[str, str]]) -> None:
        try:
            answer = self.sqs.send_message_batch(QueueUrl=self.config.queue_url, Entries=messages)
        except (BotoCoreError, ClientError) as error:
            raise RetriableException(f"{self.config.queue_url}: {error}") from error
        for failed in answer.get("Failed", ()):
            kind = ConnectException if failed["SenderFault"] else RetriableException
            offset = failed["Id"].partition("-")[0]
            raise kind(f"{self.config.queue_url}: offset {offset}: {failed.get('Message')}")

    def stop(self) -> None:
        if hasattr(self, "sqs"):  # start may have failed
            self.sqs.close()


def message_of(row: int, record: SinkRecord) -> dict[str, str]:
    """With an id of its own also where a transform has made several records of an offset."""
    content = {name: getattr(record, name) for name in ("topic", "partition", "offset", "value")}
    return {"Id": f"{record.offset}-{row}", "MessageBody": json.dumps(content)}


class QueueSink(SinkConnector):
    config_class, task_class = QueueConfig, QueueTask

    def start(self, config: QueueConfig) -> None:
        self.config = config
        try:
            self.sqs = config.connect()
            made = self.sqs.create_queue(QueueName=self.queue)  # one that is there is left as it is
        except (BotoCoreError, ClientError, ValueError) as error:
            raise ConfigException(f"the queue {self.queue} cannot be made: {error}") from error
        self.url = made["QueueUrl"]

    @property
    def queue(self) -> str:
        """One for each incarnation: a connector of this name that is created later has another one."""
        return f"{self.config.queue_prefix}-{self.identity.incarnation}"

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"queue.url": self.url}] * max_tasks

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        if not hasattr(self, "sqs"):
            return  # start did not get that far, and made nothing
        try:
            if is_deleted:
                self.remove_queue()
        finally:
            self.sqs.close()

    def remove_queue(self) -> None:
        """Found by its name: who deletes a connector that does not run, or after a crash, did not make it."""
        try:
            url = self.sqs.get_queue_url(QueueName=self.queue)["QueueUrl"]
            self.sqs.delete_queue(QueueUrl=url)
        except self.sqs.exceptions.QueueDoesNotExist:
            return  # it was removed before
