"""Store, topics and Spark that the connectors of a process share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sinksdk.control.progress import Listener
from sinksdk.control.requests import ClosingSignal
from sinksdk.launch.connectors import Launchers, PreparedConnector, check_and_prepare
from sinksdk.launch.idle import connector_to_delete, group_to_delete, read_ends
from sinksdk.launch.topics import Topics
from sinksdk.runtime.backoff import Waits
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import Driver, WorkerConnector
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.spark.options import SparkSettings
from sinksdk.store import Store


@dataclass(frozen=True, slots=True)
class Deployment:
    topics: Topics
    store: Store
    # Passed to executors: absolute, with unresolved references.
    store_url: str
    spark: SparkSettings
    providers: ConfigProviders = ALL_PROVIDERS

    def worker(
        self,
        name: str,
        launchers: Launchers,
        listener: Listener,
        *,
        first: PreparedConnector | None = None,
        signal: ClosingSignal | None = None,
    ) -> WorkerConnector:
        environment = Environment(self.store, signal=signal or ClosingSignal())
        environment = replace(
            environment,
            waits=Waits(f"connector {name}", environment.clock),
            requests=environment.requests_for(name),
        )
        # Only ``sinksdk run`` brings a configuration, and ends after failures. A server's connectors have
        # theirs in the store.
        raw = first.checked.raw if first is not None else {}

        def driver(environment: Environment) -> Driver:
            config = environment.record.config if environment.record is not None else raw
            ready = check_and_prepare(self.topics, config, self.providers)
            return ready.driver(environment, launchers, listener)

        return WorkerConnector(
            environment,
            name,
            driver,
            Openers(
                partial(connector_to_delete, providers=self.providers),
                partial(group_to_delete, self.topics, providers=self.providers),
                partial(read_ends, self.topics, providers=self.providers),
            ),
            first=first.driver(environment, launchers, listener) if first is not None else None,
            brings_config=first is not None,
            stays=first is None,
        )
