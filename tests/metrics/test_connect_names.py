"""Every metric that Kafka Connect documents exists under its name, or is left out with a reason."""

from __future__ import annotations

from docs.generate import LEFT_OUT
from sinksdk.metrics.connect import CONNECT_METRICS
from sinksdk.metrics.own import OWN_METRICS

DOCUMENTED = {
    "connect-worker-metrics": (
        *("connector-count", "task-count", "connector-startup-attempts-total"),
        *("connector-startup-failure-percentage", "connector-startup-failure-total"),
        *("connector-startup-success-percentage", "connector-startup-success-total"),
        *("task-startup-attempts-total", "task-startup-failure-percentage", "task-startup-failure-total"),
        *("task-startup-success-percentage", "task-startup-success-total"),
        *("connector-destroyed-task-count", "connector-failed-task-count", "connector-paused-task-count"),
        *("connector-restarting-task-count", "connector-running-task-count", "connector-total-task-count"),
        "connector-unassigned-task-count",
    ),
    "connect-worker-rebalance-metrics": (
        *("completed-rebalances-total", "connect-protocol", "epoch", "leader-name"),
        *("rebalance-avg-time-ms", "rebalance-max-time-ms", "rebalancing", "time-since-last-rebalance-ms"),
    ),
    "connector-metrics": ("connector-class", "connector-type", "connector-version", "status"),
    "connector-task-metrics": (
        *("batch-size-avg", "batch-size-max", "offset-commit-avg-time-ms", "offset-commit-max-time-ms"),
        *("offset-commit-failure-percentage", "offset-commit-success-percentage"),
        *("pause-ratio", "running-ratio", "status"),
    ),
    "sink-task-metrics": (
        *("offset-commit-completion-rate", "offset-commit-completion-total", "offset-commit-seq-no"),
        *("offset-commit-skip-rate", "offset-commit-skip-total", "partition-count"),
        *("put-batch-avg-time-ms", "put-batch-max-time-ms"),
        *("sink-record-active-count", "sink-record-active-count-avg", "sink-record-active-count-max"),
        *("sink-record-lag-max", "sink-record-read-rate", "sink-record-read-total"),
        *("sink-record-send-rate", "sink-record-send-total"),
    ),
    "source-task-metrics": (
        *("poll-batch-avg-time-ms", "poll-batch-max-time-ms"),
        *("source-record-active-count", "source-record-active-count-avg", "source-record-active-count-max"),
        *("source-record-poll-rate", "source-record-poll-total"),
        *("source-record-write-rate", "source-record-write-total"),
        *("transaction-size-avg", "transaction-size-max", "transaction-size-min"),
    ),
    "task-error-metrics": (
        *("deadletterqueue-produce-failures", "deadletterqueue-produce-requests", "last-error-timestamp"),
        *("total-errors-logged", "total-record-errors", "total-record-failures", "total-records-skipped"),
        "total-retries",
    ),
}
"""Kafka 4's generated page of Connect's metrics."""

ALL_DOCUMENTED = {(group, attribute) for group, names in DOCUMENTED.items() for attribute in names}
HERE = {(metric.group, metric.attribute) for metric in CONNECT_METRICS}


def test_each_metric_of_connect_is_exported_or_omitted_with_a_reason() -> None:
    assert HERE | LEFT_OUT.keys() == ALL_DOCUMENTED
    assert HERE & LEFT_OUT.keys() == set()


def test_connects_groups_have_only_connects_metrics() -> None:
    assert HERE <= ALL_DOCUMENTED


def test_metric_names_equal_the_jmx_exporters() -> None:
    names = {metric.prometheus_name for metric in CONNECT_METRICS}
    assert {
        "kafka_connect_sink_task_metrics_put_batch_avg_time_ms",
        "kafka_connect_sink_task_metrics_sink_record_read_total",
        "kafka_connect_connector_task_metrics_offset_commit_success_percentage",
        "kafka_connect_task_error_metrics_total_record_errors",
        "kafka_connect_connect_worker_metrics_connector_count",
        "kafka_connect_connector_metrics_status",
    } <= names


def test_names_are_unique_and_counters_end_in_total() -> None:
    # Prometheus renames a counter without the ending _total, so metrics with Connect's names are untyped.
    metrics = (*CONNECT_METRICS, *OWN_METRICS)
    assert len({metric.prometheus_name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert (metric.kind == "counter") == metric.prometheus_name.endswith("_total"), metric.prometheus_name


def test_own_metrics_begin_with_sinksdk() -> None:
    assert all(metric.prometheus_name.startswith("sinksdk_") for metric in OWN_METRICS)
