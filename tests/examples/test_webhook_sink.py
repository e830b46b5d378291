"""The HTTP sink against a real server, with every kind of response."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples import test_sinks, webhook_sink
from examples.webhook_receiver import Endpoint, Mishap, server_of
from examples.webhook_sink import WebhookConfig, WebhookTask, seconds_in
from sinksdk import ConfigException, RetriableException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.plugins.checks import check_file
from sinksdk.testing import FaultPlan, Guarantee, SinkOptions, SinkTaskHarness, check_sink
from tests.engine.sinks import Letters

P0 = TopicPartition("readings", 0)
TAKEN = Mishap(is_accepted=True)  # the endpoint accepts the request
LOST = Mishap(is_accepted=True, is_lost=True)


class Site:
    """An endpoint, and a task that posts to it."""

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        self.endpoint, self.url = endpoint, url
        self.letters = Letters()
        self.harness = self.harness_of()
        self.harness.assign(P0)

    def config(self, **others: str) -> WebhookConfig:
        keys = {"name": "test", "topics": "readings", "key.converter": "string", "value.converter": "json"}
        others = {name.replace("_", "."): value for name, value in others.items()}
        return WebhookConfig.parse({**keys, "errors.tolerance": "all", "endpoint.url": self.url, **others})

    def harness_of(self, **others: str) -> SinkTaskHarness:
        harness = SinkTaskHarness(WebhookTask, self.config(**others), dead_letters=self.letters)
        harness.start()
        return harness

    def configure(self, **others: str) -> None:
        self.harness = self.harness_of(**others)
        self.harness.assign(P0)

    def deliver(self, *celsius: object) -> None:
        self.harness.deliver(P0, [json.dumps({"celsius": item}) for item in celsius])

    def accepted(self) -> list[int]:
        return [event["offset"] for event in self.endpoint.events.values()]

    def posted(self) -> list[list[int]]:
        return [[event["offset"] for event in events] for _, events in self.endpoint.requests]

    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.endpoint.requests]


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[str]:
    with server_of(endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/readings"
        server.shutdown()
        thread.join(10)


@pytest.fixture
def site() -> Iterator[Site]:
    endpoint = Endpoint()
    with serving(endpoint) as url:
        yield Site(endpoint, url)


# -- what is posted ------------------------------------------------------------------------------------


def test_records_are_posted_with_their_ids_and_committed(site: Site) -> None:
    record = SinkRecord(*P0, 0, b"a", b'{"celsius": 1}', 1_700_000_000_000)
    site.harness.deliver(P0, [record, SinkRecord(*P0, 1, b"a", None)])
    site.harness.stop()
    assert list(site.endpoint.events.values()) == [
        {
            "id": "readings-0-0",
            "topic": "readings",
            "partition": 0,
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "key": "a",
            "value": {"celsius": 1},
        },
        {
            "id": "readings-0-1",
            "topic": "readings",
            "partition": 0,
            "offset": 1,
            "timestamp": None,
            "key": "a",
            "value": None,
        },
    ]
    assert site.harness.committed[P0].offset == 2


@pytest.mark.parametrize(
    ("form", "content_type"), [("json", "application/json"), ("ndjson", "application/x-ndjson")]
)
def test_body_is_a_list_or_lines(site: Site, form: str, content_type: str) -> None:
    site.configure(body_format=form)
    site.deliver(["two\nlines"], {"é": None}, 3)
    ((headers, events),) = site.endpoint.requests
    assert headers["Content-Type"] == content_type
    assert [event["value"]["celsius"] for event in events] == [["two\nlines"], {"é": None}, 3]


def test_the_configured_header_names_the_connector(site: Site) -> None:
    site.configure(auth_header_value="Bearer secret")
    site.deliver(1)
    site.configure(auth_header_name="X-Api-Key", auth_header_value="secret", endpoint_url=f"{site.url}?v=1")
    site.deliver(2)
    first, second = (headers for headers, _ in site.endpoint.requests)
    assert first["Authorization"] == "Bearer secret"
    assert second["X-Api-Key"] == "secret"
    assert "Authorization" not in second


def test_a_request_is_no_larger_than_allowed(site: Site) -> None:
    site.configure(batch_max_records="3")
    site.deliver(*range(8))
    assert site.posted() == [[0, 1, 2], [3, 4, 5], [6, 7]]

    one = len('{"id":"readings-0-0","topic":"readings","partition":0,"offset":0,') + len(
        '"timestamp":null,"key":null,"value":{"celsius":0}}'
    )
    for most, expected in ((2 * one + 3, [[0, 1], [2, 3], [4]]), (2 * one + 2, [[0], [1], [2], [3], [4]])):
        site.endpoint.requests.clear()
        site.configure(batch_max_bytes=str(most))
        site.deliver(*range(5))
        assert site.posted() == expected


def test_values_without_a_json_form(site: Site) -> None:
    site.configure(batch_max_bytes="300")
    values = [b"\xff", Decimal("1.5"), datetime(2026, 1, 2, tzinfo=UTC), float("nan"), "x" * 400, "y"]
    single = SinkRecords.of(P0, [SinkRecord(*P0, offset, None, b"") for offset in range(len(values))])
    site.harness.task.put(SinkRecords(P0, single.arrow, [None] * len(values), values))
    assert [event["value"] for event in site.endpoint.events.values()] == [
        "/w==",
        "1.5",
        "2026-01-02 00:00:00+00:00",
        "y",
    ]
    assert [letter.offset for letter in site.letters.records] == [3, 4]


def test_records_of_one_offset_have_ids_of_their_own(site: Site) -> None:
    site.configure(batch_max_records="2")
    single = SinkRecords.of(P0, [SinkRecord(*P0, offset, None, b"") for offset in range(2)])
    multiplied = SinkRecords(P0, single.arrow.take(pa.array([0, 1, 1, 1])), [None] * 4, list("abcd"))
    site.endpoint.mishaps += [TAKEN, Mishap(503)]
    with pytest.raises(RetriableException) as caught:
        site.harness.task.put(multiplied)
    assert caught.value.accepted == 1
    site.harness.task.put(multiplied[1:])
    assert {name: event["value"] for name, event in site.endpoint.events.items()} == {
        "readings-0-0": "a",
        "readings-0-1": "b",
        "readings-0-1.1": "c",
        "readings-0-1.2": "d",
    }


# -- answers that are none, and those that ask for patience ----------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_a_temporary_refusal_is_retried(site: Site, status: int) -> None:
    site.configure(batch_max_records="2")
    site.endpoint.mishaps += [TAKEN, Mishap(status)]
    site.deliver(*range(5))
    assert site.harness.worker.is_put_off
    site.harness.commit()
    assert site.harness.committed[P0].offset == 2
    site.harness.advance(0.3)
    assert site.posted() == [[0, 1], [2, 3], [2, 3], [4]]
    assert site.keys() == ["readings-0-0..readings-0-1", *["readings-0-2..readings-0-3"] * 2, "readings-0-4"]
    site.harness.commit()
    assert site.harness.committed[P0].offset == 5


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_sets_the_delay(site: Site, status: int) -> None:
    site.endpoint.mishaps.append(Mishap(status, {"Retry-After": "90"}))
    site.deliver(1)
    site.harness.advance(89)
    assert site.accepted() == []
    site.harness.advance(1)
    assert site.accepted() == [0]


def test_retry_after_is_seconds_or_a_date() -> None:
    assert seconds_in("0") == 0
    assert seconds_in("7") == 7
    assert seconds_in("9" * 500) == 86_400
    soon, never = (datetime.now(UTC) + timedelta(seconds=s) for s in (1_000, 10**9))
    assert 900 < (seconds_in(format_datetime(soon, usegmt=True)) or 0) <= 1_000
    assert 900 < (seconds_in(format_datetime(soon.replace(tzinfo=None))) or 0) <= 1_000
    assert seconds_in(format_datetime(never, usegmt=True)) == 86_400
    assert seconds_in("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for nonsense in ("", "soon", "-5", "1.5", "²"):
        assert seconds_in(nonsense) is None


def test_an_endpoint_recognises_the_retry_after_a_lost_response(site: Site) -> None:
    site.endpoint.mishaps += [LOST, Mishap(is_lost=True)]
    site.deliver(*range(3))
    site.harness.advance(0.3)
    site.harness.advance(0.6)
    assert site.accepted() == [0, 1, 2]
    assert site.endpoint.repeated == 3
    assert site.keys() == ["readings-0-0..readings-0-2"] * 3


def test_an_unavailable_or_silent_endpoint_is_retried(site: Site) -> None:
    site.configure(endpoint_url="http://127.0.0.1:1/secret-path")
    records = SinkRecords.of(P0, [SinkRecord(*P0, 0, None, b"1")])
    with pytest.raises(RetriableException) as caught:
        site.harness.task.put(records)
    assert "http://127.0.0.1:1: ConnectionRefusedError" in str(caught.value)
    assert "secret" not in str(caught.value)

    site.configure(http_timeout_ms="50")
    with site.endpoint.lock, pytest.raises(RetriableException, match="TimeoutError: timed out"):
        site.harness.task.put(records)


def test_no_connection_waits_between_two_calls(site: Site) -> None:
    connected: list[Any] = []
    create = site.harness.task.endpoint._create_connection
    site.harness.task.endpoint._create_connection = lambda *a: connected.append(create(*a)) or connected[-1]
    site.deliver(1, "warm", 3)
    assert len(connected) == 1
    assert connected[0].fileno() == -1
    site.deliver(4)
    assert site.accepted() == [0, 2, 3]


def test_a_new_attempt_in_other_portions_repeats_ids_and_no_keys(site: Site) -> None:
    site.endpoint.mishaps.append(LOST)
    site.deliver(*range(3))
    site.harness.crash()
    site.harness.start()
    site.harness.assign(P0)
    site.deliver(*range(5))
    assert site.accepted() == [0, 1, 2, 3, 4]
    assert site.endpoint.repeated == 3
    assert site.keys() == ["readings-0-0..readings-0-2", "readings-0-0..readings-0-4"]


class KeyedEndpoint(Endpoint):
    """Executes each idempotency key once, and ignores ids."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[str, Sequence[Mapping[str, Any]]] = {}

    def answer(self, headers: Mapping[str, str], body: str) -> tuple[Mishap, str]:
        mishap, text = super().answer(headers, body)
        if mishap.status == HTTPStatus.OK:
            self.done.setdefault(headers["Idempotency-Key"], self.requests[-1][1])
        return mishap, text


