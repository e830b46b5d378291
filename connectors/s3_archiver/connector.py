"""The connector: checks the bucket before anything starts, and claims the topics' archives.

An owner marker per topic keeps other connectors, and one that has lost its store, from archiving the topic
twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from sinksdk import (
    BatchPolicy,
    ConfigException,
    ConnectException,
    SinkConnector,
    SinkTask,
    TopicPartition,
)
from sinksdk.connectors.s3_archiver.archive.layout import hidden_warning, topic_problem
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.partitioners.checks import key_problems
from sinksdk.connectors.s3_archiver.s3.client import S3, Abilities
from sinksdk.connectors.s3_archiver.s3.endpoint import Retries, find_abilities, probe, sweep
from sinksdk.connectors.s3_archiver.s3.errors import (
    S3Error,
    S3TransientError,
    inaccessible_bucket,
)
from sinksdk.connectors.s3_archiver.s3.owners import Owners
from sinksdk.connectors.s3_archiver.s3.publisher import Publisher
from sinksdk.connectors.s3_archiver.s3.requests import Connect, Together, connect, together
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.extent import above, problems_of, recovered

log = logging.getLogger(__name__)


class S3ArchiverConnector(SinkConnector):
    """Archives Kafka topics as files on S3, exactly once, and commits on close."""

    config_class: ClassVar[type[S3ArchiverConfig]] = S3ArchiverConfig
    task_class: ClassVar[type[SinkTask]] = S3ArchiverTask

    def __init__(
        self,
        *,
        connect: Connect = connect,
        retries: Retries | None = None,
        together: Together = together,
    ) -> None:
        self._connect = connect
        self._together = together
        self._retries = retries or Retries()
        self._owners: Owners | None = None
        self._abilities: Abilities | None = None
        self._longest = ""
        self._warned: set[str] = set()
        self._given: Mapping[TopicPartition, int] = {}

    def start(self, config: S3ArchiverConfig) -> None:
        s3 = self._connect(config)
        self._config = config
        # Set first: after a failed start, stop() must still release the markers of a deleted connector.
        self._owners = Owners(s3, config.s3_bucket_name, config.layout(), self.identity)
        try:
            self._started = s3.head_bucket(config.s3_bucket_name)
        except (S3Error, S3TransientError) as error:
            endpoint = config.store_url or f"AWS S3, region {config.s3_region}"
            problem = inaccessible_bucket(config.s3_bucket_name, endpoint, error)
            if isinstance(error, S3TransientError):
                raise S3TransientError(problem, error.code) from error
            raise ConfigException(problem) from error
        self._claim(self._owners, config.topics)

    def subscribed(self, topics: Collection[str]) -> None:
        owners = self._owners
        if owners is None:
            raise ValueError("subscribed() must be called after start()")
        # The topics that match ``topics.regex`` are known only now.
        self._claim(owners, topics)
        self._expect_nothing_above(owners.s3, topics)
        commits = self.context.committed()
        named = {token.id for commit in commits.values() for token in commit.tokens}
        sweep(owners.s3, self._config, owners.layout, topics, claimed=self._started, named=named)

    def alter_offsets(self, config: S3ArchiverConfig, offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Refuse offsets from which records would be archived twice."""
        commits = self.context.committed()
        problems = problems_of(self._connect(config), config, offsets, commits, self._given)
        if problems:
            raise ConnectException("; ".join(problems))
        return False

    def recover_offsets(
        self, config: S3ArchiverConfig, given: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Take over the archive after a store or files were lost or restored; return where it ends."""
        s3 = self._connect(config)
        owners = Owners(s3, config.s3_bucket_name, config.layout(), self.identity)
        topics = config.topics or owners.topics()
        commits, publisher = self.context.committed(), Publisher(config, self._connect, self._together)
        # A commit cannot be published if its records were archived again under the same keys: it is given up.
        visible = {
            partition: publisher.replaced(commit.tokens, self.identity.connector)
            for partition, commit in commits.items()
            if commit.tokens
        }
        offsets = recovered(s3, config, topics, given, commits=commits, replaced=visible)
        # The operator has confirmed that no other connector writes to these topics' folders.
        owners.take_over(topics)
        self._given = {partition: offset for partition, offset in given.items() if partition in offsets}
        return offsets

    def _expect_nothing_above(self, s3: S3, topics: Collection[str]) -> None:
        """Refuse to start from commits that are older than the archive."""
        try:
            problems = above(s3, self._config, topics, self.context.committed)
        except S3Error as error:
            raise ConfigException(f"the archive cannot be compared with the commits: {error}") from error
        if problems:
            raise ConfigException(
                f"the archive holds files that the store of connector {self._config.name} has not committed: "
                f"{'; '.join(problems)}. Was the store lost, or restored from an older copy? Continuing "
                f"would archive these records twice; nothing was written. 'sinksdk offsets recover CONFIG' "
                f"commits the records in the archive; or move these files out of the topics' folders, and "
                f"start again"
            )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        found = self._abilities
        if found is None or found == self._config.abilities():
            return [{} for _ in range(max_tasks)]
        # Tasks receive the abilities that the start found, and do not test the endpoint themselves.
        settings = {
            "s3.checksum": found.checksum.value,
            "s3.conditional.writes": str(found.has_conditions).lower(),
        }
        return [settings for _ in range(max_tasks)]

    def _claim(self, owners: Owners, topics: Collection[str]) -> None:
        # Checked before any marker is written, because a marker would lock others out of a topic that this
        # connector cannot archive.
        wrong = [why for topic in topics if (why := topic_problem(topic))]
        if wrong := wrong or list(key_problems(self._config, topics)):
            raise ConfigException(wrong)
        if self._config.topics_regex:  # the configuration has warned of topics that it names
            for warning in hidden_warning(set(topics) - self._warned):
                log.warning("connector %s: %s", self._config.name, warning)
            self._warned |= set(topics)
        try:
            owners.claim(topics)
        except S3Error as error:
            raise ConfigException(f"the owner markers cannot be checked: {error}") from error
        # S3 limits the length of keys: the test of uploads uses the longest topic name.
        longest = max(topics, key=len, default="")
        if len(longest) > len(self._longest):
            if self._abilities is None:
                self._abilities = find_abilities(
                    owners.s3, self._config, owners.layout, self.identity.incarnation, self._retries
                )
            probe(
                owners.s3,
                self._config,
                owners.layout,
                longest,
                checksum=self._abilities.checksum,
                retries=self._retries,
            )
            self._longest = longest

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        if is_deleted and self._owners is not None:
            self._owners.release()

    def unmet(self, config: S3ArchiverConfig) -> Sequence[str]:
        return config.untyped()

    def batch_policy(self, config: S3ArchiverConfig) -> BatchPolicy:
        return config.policy()
