"""The test kit for authors of connectors: no Spark, no store, no waiting.

::

    SinkTaskHarness  FakeContext  ManualClock  MemoryCommitLog    run one sink task, step by step
    MemoryDestination  FaultPlan  Fault  FaultKind  Crash         a destination in memory, injected faults
    check_sink  Capabilities  Guarantee  Report  json_record      check a sink under faults in one line
    sink_machine  check_machine  SinkTaskMachine  Trial           check a sink with steps of your own
    replay  SinkContractError  KitError                           replay a failed schedule of a sink
    check_source  SourceCapabilities  MemoryOrigin  SourceReport  check a source under faults in one line
    replay_source  SourceContractError                            replay a failed schedule of a source
    ConnectorHarness                                              run a connector's class from start to stop

Only :func:`check_sink`, :func:`sink_machine` and :func:`check_machine` need Hypothesis
(``pip install sinksdk[testing]``); they import it when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinksdk.testing.check import Report, SinkOptions, check_machine, check_sink, replay, sink_machine
from sinksdk.testing.connector_harness import ConnectorHarness
from sinksdk.testing.contract import (
    Capabilities,
    Guarantee,
    KitError,
    SinkContractError,
    SourceContractError,
    bytes_record,
    json_record,
)
from sinksdk.testing.doubles import FakeContext, MemoryCommitLog, MemoryDestination, MemoryOrigin
from sinksdk.testing.faults import Crash, Fault, FaultKind, FaultPlan, ManualClock
from sinksdk.testing.harness import Call, SinkTaskHarness
from sinksdk.testing.source_kit.check import SourceOptions, SourceReport, check_source, replay_source
from sinksdk.testing.source_kit.subject import SourceCapabilities
from sinksdk.testing.trial import Trial

if TYPE_CHECKING:
    from sinksdk.testing.machine import SinkTaskMachine

__all__ = [
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


def __getattr__(name: str) -> Any:
    if name == "SinkTaskMachine":
        from sinksdk.testing.machine import SinkTaskMachine  # noqa: PLC0415 - it needs Hypothesis

        return SinkTaskMachine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
