"""Verdicts on keys of other people's connectors, and what a configuration makes of them."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
from pydantic import Field

from sinksdk import ConnectorConfig, Meaning, Option, Verdict
from sinksdk.compatibility import judge, rule_for
from sinksdk.plugins.checks import check_config
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.transforms.plugins import owners

FORMAT = Verdict.unsupported("only Avro is written").when(
    {"AvroFormat": Verdict.same(), "Json*": Verdict.unsupported("no JSON")}
)


class StandIn(ConnectorConfig):
    """A connector that stands in for another one."""

    compatibility: ClassVar = {
        "flush.size": Verdict.same("exactly"),
        "format.class": FORMAT,
        "old.depth": Verdict.ignored("there is no depth"),
        "value.converter*": Verdict.ignored("nothing is converted"),
    }

    flush_size: int = Field(default=5, alias="flush.size", description="Records.")
    depth: int = Field(default=1, alias="old.depth", description="Depth.")
    colour: str = Field(default="", alias="colour", description="Colour.")


MINIMAL = {"name": "a", "topics": "t"}


# -- verdicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meaning", "why"),
    [
        ("io.confluent.connect.s3.format.avro.AvroFormat", Meaning.SAME, ""),
        ("AvroFormat", Meaning.SAME, ""),
        ("org.example.JsonLinesFormat", Meaning.UNSUPPORTED, "no JSON"),
        ("org.example.OtherFormat", Meaning.UNSUPPORTED, "only Avro is written"),
    ],
)
def test_a_verdict_can_depend_on_the_value(value: str, meaning: Meaning, why: str) -> None:
    """when: patterns fit the whole value or a class name without its package; the first that fits counts."""
    verdict = FORMAT.of(value)

    assert (verdict.meaning, verdict.why) == (meaning, why)


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_value_asks_for_nothing(value: str) -> None:
    """of: what is unsupported is so with a value; without one it changes nothing."""
    assert FORMAT.of(value).meaning is Meaning.IGNORED
    assert Verdict.differs("a bit").of(value).meaning is Meaning.DIFFERS


def test_a_misspelt_key_is_never_taken_for_one_that_is_refused() -> None:
    """judge: nobody is sent from one key to another that has to be taken out in its turn."""
    rules = {"other.store.endpoint": Verdict.unsupported("use store.url"), "s3.bucket.name": Verdict.same()}

    found = judge({"store.endpoint": "x", "s3.bucket.nam": "y"}, [rules], ["store.url"])

    assert [option.verdict.why for option in found] == ["", "did you mean 's3.bucket.name'?"]


def test_a_keys_own_verdict_goes_before_patterns_and_longer_patterns_before_shorter() -> None:
    """rule_for: the most particular one counts, and any of the connector's before those of all connectors."""
    rules = {name: Verdict.same(name) for name in ("a.*", "a.b.*", "a.b.c")}
    common = {name: Verdict.same(f"common {name}") for name in ("a.b.d", "c.*")}

    found = {key: rule_for(key, rules, common) for key in ("a.b.c", "a.b.d", "a.x.y", "b", "c.d")}

    assert {key: rule and rule.why for key, rule in found.items()} == {
        "a.b.c": "a.b.c",
        "a.b.d": "a.b.*",
        "a.x.y": "a.*",
        "b": None,
        "c.d": "common c.*",
    }


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (Verdict.unsupported("take it out"), "'k' is unsupported: take it out"),
        (Verdict.differs("a bit"), "'k' is applied with a difference: a bit"),
        (Verdict.ignored("why not"), "'k' has no effect here: why not"),
        (Verdict.same(), "'k' means the same here"),
        (Verdict(Meaning.OWN), "'k' is this connector's own"),
        (Verdict(Meaning.UNKNOWN), "'k' is not known to this connector and has no effect"),
        (
            Verdict(Meaning.UNKNOWN, "did you mean 'l'?"),
            "'k' is not known to this connector and has no effect; did you mean 'l'?",
        ),
    ],
)
def test_each_verdict_can_be_told_in_one_sentence(verdict: Verdict, sentence: str) -> None:
    """Option.sentence: names the key and says what becomes of it."""
    assert Option("k", verdict).sentence == sentence


