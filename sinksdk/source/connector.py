"""The class that makes the configurations of source tasks, and says what they can guarantee."""

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
    """From a committed offset on, it gives the same records again, none twice and none less."""
    UNSUPPORTED = "UNSUPPORTED"
    """It does not: after a crash, records may be missing, or come again."""


class ConnectorTransactionBoundaries(StrEnum):
    """Whether a connector's tasks can say where their transactions end."""

    SUPPORTED = "SUPPORTED"
    """They do, through ``context.transaction_context()``."""
    UNSUPPORTED = "UNSUPPORTED"
    """They do not."""


class SourceConnector(Connector):
    """A named, configured job that writes topics from somewhere."""

    config_class: ClassVar[type[SourceConnectorConfig]] = SourceConnectorConfig
    """Model of the configuration; dotted names are aliases of its fields."""

    task_class: ClassVar[type[SourceTask]]
    """The class whose instances do the work, one per configuration that ``task_configs`` returns."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse hooks that could never take effect: coroutines, generators, misspelt names (TypeError)."""
        super().__init_subclass__(**options)
        check_hooks(cls, SourceConnector)
        check_classes(cls, SourceConnectorConfig, SourceTask)

    def exactly_once_support(self, config: Any) -> ExactlyOnceSupport | None:  # noqa: ARG002 - for overriding
        """Whether this source, configured so, can be read exactly once (KIP-618). Called before ``start``.

        None, the default: nobody has thought about it. Then, as with UNSUPPORTED, a configuration with
        ``exactly.once.support=required`` is refused. The records go through transactions in any case.
        """
        return None

    def can_define_transaction_boundaries(
        self,
        config: Any,  # noqa: ARG002 - for overriding
    ) -> ConnectorTransactionBoundaries:
        """Whether ``transaction.boundary=connector`` is possible. Called before ``start``. Default: no."""
        return ConnectorTransactionBoundaries.UNSUPPORTED

    def alter_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        offsets: Sequence[tuple[SourcePartition, SourceOffset | None]],  # noqa: ARG002 - the same
    ) -> bool:
        """Offsets are about to be altered (None: reset) by hand (KIP-875).

        Called while no task runs, before the offsets are written, without ``start``. It may be called again
        with the same offsets: it must be idempotent. It has ``connector.start.timeout.ms``. What it raises
        keeps everything as it is.

        Args:
            config: as ``start`` gets it.
            offsets: each source partition with its new offset.

        Returns:
            True when the connector moved its own outside offsets accordingly, False when it keeps none.

        Raises:
            ConnectException: the offsets cannot be altered to these.
        """
        return False

    def unmet(self, config: SourceConnectorConfig) -> list[str]:
        """What the configuration demands and this connector does not do, as sentences. No I/O."""
        found = []
        if config.exactly_once_support == "required":
            support = self.exactly_once_support(config)
            if support is not ExactlyOnceSupport.SUPPORTED:
                answer = "does not say" if support is None else "says no"
                found.append(
                    f"'exactly.once.support' is 'required', but {type(self).__name__} {answer} when it is "
                    f"asked whether it can be read exactly once; set it to 'requested' to run it all the same"
                )
        if config.transaction_boundary == "connector":
            boundaries = self.can_define_transaction_boundaries(config)
            if boundaries is not ConnectorTransactionBoundaries.SUPPORTED:
                found.append(
                    f"'transaction.boundary' is 'connector', but {type(self).__name__} does not say where "
                    f"transactions end; set it to 'poll' or 'interval'"
                )
        return found
