"""The class that creates the configurations of source tasks, and declares what they guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from sinksdk.connector import Connector, check_classes
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.task import SourceTask
from sinksdk.support.hooks import check_hooks

if TYPE_CHECKING:
    from sinksdk.source.records import SourceOffset, SourcePartition


class ExactlyOnceSupport(StrEnum):
    """Whether a source can be read exactly once."""

    SUPPORTED = "SUPPORTED"
    """Reading from a committed offset returns the same records again, none twice and none missing."""
    UNSUPPORTED = "UNSUPPORTED"
    """After a crash, records may be missing or come twice."""


class ConnectorTransactionBoundaries(StrEnum):
    """Whether a connector's tasks can say where their transactions end."""

    SUPPORTED = "SUPPORTED"
    """They define them through ``context.transaction_context()``."""
    UNSUPPORTED = "UNSUPPORTED"
    """The runtime ends transactions."""


class SourceConnector(Connector):
    """A named, configured job that writes records from a source to topics."""

    config_class: ClassVar[type[SourceConnectorConfig]] = SourceConnectorConfig
    """Model of the configuration; dotted names are aliases of its fields."""

    task_class: ClassVar[type[SourceTask]]
    """The class whose instances do the work, one per configuration that ``task_configs`` returns."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for hooks without effect: coroutines, generators, misspelt names."""
        super().__init_subclass__(**options)
        check_hooks(cls, SourceConnector)
        check_classes(cls, SourceConnectorConfig, SourceTask)

    def exactly_once_support(self, config: Any) -> ExactlyOnceSupport | None:  # noqa: ARG002 - for overriding
        """Whether this source can be read exactly once with this configuration (KIP-618).

        Called before ``start``. None, the default, is treated as UNSUPPORTED: a configuration with
        ``exactly.once.support=required`` is refused. Records are written in transactions in any case.
        """
        return None

    def can_define_transaction_boundaries(
        self,
        config: Any,  # noqa: ARG002 - for overriding
    ) -> ConnectorTransactionBoundaries:
        """Whether ``transaction.boundary=connector`` is supported (default: no). Called before ``start``."""
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        offsets: Sequence[tuple[SourcePartition, SourceOffset | None]],  # noqa: ARG002 - the same
    ) -> bool:
        """Called before an operator's request to alter or reset offsets is stored (KIP-875).

        No task runs meanwhile, and ``start`` was not called. The call may be repeated with the same offsets,
        so it must be idempotent. It must return within ``connector.start.timeout.ms``. An exception leaves
        the stored offsets unchanged.

        Args:
            config: the same as for ``start``.
            offsets: each source partition with its new offset; None resets it.

        Returns:
            True if the connector altered offsets that it keeps outside, False if it keeps none.

        Raises:
            ConnectException: the offsets cannot be altered to these.
        """
        return False

    def unmet(self, config: SourceConnectorConfig) -> list[str]:
        """Requirements of the configuration that this connector does not meet, as sentences. No I/O."""
        found = []
        if config.exactly_once_support == "required":
            support = self.exactly_once_support(config)
            if support is not ExactlyOnceSupport.SUPPORTED:
                verb = "does not declare that it supports" if support is None else "does not support"
                found.append(
                    f"'exactly.once.support' is 'required', but {type(self).__name__} {verb} exactly-once "
                    f"reading; set it to 'requested' to run the connector without that guarantee"
                )
        if config.transaction_boundary == "connector":
            boundaries = self.can_define_transaction_boundaries(config)
            if boundaries is not ConnectorTransactionBoundaries.SUPPORTED:
                found.append(
                    f"'transaction.boundary' is 'connector', but {type(self).__name__} does not define "
                    f"transaction boundaries; set it to 'poll' or 'interval'"
                )
        return found