def test_unknown_keys_have_the_nearest_known_one() -> None:
    """judge: among the connector's keys and those that have a verdict; none if none is near."""
    values = dict.fromkeys(("flush.sise", "old.deepth", "entirely.different.thing"), "1")

    found = judge(values, [{"old.depth": Verdict.ignored("x")}], ["flush.size"])

    assert [(option.verdict.meaning, option.verdict.why) for option in found] == [
        (Meaning.UNKNOWN, "did you mean 'flush.size'?"),
        (Meaning.UNKNOWN, "did you mean 'old.depth'?"),
        (Meaning.UNKNOWN, ""),
    ]


# -- configurations ----------------------------------------------------------------------------------


def test_every_key_of_a_configuration_has_a_verdict_in_its_order() -> None:
    """judge: the connector's own, Kafka Connect's, its own inventions, and what nobody knows."""
    raw = {
        **MINIMAL,
        "flush.size": "1",
        "old.depth": "2",
        "colour": "red",
        "tasks.max.enforce": "true",
        "x": "1",
    }

    assert {option.key: str(option.verdict.meaning) for option in StandIn.judge(raw)} == {
        "name": "same",
        "topics": "same",
        "flush.size": "same",
        "old.depth": "ignored",
        "colour": "own",
        "tasks.max.enforce": "ignored",
        "x": "unknown",
    }


def test_what_is_unsupported_keeps_a_configuration_from_starting() -> None:
    """check: it is a problem like any other, beside what is wrong with fields."""
    _, problems = StandIn.check({**MINIMAL, "format.class": "x.JsonFormat", "flush.size": "many"})

    assert problems[0] == "'format.class' is unsupported: no JSON"
    assert problems[1].startswith("'flush.size': ")
    assert len(problems) == 2


def test_what_is_ignored_need_not_be_valid_nor_resolvable() -> None:
    """check: a field of that name keeps its default, and a missing file of secrets keeps nothing from starting."""
    config, problems = StandIn.check(
        {
            **MINIMAL,
            "old.depth": "deep",
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.basic.auth.user.info": "${file:/nowhere:user}",
        }
    )

    assert problems == []
    assert config is not None
    assert (config.depth, config.value_converter) == (1, "bytes")


def test_a_reference_that_counts_must_be_resolvable() -> None:
    """check: unlike one behind a key without effect."""
    _, problems = StandIn.check({**MINIMAL, "flush.size": "${file:/nowhere:size}"})

    assert problems[0] == "'flush.size': ${file:/nowhere:size}: No such file or directory"


def test_a_verdict_can_depend_on_what_a_reference_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """judge: by the value, not by its name."""
    monkeypatch.setenv("FORMAT", "AvroFormat")

    (option,) = StandIn.judge({"format.class": "${env:FORMAT}"})

    assert option.verdict.meaning is Meaning.SAME


def test_keys_without_effect_are_not_in_the_reference() -> None:
    """reference: what can be set, and nothing that a connector ignores."""
    keys = {key.name for key in StandIn.reference()}

    assert {"flush.size", "colour", "key.converter"} <= keys
    assert keys & {"old.depth", "value.converter"} == set()


def test_keys_of_kafka_connect_that_are_applied_are_there_to_be_applied() -> None:
    """CONNECT_OPTIONS: who is told that a key means the same finds it among every connector's, or the client has it."""
    applied = {
        key for key, verdict in CONNECT_OPTIONS.items() if verdict.meaning in (Meaning.SAME, Meaning.DIFFERS)
    }

    own = {key for key in applied if not key.startswith(("consumer.override.", "producer.override."))}
    own -= {"transforms.*", "transforms.*.type", "predicates.*"}  # each transform has its own
    namespaced = {
        f"{side}.converter.schema.registry.basic.auth.{key}"
        for side in ("key", "value")
        for key in ("credentials.source", "user.info")
    }
    assert own - set(ConnectorConfig.keys()) == namespaced  # read as the name without the namespace


