"""Keys of every connector: name, timing, and error handling."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field

from sinksdk.offsets import is_topic_name
from sinksdk.settings.addresses import local_path
from sinksdk.support.java_regex import JavaRegexError, java_pattern

# A key with a percent-encoded name of this length stays below S3's limit of 1,024 bytes in any store.
LONGEST_NAME: Final = 450
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_DIRECTORY: Final = "errors.deadletterqueue.topic.directory"


class NameSettings(BaseModel):
    name: str = Field(min_length=1, description="Name of the connector; its state is stored under this name.")
    connector_class: str = Field(
        default="",
        alias="connector.class",
        description="An entry point's name, or module:Class of a connector.",
    )
    tasks_max: int = Field(
        default=1, ge=1, alias="tasks.max", description="Maximum number of tasks of a generation."
    )

    def name_problems(self) -> Iterator[str]:
        """Yield problems of the name."""
        if any(unicodedata.category(character) == "Cc" for character in self.name):
            yield "'name' must have no control characters"
        if self.name in (".", ".."):
            yield f"'name' must not be '{self.name}': no path of the REST interface could name it"
        if len(quote(self.name, safe="")) > LONGEST_NAME:
            yield (
                f"'name' is too long: at most {LONGEST_NAME} characters; one that is not ASCII counts as six "
                f"or more"
            )


class PaceSettings(BaseModel):
    offset_flush_interval_ms: int = Field(
        default=60_000,
        ge=1,
        alias="offset.flush.interval.ms",
        description="Milliseconds between periodic commits within a generation.",
    )
    closing_poll_ms: int | None = Field(
        default=None,
        ge=10,
        alias="closing.poll.ms",
        description="Milliseconds between a running task's checks for a close request, +-20 %. By default "
        "500 with a store in SQLite, 1,000 in PostgreSQL, 5,000 on S3.",
    )
    poll_interval_ms: int = Field(
        default=1_000,
        ge=10,
        alias="poll.interval.ms",
        description="Milliseconds between the driver's checks for new records while it is idle.",
    )
    graceful_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        alias="task.shutdown.graceful.timeout.ms",
        description="Milliseconds a generation may take to flush and commit after a close request; then its "
        "Spark job is cancelled. (Connect's 5,000 is too short for uploads.)",
    )
    connector_shutdown_timeout_ms: int = Field(
        default=5_000,
        ge=0,
        alias="connector.shutdown.graceful.timeout.ms",
        description="Milliseconds the connector's own `stop` may take; then its thread is abandoned and "
        "reported.",
    )
    connector_start_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        alias="connector.start.timeout.ms",
        description="Milliseconds the connector's own `start`, `subscribed` or `task_configs` may take; then "
        "its thread is abandoned, and the connector is FAILED.",
    )
    task_hang_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        alias="task.hang.timeout.ms",
        description="Milliseconds a task's own code (`put`, `pre_commit`, ...; of a source `start`, "
        "`commit`, `stop`, ..., but not `poll`, which may wait) may take to return; then the task is "
        "reported and has failed: the other tasks close, the driver cancels the job and starts a new one. "
        "Like Kafka's `max.poll.interval.ms`. 0: no limit.",
    )
    restart_max_attempts: int = Field(
        default=5,
        ge=0,
        alias="restart.max.attempts",
        description="How often a failed partition (of a source: a failed task) is opened again before the "
        "connector is FAILED: in a row, or within `restart.window.ms`.",
    )
    restart_backoff_ms: int = Field(
        default=1_000,
        ge=0,
        alias="restart.backoff.ms",
        description="Milliseconds before a failed partition (of a source: a failed task) is opened again, "
        "+-20 %; doubles with each attempt.",
    )
    restart_backoff_max_ms: int = Field(
        default=60_000,
        ge=0,
        alias="restart.backoff.max.ms",
        description="Maximum of `restart.backoff.ms` as it doubles, in milliseconds.",
    )
    restart_window_ms: int = Field(
        default=600_000,
        ge=0,
        alias="restart.window.ms",
        description="Milliseconds for which a failure counts, even if the partition made progress in "
        "between. With 0 only failures in a row count.",
    )


class RetrySettings(BaseModel):
    errors_retry_timeout: int = Field(
        default=300_000,
        ge=-1,
        alias="errors.retry.timeout",
        description="Milliseconds for which an operation that raised RetriableException is retried; -1 for "
        "no limit. Then its partition fails; no record is dropped. (Connect's 0 concerns converters only; it "
        "retries `put` without limit.)",
    )
    errors_retry_delay_max_ms: int = Field(
        default=60_000,
        ge=1,
        alias="errors.retry.delay.max.ms",
        description="Maximum milliseconds between two of these attempts; delays grow from 300.",
    )


class ErrorSettings(RetrySettings):
    errors_tolerance: Literal["none", "all"] = Field(
        default="none",
        alias="errors.tolerance",
        description="`none`: a record that cannot be converted or delivered fails its partition; "
        "`all`: it is skipped (and goes to the dead letters where they are configured).",
    )
    errors_log_enable: bool = Field(
        default=False, alias="errors.log.enable", description="Log each record that is skipped."
    )
    errors_log_include_messages: bool = Field(
        default=False,
        alias="errors.log.include.messages",
        description="With `errors.log.enable`, log the record's key and value as well.",
    )
    dead_letter_topic: str = Field(
        default="",
        alias=DEAD_LETTER_TOPIC,
        description="Topic for records that cannot be converted or delivered; none if not set. It is in the "
        "cluster or the topic directory of the records, unless "
        "`producer.override.bootstrap.servers` or `errors.deadletterqueue.topic.directory` names another.",
    )
    dead_letter_directory: str = Field(
        default="",
        alias=DEAD_LETTER_DIRECTORY,
        description="Topic directory of the dead letter topic: an absolute path or `file:` URL, the same on "
        "every executor. If not set: the records' own topic directory or cluster.",
    )
    dead_letter_replication_factor: int = Field(
        default=3,
        ge=-1,
        alias="errors.deadletterqueue.topic.replication.factor",
        description="Replicas of the dead letter topic if sinksdk creates it; -1 for the cluster's default.",
    )
    dead_letter_context_headers: bool = Field(
        default=False,
        alias="errors.deadletterqueue.context.headers.enable",
        description="Add headers with origin and error to each dead letter.",
    )
    dead_letter_max_consecutive: int = Field(
        default=1_000,
        ge=-1,
        alias="errors.deadletterqueue.max.consecutive",
        description="Maximum number of records of a partition that may fail in a row before the partition "
        "itself fails, dead letters or not; -1 for any number.",
    )
    dead_letter_max_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        alias="errors.deadletterqueue.max.share",
        description="Largest share of a partition's records in a generation that may fail before the "
        "partition itself fails, dead letters or not; checked from the 100th record on. 1 for any share.",
    )

    def dead_letter_problems(self, topics: tuple[str, ...], topics_regex: str | None) -> Iterator[str]:
        """Yield problems of the dead letter settings, as sentences that name their keys."""
        topic, directory = self.dead_letter_topic, self.dead_letter_directory
        if directory and not topic:
            yield f"'{DEAD_LETTER_DIRECTORY}' is set without a topic: name one with '{DEAD_LETTER_TOPIC}'"
        if directory and not directory.startswith(("/", "file:/")):
            yield (
                f"'{DEAD_LETTER_DIRECTORY}' is '{directory}': set it to the absolute path, or file: URL, of "
                f"a folder that every executor can access"
            )
        try:
            local_path(directory)
        except ValueError as error:
            yield f"'{DEAD_LETTER_DIRECTORY}' is '{directory}': it {error}"
        if not topic:
            return
        if not is_topic_name(topic):
            yield f"'{DEAD_LETTER_TOPIC}': '{topic}' is not a valid topic name"
        if topic in topics or (topics_regex and _matches(topics_regex, topic)):
            yield f"'{DEAD_LETTER_TOPIC}': the connector reads '{topic}' itself; name another topic"
        if self.dead_letter_replication_factor == 0:
            yield "'errors.deadletterqueue.topic.replication.factor' must be 1 or more, or -1"


def _matches(regex: str, topic: str) -> bool:
    try:
        return java_pattern(regex).fullmatch(topic) is not None
    except JavaRegexError:
        return False  # the check of 'topics.regex' reports this error