class KeyedConnection(test_sinks.Connection):
    def __init__(self, faults: FaultPlan) -> None:
        super().__init__(faults)
        self.endpoint: KeyedEndpoint = KeyedEndpoint()

    def accepted(self) -> list[tuple[Any, ...]]:
        return [test_sinks.coordinates(event) for events in self.endpoint.done.values() for event in events]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "guarantee"), [(1, Guarantee.EFFECTIVELY_ONCE), (2, Guarantee.AT_LEAST_ONCE)]
)
def test_check_sink_with_an_endpoint_that_recognises_only_keys(records: int, guarantee: Guarantee) -> None:
    options: SinkOptions = {**test_sinks.WEBHOOK, "config": test_sinks.webhook_config(records)}
    options["destination"] = KeyedConnection
    options["capabilities"] = replace(options["capabilities"], guarantee=guarantee)
    report = check_sink(
        test_sinks.WebhookTask, read_back=KeyedConnection.accepted, settings=test_sinks.FEW, **options
    )
    assert bool(report.exercised["duplicates seen"]) is (records > 1)


# -- bad records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_bad_record_is_found_by_halving(site: Site, status: int) -> None:
    site.endpoint.rejected_status = status
    site.deliver(0, 1, 2, 3, 4, "warm", 6, 7, "hot")
    assert [letter.offset for letter in site.letters.records] == [5, 8]
    assert site.accepted() == [0, 1, 2, 3, 4, 6, 7]
    assert site.endpoint.repeated == 0
    site.harness.commit()
    assert site.harness.committed[P0].offset == 9