def test_every_verdict_of_kafka_connects_keys_says_why() -> None:
    """CONNECT_OPTIONS: what is ignored or refused is so for a reason."""
    silent = [
        key
        for key, verdict in CONNECT_OPTIONS.items()
        if not verdict.why and verdict.meaning is not Meaning.SAME
    ]

    assert silent == []


def test_properties_of_the_reading_client_are_passed_on() -> None:
    """overrides: what is said to mean the same for Kafka's client gets there, and where it begins is a key of its own."""
    raw = {
        **MINIMAL,
        "consumer.override.auto.offset.reset": "latest",
        "consumer.override.fetch.max.bytes": "7",
    }

    config = StandIn.parse(raw)

    assert config.overrides("consumer.override.")["fetch.max.bytes"] == "7"
    assert config.auto_offset_reset == "latest"


# -- many keys ---------------------------------------------------------------------------------------

MANY = 5_000
S3 = {**MINIMAL, "connector.class": "s3-archiver", "s3.bucket.name": "bucket", "flush.size": "1"}
NAMES = ",".join(f"t{number}" for number in range(MANY))
OF_KAFKA = "org.apache.kafka.connect.transforms"


def numbered(key: str, value: str) -> dict[str, str]:
    return {key.format(number): value for number in range(MANY)}


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        (numbered("flush.siz{}", "1"), 0),
        (numbered("s3.endpoint.{}", "x"), MANY),
        ({**numbered("s3.endpoint.{}", "x"), "transforms": NAMES}, 2 * MANY),
        ({"transforms": NAMES, **numbered("transforms.t{}.type", f"{OF_KAFKA}.ValueToKey"),
          **numbered("transforms.t{}.fields", "a")}, 0),
        ({"predicates": NAMES, **numbered("predicates.t{}.type", f"{OF_KAFKA}.predicates.RecordIsTombstone")}, 0),
        ({"transforms": NAMES, **numbered("transforms.t{}.type", f"{OF_KAFKA}.ValueToKey"),
          **numbered("transforms.t{}.fields", "a"), **numbered("transforms.t{}.predicate", "absent"),
          "predicates": NAMES, **numbered("predicates.t{}.type", f"{OF_KAFKA}.predicates.RecordIsTombstone")}, MANY),
    ],
    ids=["unknown", "unsupported", "unsupported and wrong", "transforms", "predicates", "wrong predicates"],
)  # fmt: skip
def test_many_keys_are_judged_in_linear_time(keys: dict[str, str], problems: int) -> None:
    """Whoever may validate a configuration could keep the server's interpreter busy for minutes."""
    config = {"value.converter": "json", **S3, **keys}
    began = time.process_time()
    found = check_config(config)
    assert time.process_time() - began < 6
    assert [option.key for option in found.options] == list(config)
    assert len(found.problems) == problems


def test_entries_of_a_map_are_gathered_in_linear_time() -> None:
    """Each entry may have a key of its own."""

    class WithMap(ConnectorConfig):
        labels: dict[str, str] = Field(default={}, alias="labels", description="Labels.")

    entries = numbered("labels.{}", "x")
    began = time.process_time()
    config = WithMap.parse({**MINIMAL, "connector.class": "x", "labels": "a:b", **entries})
    assert time.process_time() - began < 6
    assert config.labels == {"a": "b", **{str(number): "x" for number in range(MANY)}}


def test_misspelt_keys_beyond_the_first_twenty_are_unknown_without_a_suggestion() -> None:
    """A comparison with all keys is dear, and nobody misspells as many; the verdict stays."""
    options = judge({f"flush.siz{number}": "" for number in range(30)}, [], ["flush.size"])
    assert {option.verdict.meaning for option in options} == {Meaning.UNKNOWN}
    assert [option.verdict.why for option in options] == ["did you mean 'flush.size'?"] * 20 + [""] * 10


def test_key_of_a_step_belongs_to_the_longest_name_that_it_begins_with() -> None:
    """Names may have dots, and one may begin like another."""
    owner = owners("transforms", ["a", "a.b"])
    assert [owner(f"transforms.{key}") for key in ("a.type", "a.b.type", "a.c.d", "a", "b.type")] == [
        "a", "a.b", "a", None, None,
    ]  # fmt: skip
    assert owner("predicates.a.type") is None
