"""What becomes of bad records: the part of every connector's configuration that is about errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import BaseModel, Field

DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class RetrySettings(BaseModel):
    """How long an operation that may yet succeed is tried again, under Connect's names."""

    errors_retry_timeout: int = Field(
        default=300_000,
        ge=-1,
        alias="errors.retry.timeout",
        description="Milliseconds for which an operation that raised RetriableException is tried again; "
        "-1 for ever. Then its partition fails; a record is never dropped for it. (Connect's 0 "
        "concerns converters only; its put is retried for ever.)",
    )
    errors_retry_delay_max_ms: int = Field(
        default=60_000,
        ge=1,
        alias="errors.retry.delay.max.ms",
        description="Most milliseconds between two of these attempts; delays grow from 300.",
    )


class ErrorSettings(RetrySettings):
    """Tolerance, dead letters and their ceiling besides, under Connect's names where it has one."""

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
        description="Kafka topic for records that cannot be converted or delivered; none if not set.",
    )
    dead_letter_replication_factor: int = Field(
        default=3,
        ge=-1,
        alias="errors.deadletterqueue.topic.replication.factor",
        description="Replicas of the dead letter topic, should it have to be created; -1 for the cluster's "
        "own default.",
    )
    dead_letter_context_headers: bool = Field(
        default=False,
        alias="errors.deadletterqueue.context.headers.enable",
        description="Tell in headers of each dead letter where it comes from and what was wrong with it.",
    )
    dead_letter_max_consecutive: int = Field(
        default=1_000,
        ge=-1,
        alias="errors.deadletterqueue.max.consecutive",
        description="Most records of a partition that may fail in a row before the partition itself fails, "
        "dead letters or not; -1 for any number.",
    )
    dead_letter_max_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        alias="errors.deadletterqueue.max.share",
        description="Largest share of a partition's records in a generation that may fail before the "
        "partition itself fails, dead letters or not; looked at from the 100th record on. 1 for any share.",
    )

    def dead_letter_problems(self, topics: tuple[str, ...], topics_regex: str | None) -> Iterator[str]:
        """What is wrong with the dead letters, as sentences that name their keys."""
        topic = self.dead_letter_topic
        if not topic:
            return
        if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            yield f"'{DEAD_LETTER_TOPIC}': '{topic}' cannot be the name of a topic"
        if topic in topics or (topics_regex and _matches(topics_regex, topic)):
            yield f"'{DEAD_LETTER_TOPIC}': the connector reads '{topic}' itself; name another topic"
        if self.dead_letter_replication_factor == 0:
            yield "'errors.deadletterqueue.topic.replication.factor' must be 1 or more, or -1"


def _matches(regex: str, topic: str) -> bool:
    try:
        return re.fullmatch(regex, topic) is not None
    except re.error:
        return False  # said of 'topics.regex' itself
