"""``stop`` is called as its author declared it (KIP-883)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sinksdk import SinkConnector
from sinksdk.runtime.deletion import stop_connector
from tests.runtime.test_driver import Task

Seen = list[Any]


def before_there_was_a_flag(seen: Seen) -> Callable[..., None]:
    def stop(self: Any) -> None:
        seen.append("stopped")

    return stop


def as_documented(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        seen.append(is_deleted)

    return stop


def without_a_default(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, is_deleted: bool) -> None:
        seen.append(is_deleted)

    return stop


def by_name_only(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, *, is_deleted: bool = False) -> None:
        seen.append(is_deleted)

    return stop


def by_place_only(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, is_deleted: bool = False, /) -> None:  # noqa: FBT002 - the same
        seen.append(is_deleted)

    return stop


def called_otherwise(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, deleted: bool = False) -> None:  # noqa: FBT002 - the same
        seen.append(deleted)

    return stop


def any_arguments(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, *args: Any) -> None:
        seen.append(*args)

    return stop


def any_names(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, **kwargs: Any) -> None:
        seen.append(kwargs["is_deleted"])

    return stop


def anything(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append([*args, *kwargs.values()][0])

    return stop


def not_first(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, timeout: float = 5.0, is_deleted: bool = False) -> None:  # noqa: FBT002 - the same
        seen.append(is_deleted if timeout == 5.0 else timeout)

    return stop


def with_a_number_of_its_own(seen: Seen) -> Callable[..., None]:
    def stop(self: Any, timeout: float = 5.0) -> None:
        seen.append(timeout)

    return stop


def stopped(stop: Callable[..., None], *, is_deleted: bool) -> None:
    cls = type("AnyConnector", (SinkConnector,), {"stop": stop, "task_class": Task})
    assert stop_connector(cls(), "c", is_deleted=is_deleted, timeout=5)


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize(
    "declared",
    [as_documented, without_a_default, by_name_only, by_place_only, called_otherwise, any_arguments,
     any_names, anything, not_first],
    ids=lambda declared: declared.__name__,
)  # fmt: skip
def test_the_flag_is_told_however_it_is_declared(
    declared: Callable[[Seen], Callable[..., None]], *, is_deleted: bool
) -> None:
    """By name, by place, among others: once, with what is so."""
    seen: Seen = []
    stopped(declared(seen), is_deleted=is_deleted)

    assert seen == [is_deleted]


@pytest.mark.parametrize(
    ("declared", "saw"), [(before_there_was_a_flag, "stopped"), (with_a_number_of_its_own, 5.0)]
)
def test_a_stop_that_knows_no_flag_is_called_as_ever(
    declared: Callable[[Seen], Callable[..., None]], saw: Any
) -> None:
    """Old connectors work unchanged; a parameter that is no flag keeps its default."""
    seen: Seen = []
    stopped(declared(seen), is_deleted=True)

    assert seen == [saw]