def test_halving_continues_after_a_retry(site: Site) -> None:
    bad = 11
    every_other = [TAKEN, Mishap(429, {"Retry-After": "1"})]
    site.endpoint.mishaps.extend(every_other * 20)
    site.deliver(*("warm" if number == bad else number for number in range(16)))
    for _ in range(40):
        site.harness.advance(1)
    assert [letter.offset for letter in site.letters.records] == [bad]
    assert sorted(site.accepted()) == [number for number in range(16) if number != bad]
    worked = [
        offsets
        for offsets, mishap in zip(site.posted(), every_other * 20, strict=False)
        if mishap.is_accepted
    ]
    assert worked == [
        list(range(16)), list(range(8)), list(range(8, 16)), [8, 9, 10, 11], [8, 9], [10, 11], [10], [11],
        [12, 13, 14, 15],
    ]  # fmt: skip


def test_a_half_is_posted_again_unchanged_after_a_lost_response(site: Site) -> None:
    site.configure(batch_max_records="4")
    site.endpoint.mishaps += [*[TAKEN] * 4, LOST]
    site.deliver("warm", *range(1, 6))
    assert site.posted() == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]]
    site.harness.advance(0.3)
    assert site.posted()[5:] == [[2, 3], [4, 5]]
    assert site.keys()[4] == site.keys()[5]
    assert site.harness.task.cuts == {P0: set()}


