"""Features of the store on S3, with real requests to moto and MinIO, and faults in between."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from sinksdk import ConfigException
from sinksdk.store import Conflict, StoreRefused, StoreUnavailable, StoreUnreadable, identify, open_store, s3
from sinksdk.store.base import Lost
from sinksdk.store.s3 import S3Store
from tests.helpers.stores import s3_store
from tests.integration.fault_proxy import (
    CONFLICT,
    DROP_ANSWER,
    DROP_REQUEST,
    FORGET_CONDITION,
    INTERNAL_ERROR,
    INTERNAL_ERROR_AFTER,
    NOT_IMPLEMENTED,
    SLOW_DOWN,
    Fault,
    FaultProxy,
    Request,
)
from tests.store.conftest import BUCKET, S3_SERVERS

pytestmark = pytest.mark.slow

PASSING = {
    "request lost": DROP_REQUEST,
    "answer lost": DROP_ANSWER,
    "throttled": SLOW_DOWN,
    "conflict": CONFLICT,
    "failed before": INTERNAL_ERROR,
    "failed after": INTERNAL_ERROR_AFTER,
    "timed out": Fault(400, "RequestTimeout"),
}
every_fault = pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)


class Place:
    def __init__(self, endpoint: str, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.endpoint = endpoint
        self.prefix = f"{uuid.uuid4().hex}/state"
        self.url = f"s3://{BUCKET}/{self.prefix}?endpoint={endpoint}"
        self.client: Any = boto3.client("s3", endpoint_url=endpoint)

    def open(self, **options: Any) -> S3Store:
        store = s3_store(self.url, **{"create": True, "patience": 60.0, "pause": 0.01, **options})
        self.proxy.reset()
        return store

    def names(self) -> list[str]:
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Contents", [])
        return [item["Key"].removeprefix(f"{self.prefix}/") for item in listed]

    def body(self, name: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}")["Body"].read()


@pytest.fixture(params=["s3", pytest.param("minio", marks=pytest.mark.nightly)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    endpoint, proxy = request.getfixturevalue(S3_SERVERS[request.param])
    proxy.reset()
    yield Place(endpoint, proxy)
    proxy.reset()


@pytest.fixture
def forgetful(s3_server: tuple[str, FaultProxy]) -> Iterator[Place]:
    # Moto checks no signatures: a request may lose its condition.
    s3_server[1].reset()
    yield Place(*s3_server)
    s3_server[1].reset()


@pytest.fixture
def store(place: Place) -> S3Store:
    return place.open()


# -- answers that were lost, and others that pass ----------------------------------------------------


@every_fault
@pytest.mark.parametrize("times", [1, 3])
def test_a_first_write_takes_effect_exactly_once(
    place: Place, store: S3Store, fault: Fault, times: int
) -> None:
    place.proxy.next("PutObject", *[fault] * times)
    version = store.put("k", {"x": 1}, None)
    assert [request.fault for request in place.proxy.requests][:times] == [fault] * times
    assert place.open(create=False).get("k") == ({"x": 1}, version)
    assert store.put("k", {"x": 2}, version)


@every_fault
@pytest.mark.parametrize("times", [1, 3])
def test_a_replacement_takes_effect_exactly_once(
    place: Place, store: S3Store, fault: Fault, times: int
) -> None:
    first = store.put("k", {"x": 1}, None)
    place.proxy.reset()
    place.proxy.next("PutObject", *[fault] * times)
    second = store.put("k", {"x": 2}, first)
    assert [request.fault for request in place.proxy.requests][:times] == [fault] * times
    assert place.open(create=False).get("k") == ({"x": 2}, second)
    assert store.put("k", {"x": 3}, second)


@every_fault
def test_a_delete_takes_effect_despite_a_fault(place: Place, store: S3Store, fault: Fault) -> None:
    warm = store.put("warm", {}, None)
    store.delete("warm", warm)  # the store now knows whether the endpoint deletes on condition
    version = store.put("k", {"x": 1}, None)
    place.proxy.reset()
    # MinIO has no conditional delete: an empty value replaces the value there.
    place.proxy.next("DeleteObject" if store._deletes else "PutObject", fault)
    store.delete("k", version)
    assert place.proxy.requests[0].fault == fault
    assert place.open(create=False).get("k") is None
    assert store.put("k", {"x": 2}, None) != version


@every_fault
def test_reading_and_listing_are_retried(place: Place, store: S3Store, fault: Fault) -> None:
    version = store.put("k", {"x": 1}, None)
    place.proxy.next("GetObject", fault, fault)
    place.proxy.next("List", fault, fault)
    assert store.get("k") == ({"x": 1}, version)
    assert store.list("") == ["k"]


def test_a_412_after_a_lost_response_is_resolved_by_the_nonce(place: Place, store: S3Store) -> None:
    # After a lost response, the retry finds the object of the first attempt; one read shows it by its nonce.
    place.proxy.next("PutObject", DROP_ANSWER)
    version = store.put("k", {"x": 1}, None)
    assert place.proxy.operations() == ["PutObject", "PutObject", "GetObject", "GetObject"]
    assert store.get("k").version == version


def test_boto3_does_not_retry_itself(place: Place, store: S3Store) -> None:
    # The store itself resolves lost responses: a retry within boto3 would leave their outcome unknown.
    place.proxy.always(INTERNAL_ERROR)
    with pytest.raises(Lost):
        store._read("k")
    assert place.proxy.operations() == ["GetObject"]


def test_another_process_writes_while_the_response_is_lost(place: Place, store: S3Store) -> None:
    # The write took effect, its response was lost, and another process has replaced the value since.
    other = place.open()
    first = store.put("k", {"by": "us"}, None)
    place.proxy.next(
        "PutObject",
        Fault(
            cuts=True,
            takes_effect=True,
            then=lambda: other.put("k", {"by": "them"}, other.get("k").version),
        ),
    )
    with pytest.raises(Conflict):
        store.put("k", {"by": "us again"}, first)
    assert store.get("k").value == {"by": "them"}


def test_a_late_response_is_retried(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # A response after the time limit counts as lost.
    monkeypatch.setattr(s3, "_READ_TIMEOUT", 0.3)
    s3._client.cache_clear()
    store = place.open()
    place.proxy.next("PutObject", Fault(delay=1.0))
    version = store.put("k", {"x": 1}, None)
    time.sleep(1.0)  # the late request takes effect after all
    assert place.open(create=False).get("k") == ({"x": 1}, version)
    s3._client.cache_clear()


@pytest.mark.parametrize(
    "fault", [DROP_REQUEST, DROP_ANSWER, SLOW_DOWN], ids=["lost", "responses lost", "throttled"]
)
def test_a_lasting_outage_raises_store_unavailable(place: Place, fault: Fault) -> None:
    store = place.open(patience=0.5)
    place.proxy.always(fault)
    with pytest.raises(StoreUnavailable, match=r"writing k got no response for 0\.5 s: "):
        store.put("k", {"x": 1}, None)
    place.proxy.reset()
    found = place.open(create=False).get("k")
    assert (found.value if found else None) == ({"x": 1} if fault == DROP_ANSWER else None)


def test_a_refusal_is_raised_at_once(place: Place, store: S3Store) -> None:
    place.proxy.next("PutObject", Fault(403, "AccessDenied"))
    with pytest.raises(
        StoreRefused, match=r"PutObject of s3://stores/.*/k failed with AccessDenied.*s3:PutObject"
    ):
        store.put("k", {"x": 1}, None)
    assert place.proxy.operations() == ["PutObject"]


# -- opening -----------------------------------------------------------------------------------------


def test_opening_a_store_leaves_one_object(place: Place) -> None:
    place.open()
    assert place.names() == ["!store"]
    before = place.body("!store")
    place.open().put("k", {}, None)
    assert place.names() == ["!store", "k"]
    assert place.body("!store") == before
    assert place.open(create=False).list("") == ["k"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"what": "a store of sinksdk", "format": 2}', "has a format that this version .* upgrade sinksdk"),
        (b'{"what": "a store of sinksdk"}', "is damaged"),
        (b"[1]", "is damaged"),
        (b"my notes", "is damaged"),
    ],
)
@pytest.mark.parametrize("create", [False, True], ids=["a task", "a driver"])
def test_a_store_with_a_marker_of_another_format_is_refused(
    place: Place, body: bytes, message: str, *, create: bool
) -> None:
    # A newer sinksdk may keep its values elsewhere, so that this version would see an empty store.
    place.client.put_object(Bucket=BUCKET, Key=f"{place.prefix}/!store", Body=body)
    with pytest.raises(StoreUnreadable, match=message):
        place.open(create=create)
    assert place.names() == ["!store"]
    assert place.body("!store") == body


def test_opening_creates_nothing(place: Place) -> None:
    with pytest.raises(ConfigException, match=f"{place.prefix}.* does not exist: check bucket and prefix"):
        place.open(create=False)
    assert place.names() == []


@every_fault
def test_opening_a_store_survives_faults(place: Place, fault: Fault) -> None:
    # A single fault must not count as a missing feature of the endpoint.
    needed = 0
    while True:
        needed += 1
        place.proxy.reset()
        place.proxy.at_mutation(needed, fault)
        opened = s3_store(f"{place.url}&path_style=true", create=True, pause=0.0)
        if place.proxy.mutations < needed:
            break
        assert [request.fault for request in place.proxy.requests].count(fault) == 1
        assert place.names() == ["!store"]
    assert needed == 7
    assert opened.get("k") is None


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_an_endpoint_that_ignores_a_condition_is_refused(forgetful: Place, condition: str) -> None:
    def is_ignored(request: Request) -> bool:
        return request.condition == condition and request.operation == "PutObject"

    forgetful.proxy.always(FORGET_CONDITION, is_ignored)
    with pytest.raises(ConfigException, match=f"does not honour {condition}: .*a store in PostgreSQL"):
        s3_store(forgetful.url, create=True)
    assert forgetful.names() == []


def test_an_endpoint_without_conditional_writes_is_refused(place: Place) -> None:
    place.proxy.always(NOT_IMPLEMENTED, lambda request: bool(request.condition))
    with pytest.raises(
        ConfigException, match=r"NotImplemented.*does not support conditional writes; use another one"
    ):
        s3_store(place.url, create=True)
    assert place.names() == []


def test_a_missing_bucket_is_reported(place: Place) -> None:
    with pytest.raises(ConfigException, match=r"s3://no-such-bucket/.*NoSuchBucket.*create the bucket"):
        s3_store(f"s3://no-such-bucket/p?endpoint={place.endpoint}", create=True)


def test_denied_access_names_the_required_permissions(place: Place) -> None:
    place.proxy.always(Fault(403, "AccessDenied"))
    with pytest.raises(
        ConfigException, match="grant these credentials s3:GetObject, s3:PutObject and s3:Delete"
    ):
        s3_store(place.url, create=True)
    assert place.proxy.operations() == ["PutObject", "DeleteObject"]  # each request of the probe, once


def test_missing_credentials_are_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    s3._client.cache_clear()
    with pytest.raises(
        ConfigException, match=r"NoCredentialsError.*'access_key_id' and 'secret_access_key' in the"
    ):
        s3_store(place.url, create=True)
    s3._client.cache_clear()


def test_an_unreachable_endpoint_is_reported(place: Place) -> None:
    with pytest.raises(StoreUnavailable, match=r"got no response for 0\.3 s: .*http://127\.0\.0\.1:9"):
        s3_store("s3://bucket/p?endpoint=http://127.0.0.1:9", create=True, patience=0.3)


def test_the_expected_store_is_opened_and_another_refused(place: Place) -> None:
    store_id = identify(open_store(place.url, create=True))
    assert identify(open_store(place.url, expected_id=store_id)) == store_id
    with pytest.raises(ConfigException, match="is not the store this connector was started with"):
        open_store(place.url, expected_id="another")


# -- deletes where the endpoint has no condition for them --------------------------------------------


@pytest.fixture
def without_deletes(place: Place) -> S3Store:
    store = place.open()
    place.proxy.always(FORGET_CONDITION, lambda request: request.operation == "DeleteObject")
    return store


def test_an_unconditional_delete_is_never_used(place: Place, without_deletes: S3Store) -> None:
    version = without_deletes.put("k", {"x": 1}, None)
    without_deletes.delete("k", version)
    assert without_deletes.get("k") is None
    assert without_deletes.list("") == []
    assert place.names() == ["!store", "k"]
    assert place.body("k") == b""
    without_deletes.delete("k", version)


def test_an_emptied_object_is_replaced_by_a_new_value(place: Place, without_deletes: S3Store) -> None:
    old = without_deletes.put("k", {"x": 1}, None)
    without_deletes.delete("k", old)
    other = place.open(create=False)
    place.proxy.always(FORGET_CONDITION, lambda request: request.operation == "DeleteObject")
    new = other.put("k", {"x": 1}, None)
    for action in (
        lambda: without_deletes.put("k", {"x": 2}, old),
        lambda: without_deletes.put("k", {"x": 2}, None),
        lambda: without_deletes.delete("k", old),
    ):
        with pytest.raises(Conflict):
            action()
    assert without_deletes.get("k") == ({"x": 1}, new)


@every_fault
def test_emptying_an_object_survives_faults(place: Place, without_deletes: S3Store, fault: Fault) -> None:
    warm = without_deletes.put("warm", {}, None)
    without_deletes.delete("warm", warm)
    version = without_deletes.put("k", {"x": 1}, None)
    place.proxy.next("PutObject", fault)
    without_deletes.delete("k", version)
    assert without_deletes.get("k") is None
    place.proxy.next("PutObject", fault)
    again = without_deletes.put("k", {"x": 2}, None)
    assert without_deletes.get("k") == ({"x": 2}, again)


def test_a_write_of_another_process_survives_an_emulated_delete(
    place: Place, without_deletes: S3Store
) -> None:
    first = without_deletes.put("k", {"x": 1}, None)
    second = without_deletes.put("k", {"x": 2}, first)
    with pytest.raises(Conflict):
        without_deletes.delete("k", first)
    assert without_deletes.get("k") == ({"x": 2}, second)


# -- objects -----------------------------------------------------------------------------------------


def test_keys_are_readable_names(place: Place, store: S3Store) -> None:
    keys = {
        "connectors/orders.v1/tasks-count": "connectors/orders.v1/tasks-count",
        "a b/../ü": "a%20b/%2E%2E/%C3%BC",
    }
    for key in keys:
        store.put(key, {}, None)
    assert sorted(place.names()) == sorted(["!store", *keys.values()])
    assert store.list("a b/.") == ["a b/../ü"]
    assert store.list("a b/..") == ["a b/../ü"]


@pytest.mark.extended
def test_keys_of_several_pages_are_listed(place: Place, store: S3Store) -> None:
    for number in range(1005):
        place.client.put_object(Bucket=BUCKET, Key=f"{place.prefix}/many/{number:04d}", Body=b"{}")
    assert len(store.list("many/")) == 1005


@pytest.mark.parametrize("body", [b"my notes", b"\xff\xfe", b"{}", b"[1]", b'"text"'])
def test_a_foreign_object_is_reported(place: Place, store: S3Store, body: bytes) -> None:
    place.client.put_object(Bucket=BUCKET, Key=f"{place.prefix}/k", Body=body)
    with pytest.raises(StoreUnreadable, match="the object under k was not written by sinksdk"):
        store.get("k")


def test_two_stores_in_one_bucket_are_independent(place: Place) -> None:
    one, other = place.open(), s3_store(place.url.replace("/state?", "/state-2?"), create=True)
    one.put("k", {"x": 1}, None)
    assert other.list("") == []
    assert other.get("k") is None


def test_a_replacement_needs_one_request_once_the_version_was_seen(place: Place, store: S3Store) -> None:
    # The store remembers ETags that it has read or written; other ones it must read first.
    version = store.put("k", {"x": 1}, None)
    other = place.open(create=False)
    other.get("k")
    place.proxy.reset()
    version = store.put("k", {"x": 2}, version)
    assert place.proxy.operations() == ["PutObject"]
    place.proxy.reset()
    other.put("k", {"x": 3}, version)
    assert place.proxy.operations() == ["GetObject", "PutObject"]


def test_the_closing_poll_on_s3_is_five_seconds(place: Place, store: S3Store) -> None:
    # Each poll costs money.
    assert store.closing_poll == 5.0


def counting(call: Callable[[], object], proxy: FaultProxy) -> int:
    proxy.reset()
    call()
    return len(proxy.requests)


def test_opening_a_store_takes_few_requests(place: Place) -> None:
    assert counting(lambda: s3_store(place.url, create=True), place.proxy) == 7
    assert counting(lambda: s3_store(place.url), place.proxy) == 1
