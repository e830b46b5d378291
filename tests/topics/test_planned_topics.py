"""Kafka's topics are vouched for by their ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sinksdk import MissingSourceTopicException, RetriableException
from sinksdk.topics.kafka.cluster import PlannedTopics

IDS = {"a": "id-a", "b": "id-b"}


class Ids:
    """Ids of topics as they are now; notes what is asked."""

    def __init__(self, now: Mapping[str, str]) -> None:
        self.now = now
        self.asked: list[list[str]] = []

    def __call__(self, topics: Collection[str]) -> Mapping[str, str]:
        self.asked.append(list(topics))
        return {topic: self.now[topic] for topic in topics if topic in self.now}


def test_topics_that_are_still_there_are_in_no_doubt() -> None:
    """One question for all that are asked about."""
    ids = Ids(IDS)

    assert PlannedTopics(IDS, ids)({"b", "a"}) == {}
    assert ids.asked == [["a", "b"]]


def test_a_topic_of_another_id_is_another_topic() -> None:
    """It is named, with both ids and what that means for the records."""
    doubts = PlannedTopics(IDS, Ids({"a": "id-a", "b": "id-new"}))({"a", "b"})

    assert doubts.keys() == {"b"}
    error = doubts["b"]
    assert isinstance(error, MissingSourceTopicException)
    assert error.topics == ("b",)
    assert str(error) == (
        "topic 'b' was deleted and created again (its id is id-new) while it was read (its id was id-b): "
        "nothing that was read of it since the last commit is committed"
    )


def test_a_topic_that_is_gone_is_not_vouched_for() -> None:
    """It may be on its way to come back as another one."""
    doubts = PlannedTopics(IDS, Ids({}))({"a"})

    assert "topic 'a' was deleted while it was read" in str(doubts["a"])


def test_without_an_answer_all_that_is_asked_about_is_in_doubt() -> None:
    """For now: the error is one that passes."""

    def nobody(topics: Collection[str]) -> Mapping[str, str]:
        raise RetriableException("no broker answers")

    doubts = PlannedTopics(IDS, nobody)({"a", "b"})

    assert doubts.keys() == {"a", "b"}
    assert all(isinstance(error, RetriableException) for error in doubts.values())


def test_of_topics_without_an_id_nothing_is_asked() -> None:
    """A plan of an earlier version may have none."""
    ids = Ids(IDS)

    assert PlannedTopics({}, ids)({"a"}) == {}
    assert ids.asked == []
