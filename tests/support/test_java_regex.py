"""Java's regular expressions of ``topics.regex`` and ``TopicNameMatches``."""

from __future__ import annotations

import json

import pytest

from sinksdk import ConfigException, ConnectorConfig
from sinksdk.support.java_regex import JavaRegexError, java_pattern
from sinksdk.topics.base import Subscription
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.s3_archiver.original_patterns import ANSWERS, PATTERNS, REFUSED, TOPICS, WRITTEN, ask

ORIGINAL: dict[str, str] = json.loads(ANSWERS.read_text())
UNTRANSLATED = {
    *(
        "[a-c&&]",
        "[a&&&b]+",
        "[a&&[b]&c]",
        r"(a)\2",
        r"\1(a)",
        r"(a\1)",
        r"(a|b\1)+",
        r"\b{g}a\b{g}",
        r"\b{g}",
    ),
    ".+(?<=a+)",
}
"""Patterns that Java accepts but that Python cannot match, or that Java itself does not match as documented.
"""


def answer(pattern: str) -> str:
    """Return a 1 or 0 for each topic, or ``!`` if the pattern is refused."""
    try:
        translated = java_pattern(pattern)
    except JavaRegexError:
        return REFUSED
    return "".join("1" if translated.fullmatch(topic) else "0" for topic in TOPICS)


@pytest.mark.extended
def test_patterns_match_the_same_topics_as_java() -> None:
    found = {pattern: answer(pattern) for pattern in ORIGINAL}

    assert [(pattern, one) for pattern, one in found.items() if one not in (ORIGINAL[pattern], REFUSED)] == []
    untranslated = {one for one in WRITTEN if found[one] == REFUSED and ORIGINAL[one] != REFUSED}
    assert untranslated == UNTRANSLATED


@pytest.mark.extended
@pytest.mark.slow
def test_stored_matches_are_those_of_java() -> None:
    try:
        answers = ask(PATTERNS)
    except MavenError as error:
        missing("Java's answers", f"the jar that reads the questions comes from Maven Central: {error}")
    assert answers == ORIGINAL


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"[a-z", r"'\[' is not closed"),
        (r"a(b", r"'\(' is not closed"),
        (r"a)b", r"'\)' without '\('"),
        (r"*.orders", r"the quantifier '\*' has nothing before it \(at character 1\)"),
        (r"\y", r"'\\y' is not an escape of Java"),
        (r"\p{Nothing}", r"the property '\\p\{Nothing\}' is unknown"),
        (r"(?P<name>a)", r"'\(\?P' does not begin a group in Java"),
        (r"(?<=a+)b", r"the look-behind '\(\?<=…\)' matches texts of different lengths"),
        (r"\b{g}a", r"'\\b\{g\}' has no translation"),
        (r"(a)\2", r"'\\2' refers to a group that is not defined before it"),
        (r"[a-z&&]", r"'&&' has nothing after it"),
    ],
)
def test_refused_pattern_names_the_construct(pattern: str, message: str) -> None:
    with pytest.raises(ConfigException, match=f"'topics.regex'.*{message}"):
        Subscription(regex=pattern)
    with pytest.raises(ConfigException, match=f"'topics.regex'.*{message}"):
        ConnectorConfig.parse({"name": "a", "topics.regex": pattern})


def test_quoted_digits_of_any_script_match_themselves() -> None:
    subscription = Subscription(regex="\\Q\N{ARABIC-INDIC DIGIT THREE}4\\E")

    assert subscription.select(["\N{ARABIC-INDIC DIGIT THREE}4", "f34", "34"]) == {
        "\N{ARABIC-INDIC DIGIT THREE}4"
    }


def test_an_error_beside_quoted_text_names_no_position() -> None:
    with pytest.raises(ConfigException, match=r"'\(' is not closed$"):
        Subscription(regex=r"\Qorders.2024\E(")


def test_topics_regex_is_a_java_pattern() -> None:
    subscription = Subscription(regex="[a-z&&[^b]]+")

    assert subscription.select(["acd", "abc", "xz", "b"]) == {"acd", "xz"}
    assert subscription.covers("acd")
    assert not subscription.covers("abc")


def test_topics_regex_must_not_match_the_dead_letter_topic() -> None:
    keys = {"name": "a", "topics.regex": r"\p{Lower}+", "errors.deadletterqueue.topic.name": "dead"}

    with pytest.raises(ConfigException, match="the connector reads 'dead' itself"):
        ConnectorConfig.parse(keys)
    ConnectorConfig.parse({**keys, "errors.deadletterqueue.topic.name": "dead-letters"})