def test_the_reason_is_in_the_dead_letter(site: Site) -> None:
    site.configure(errors_deadletterqueue_context_headers_enable="true")
    site.deliver("warm")
    (letter,) = site.letters.records
    headers = dict(letter.headers)
    message = (headers["__connect.errors.exception.message"] or b"").decode()
    assert message.endswith("422 Unprocessable Entity: celsius must be a number: readings-0-0")
    assert letter.value == b'{"celsius": "warm"}'


def test_a_bad_record_ends_the_partition_if_not_tolerated(site: Site) -> None:
    site.configure(errors_tolerance="none")
    site.deliver(0, 1, "warm", 3)
    failure = site.harness.outcome(P0).failure
    assert failure is not None
    assert "readings-0 at offset 2 failed in TASK_PUT" in failure.message
    assert "celsius must be a number" in failure.message
    assert site.accepted() == [0, 1]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 410, 415])
def test_a_wrong_endpoint_does_not_fill_the_dead_letters(site: Site, status: int) -> None:
    site.endpoint.mishaps.append(Mishap(status))
    site.deliver(0, 1)
    failure = site.harness.outcome(P0).failure
    assert failure is not None
    assert f"{site.url.removesuffix('/readings')}: {status} " in failure.message
    assert (site.letters.records, site.accepted(), site.harness.committed) == ([], [], {})


# -- the configuration -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"endpoint.url": "ftp://host/path"}, "'endpoint.url' must be http://host/path or https://host/path"),
        ({"endpoint.url": "http:///path"}, "'endpoint.url' must be http"),
        ({"endpoint.url": "http://host:port/"}, "'endpoint.url': Port could not be cast"),
        ({"endpoint.url": "http://me:secret@host/"}, "use 'auth.header.value' for authentication"),
        ({"auth.header.value": "Bearer a\nX: b"}, "'auth.header.value' must be one line of ASCII"),
        ({"auth.header.name": "no header"}, "'auth.header.name'"),
        ({"id.prefix": "a b"}, "'id.prefix'"),
        ({"body.format": "xml"}, "'body.format'"),
        ({"batch.max.records": "501"}, "a task receives 500 at a time; raise 'max.poll.records'"),
        ({"batch.max.records": "11", "max.poll.records": "10"}, "a task receives 10 at a time"),
    ],
)
def test_invalid_configurations_are_refused_before_the_start(keys: Mapping[str, str], problem: str) -> None:
    whole: dict[str, Any] = {"name": "n", "topics": "t", "endpoint.url": "https://host", **keys}
    with pytest.raises(ConfigException, match=problem) as caught:
        WebhookConfig.parse(whole)
    assert "secret" not in str(caught.value)
    assert "Bearer" not in str(caught.value)


@pytest.mark.parametrize(("url", "port"), [("https://host/path", 443), ("https://host:8443", 8443)])
def test_https_checks_certificates(site: Site, url: str, port: int) -> None:
    connection = site.config(endpoint_url=url).connect()
    assert isinstance(connection, HTTPSConnection)
    assert (connection.host, connection.port) == ("host", port)
    assert connection._context.verify_mode is ssl.CERT_REQUIRED


def test_secrets_are_hidden(site: Site) -> None:
    shown = repr(site.config(auth_header_value="Bearer abcdefgh"))
    assert "abcdefgh" not in shown
    assert site.url not in shown


def test_the_example_configuration_is_startable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVER_TOKEN", "token")
    checked = check_file(Path(webhook_sink.__file__).with_suffix(".json"))
    assert (checked.problems, checked.warnings) == ([], [])
