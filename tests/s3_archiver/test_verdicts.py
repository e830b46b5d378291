from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sinksdk import ConnectorConfig, Meaning, Verdict
from sinksdk.cli.app import app
from sinksdk.compatibility import rule_for
from sinksdk.connectors.s3_archiver.compatibility.verdicts import COMPATIBILITY, ENDPOINTS, OTHER_DEFAULTS
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from tests.helpers.tiers import extended_after
from tests.s3_archiver.corpus_files import CORPUS, NAMES, place, set_variables, settings_of
from tests.s3_archiver.corpus_verdicts import CONVERTED, EXPECTED, REFUSED
from tests.s3_archiver.support import MINIMAL

KEYS = set(S3ArchiverConfig.keys())
COLLECTED = {name for name in NAMES if re.fullmatch(r"[eilr]\d\d", name)}

every_file = pytest.mark.parametrize("name", NAMES)
# The first twenty files cover every rule.
first_files = pytest.mark.parametrize("name", extended_after(20, NAMES))


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch)


def validate(path: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["validate", str(path), "--json"])
    return result.exit_code, json.loads(result.stdout)


def all_verdicts() -> list[tuple[str, Verdict]]:
    return [(key, verdict) for key, rule in COMPATIBILITY.items() for verdict in (rule, *rule.cases.values())]


# -- the corpus --------------------------------------------------------------------------------------


def test_every_corpus_file_has_its_verdicts() -> None:
    assert sorted(EXPECTED) == NAMES
    assert len(NAMES) >= 20


@every_file
def test_every_key_of_a_real_configuration_has_the_expected_verdict(name: str, tmp_path: Path) -> None:
    code, found = validate(place(name, tmp_path))

    expected = EXPECTED[name]
    assert {option["key"]: option["verdict"] for option in found["options"]} == expected.verdicts()
    assert found["would_start"] is expected.starts
    assert code == (0 if expected.starts else 2)


@every_file
def test_every_key_of_a_corpus_file_has_an_expected_verdict(name: str, tmp_path: Path) -> None:
    _, found = validate(place(name, tmp_path))

    written = set(settings_of(json.loads((CORPUS / f"{name}.json").read_text())))
    assert written <= {option["key"] for option in found["options"]} or name == "r24"
    silent = {
        option["key"] for option in found["options"] if option["verdict"] != "same" and not option["why"]
    }
    # No known key resembles these unknown keys.
    assert silent <= {
        "avro.converter.enhanced.avro.schema.support",
        "avro.converter.schema.cache.size",
        "prefix.add.prefix",
        "prefix.remove.regex",
    }


def test_at_least_45_of_54_collected_configurations_start() -> None:
    as_they_are = {name for name in COLLECTED if EXPECTED[name].starts}

    assert len(COLLECTED) == 54
    assert len(as_they_are) == 42
    assert len(as_they_are | CONVERTED) == 48
    assert REFUSED.keys() == COLLECTED - as_they_are - CONVERTED


@pytest.mark.parametrize("name", sorted(CONVERTED))
def test_converted_configurations_of_other_sinks_start(name: str, tmp_path: Path) -> None:
    converted = CliRunner().invoke(app, ["convert", str(place(name, tmp_path))])
    (tmp_path / "converted.json").write_text(converted.stdout)

    assert converted.exit_code == 0
    assert validate(tmp_path / "converted.json")[0] == 0


@first_files
def test_defaults_that_differ_from_connects_are_noted(name: str, tmp_path: Path) -> None:
    _, found = validate(place(name, tmp_path))
    if name == "r24":
        return  # the class does not exist, so its defaults are unknown

    given = {option["key"] for option in found["options"]}
    content = set() if "format.class" in given else {"archive.content"}
    assert set(found["notes"]) - {"rotate.file.on.partition.change"} == {*OTHER_DEFAULTS, *content} - given


@first_files
def test_an_unset_converter_is_a_warning(name: str, tmp_path: Path) -> None:
    _, found = validate(place(name, tmp_path))
    values = settings_of(json.loads((CORPUS / f"{name}.json").read_text()))
    is_about_values = values.get("format.class", "ByteArrayFormat").rpartition(".")[2] != "ByteArrayFormat"
    reads_fields = "RecordField" in values.get("timestamp.extractor", "")
    is_warned = any("'value.converter' is not set" in text for text in found["warnings"])

    if found["would_start"]:
        assert is_warned is ("value.converter" not in values and (is_about_values or reads_fields))


@pytest.mark.parametrize(
    ("keys", "expected_text"),
    [
        ({"format.class": "JsonFormat"}, "values are read as JSON text"),
        ({"format.class": "AvroFormat"}, "AvroFormat needs typed values"),
        ({"format.class": "ParquetFormat"}, "the first value of bytes stops its partition"),
        ({"format.class": "ByteArrayFormat"}, None),
        ({"format.class": "JsonFormat", "value.converter": "string"}, None),
        ({"format.class": "ParquetFormat", "records.sql": "SELECT * FROM records"}, None),
        ({}, None),
        (
            {"partitioner.class": "FieldPartitioner", "partition.field.name": "country"},
            "values, whose fields name folders, are read as JSON text",
        ),
    ],
    ids=str,
)
def test_assumptions_about_values_are_warnings(keys: dict[str, str], expected_text: str | None) -> None:
    # In Connect the worker's configuration names the converter.
    warnings = S3ArchiverConfig.parse({**MINIMAL, **keys}).warnings()

    assert len(warnings) == (expected_text is not None)
    assert (expected_text or "") in "".join(warnings)


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        (
            "partitioner.class",
            "io.confluent.connect.storage.partitioner.HourlyPartitoner",
            "HourlyPartitioner",
        ),
        ("partitioner.class", "TimebasedPartitioner", "TimeBasedPartitioner"),
        ("format.class", "io.confluent.connect.s3.format.json.JSONFormat", "JsonFormat"),
        ("format.class", "ParquetFromat", "ParquetFormat"),
        ("timestamp.extractor", "RecordFeild", "RecordField"),
        ("timestamp.extractor", "wallclock", "Wallclock"),
        ("storage.class", "io.confluent.connect.s3.storage.S3Storag", "S3Storage"),
        ("partitioner.class", "com.example.MyPartitioner", None),
        ("partitioner.class", "com.example.CustomTimeBasedPartitioner", None),
        ("format.class", "com.example.OrcFormat", None),
        ("s3.compression.type", "snappy", None),
    ],
)
def test_a_misspelt_value_suggests_the_nearest(key: str, value: str, nearest: str | None) -> None:
    others = {"format.class": "JsonFormat", "partitioner.class": "TimeBasedPartitioner"}
    option = next(one for one in S3ArchiverConfig.judge({**others, key: value}) if one.key == key)

    assert option.verdict.meaning == "unsupported"
    asked = f"; did you mean '{nearest}'?"
    assert option.verdict.why.endswith(asked) if nearest else "did you mean" not in option.verdict.why


@pytest.mark.parametrize(
    ("kind", "converter", "meaning", "why"),
    [
        ("AvroFormat", "StringConverter", "differs", "an Avro string"),
        ("AvroFormat", "bytes", "differs", "Avro bytes"),
        ("AvroFormat", "AvroConverter", "differs", "the producer's schema"),
        ("JsonFormat", "org.apache.kafka.connect.storage.StringConverter", "same", "a JSON string"),
        ("AvroFormat", "org.apache.kafka.connect.json.JsonConverter", "differs", "ConnectDefault"),
        ("AvroFormat", "json", "differs", "ConnectDefault"),
        (
            "AvroFormat",
            "org.apache.kafka.connect.converters.LongConverter",
            "differs",
            "an Avro number or boolean",
        ),
        ("AvroFormat", "double", "differs", "an Avro number or boolean"),
        ("com.acme.AvroFormat", "StringConverter", "unsupported", "a third-party Java class"),
        ("JsonFormat", "JsonConverter", "differs", "written unchanged"),
        ("ByteArrayFormat", "ByteArrayConverter", "same", ""),
    ],
)
def test_the_verdict_on_a_format_depends_on_the_converter(
    kind: str, converter: str, meaning: str, why: str
) -> None:
    (option, _) = S3ArchiverConfig.judge({"format.class": kind, "value.converter": converter})

    assert (option.verdict.meaning, why in option.verdict.why) == (meaning, True)


def test_the_verdict_mentions_a_registry_only_if_one_is_used() -> None:
    beside = {"store.kafka.keys": "true", "store.kafka.headers": "true"}
    formats = dict.fromkeys(("format.class", "keys.format.class", "headers.format.class"), "AvroFormat")
    for more in ({}, {"value.converter": "json", "key.converter": "string"}, {"transforms": "t"}):
        given = {"value.converter": "avro", **beside, **formats, **more}
        given |= {"key.converter": "string"} if "transforms" not in more else {"key.converter": "avro"}
        found = {option.key: option.verdict.why for option in S3ArchiverConfig.judge(given)}

        named = [key for key in formats if "registry" in found[key]]
        assert named == ([] if more else ["format.class"])


def test_an_unsupported_format_of_headers_is_refused() -> None:
    keys = {**MINIMAL, "format.class": "JsonFormat", "store.kafka.headers": "true"}
    _, problems = S3ArchiverConfig.check({**keys, "headers.format.class": "ByteArrayFormat"})

    assert problems == ["'headers.format.class' is unsupported: use AvroFormat, JsonFormat or ParquetFormat"]


def test_a_misspelt_converter_suggests_the_nearest() -> None:
    misspelt = {
        **MINIMAL,
        "format.class": "JsonFormat",
        "value.converter": "org.apache.kafka.connect.json.JsonConvertor",
    }
    _, problems = S3ArchiverConfig.check(misspelt)

    assert [
        text for text in problems if "did you mean 'org.apache.kafka.connect.json.JsonConverter'?" in text
    ]


@pytest.mark.parametrize(
    ("folder", "expected_text"),
    [
        ("/", "leave it empty for archives at the top of the bucket"),
        ("/raw/", "write it without slashes at its ends, as 'raw'"),
        ("raw//orders", "'' is not a folder's name"),
        ("raw/../orders", "'..' is not a folder's name"),
        ("raw\norders", "it contains control characters"),
        ("x" * 2_048, "it has 2,048 bytes, but an object's key can have 1,024 at most"),
    ],
)
def test_an_invalid_topics_dir_is_refused(folder: str, expected_text: str) -> None:
    _, problems = S3ArchiverConfig.check({**MINIMAL, "topics.dir": folder})

    assert len(problems) == 1
    assert expected_text in problems[0]
    assert S3ArchiverConfig.check({**MINIMAL, "topics.dir": "raw/2024 (new)/orders"})[1] == []


@pytest.mark.parametrize("name", ["none", "NONE", "gzip", "GZIP", ""])
def test_compression_types_ignore_case(name: str) -> None:
    assert (
        S3ArchiverConfig.check({**MINIMAL, "format.class": "JsonFormat", "s3.compression.type": name})[1]
        == []
    )


def test_unresolved_config_provider_references_are_warnings(tmp_path: Path) -> None:
    # Otherwise the references to Strimzi's secrets would be used as the keys.
    _, found = validate(place("strimzi", tmp_path))

    warnings = [warning for warning in found["warnings"] if "${secrets:…}" in warning]
    assert [warning.split("'")[1] for warning in warnings] == ["aws.access.key.id", "aws.secret.access.key"]


@first_files
def test_secrets_are_hidden_in_the_validation_result(name: str, tmp_path: Path) -> None:
    _, found = validate(place(name, tmp_path))

    assert "value-of-" not in json.dumps(found)
    assert "secret-from-file" not in json.dumps(found)


# -- the verdicts ------------------------------------------------------------------------------------


def test_keys_with_an_applied_verdict_exist() -> None:
    judged_by_value = {"connector.class", "format.class", "storage.class", "partitioner.class", *ENDPOINTS}
    applied = {
        key
        for key, rule in COMPATIBILITY.items()
        if rule.meaning in (Meaning.SAME, Meaning.DIFFERS) and key not in judged_by_value
    }

    assert applied - KEYS == set()


def test_every_key_has_a_verdict_or_exists_only_in_the_archiver() -> None:
    own = {key for key in KEYS if rule_for(key, COMPATIBILITY, CONNECT_OPTIONS) is None}

    assert own - set(ConnectorConfig.keys()) == {
        "archive.content",
        "avro.codec.level",
        "s3.checksum",
        "s3.conditional.writes",
        "flush.bytes",
        "partitioner.buffer.bytes",
        "s3.storage.class",
    }


def test_every_refusal_and_difference_has_a_reason() -> None:
    silent = [
        key for key, verdict in all_verdicts() if verdict.meaning is not Meaning.SAME and not verdict.why
    ]

    assert silent == []


def test_replacement_keys_exist() -> None:
    renamed = [
        verdict.why.split("'")[1] for _, verdict in all_verdicts() if verdict.why.startswith("it is '")
    ]

    assert len(renamed) > 10
    assert set(renamed) <= KEYS


def test_notes_on_defaults_name_existing_keys() -> None:
    assert all(rule_for(key, COMPATIBILITY, CONNECT_OPTIONS) or key in KEYS for key in OTHER_DEFAULTS)


@pytest.mark.parametrize(
    ("key", "value", "meaning"),
    [
        ("connector.class", "s3-archiver", "same"),
        ("connector.class", "io.confluent.connect.s3.S3SinkConnector", "same"),
        ("rotate.interval.ms", "-1", "same"),
        ("rotate.interval.ms", "60000", "ignored"),
        ("format.class", "io.confluent.connect.s3.format.avro.AvroFormat", "differs"),
        ("s3.endpoint", "http://minio:9000", "differs"),
        ("s3.endpoint.url", "http://minio:9000", "differs"),
        ("s3.endpoint.region", "eu-west-1", "unsupported"),
        ("s3.path.style.access", "false", "unsupported"),
        ("s3.force.path.style", "true", "ignored"),
        ("s3.credentials.provider.class", "com.x.AwsAccessKeyCredentialsProvider", "unsupported"),
        ("connector.class", "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector", "unsupported"),
        ("connect.s3.kcql", "insert into b:p select * from t", "unsupported"),
        ("connect.s3.log.level", "debug", "unsupported"),
        ("transforms", "", "same"),
        ("transforms", "mask", "same"),
        ("transforms.mask.type", "org.apache.kafka.connect.transforms.MaskField$Value", "ignored"),
        ("behavior.on.null.values", "fail", "differs"),
        ("behavior.on.null.values", "ignore", "differs"),
        ("s3.schema.partition.affix.type", "PREFIX", "unsupported"),
        ("s3.credentials.provider.class", "", "same"),
        ("s3.credentials.provider.class", "software.amazon.X.DefaultCredentialsProvider", "same"),
        ("s3.sse.customer.key", "", "ignored"),
        ("authentication.method", "IAM Roles", "unsupported"),
        ("consumer.override.isolation.level", "read_uncommitted", "same"),
        ("max.poll.records", "500", "ignored"),
    ],
)
def test_a_verdict_may_depend_on_the_value(key: str, value: str, meaning: str) -> None:
    # A value without effect is never refused, one with an effect never ignored.
    (option,) = S3ArchiverConfig.judge({key: value})

    assert option.verdict.meaning == meaning


@pytest.mark.parametrize(
    ("key", "others", "meaning"),
    [
        ("parquet.codec", {"format.class": "ParquetFormat"}, "same"),
        ("parquet.codec", {"format.class": "AvroFormat"}, "ignored"),
        ("avro.codec", {"format.class": "JsonFormat"}, "ignored"),
        ("avro.codec", {}, "same"),
        ("s3.compression.type", {"format.class": "JsonFormat"}, "unsupported"),
        ("s3.compression.type", {"format.class": "ParquetFormat"}, "ignored"),
        ("format.bytearray.separator", {"format.class": "JsonFormat"}, "ignored"),
        ("json.decimal.format", {"format.class": "JsonFormat"}, "same"),
        ("json.decimal.format", {"format.class": "AvroFormat"}, "ignored"),
        (
            "json.decimal.format",
            {"format.class": "AvroFormat", "store.kafka.keys": "true", "keys.format.class": "JsonFormat"},
            "same",
        ),
        ("schema.compatibility", {"format.class": "JsonFormat"}, "ignored"),
        ("path.format", {"partitioner.class": "TimeBasedPartitioner"}, "same"),
        ("path.format", {"partitioner.class": "DailyPartitioner"}, "ignored"),
        ("path.format", {}, "ignored"),
        ("timezone", {}, "same"),
        ("rotate.interval.ms", {"partitioner.class": "HourlyPartitioner"}, "same"),
        ("rotate.interval.ms", {}, "ignored"),
        ("rotate.file.on.partition.change", {"rotate.interval.ms": "5"}, "ignored"),
        (
            "rotate.file.on.partition.change",
            {"rotate.interval.ms": "5", "partitioner.class": "HourlyPartitioner"},
            "same",
        ),
        ("timestamp.field", {"partitioner.class": "HourlyPartitioner"}, "ignored"),
        (
            "timestamp.field",
            {"partitioner.class": "HourlyPartitioner", "timestamp.extractor": "RecordField"},
            "same",
        ),
        ("partition.field.name", {"partitioner.class": "FieldPartitioner"}, "same"),
        ("partition.field.name", {"partitioner.class": "TimeBasedPartitioner"}, "ignored"),
        ("value.converter", {}, "ignored"),
        ("value.converter", {"format.class": "JsonFormat"}, "same"),
        ("value.converter", {"format.class": "AvroFormat", "archive.content": "record"}, "ignored"),
        ("value.converter", {"partitioner.class": "FieldPartitioner"}, "same"),
        ("value.converter", {"transforms": "a"}, "same"),
        ("key.converter", {"format.class": "JsonFormat"}, "ignored"),
        ("key.converter", {"format.class": "JsonFormat", "transforms": "a"}, "same"),
        ("errors.tolerance", {}, "ignored"),
        ("errors.tolerance", {"format.class": "JsonFormat"}, "same"),
        ("errors.tolerance", {"partitioner.class": "HourlyPartitioner"}, "same"),
        ("store.kafka.keys", {}, "ignored"),
        ("store.kafka.keys", {"format.class": "JsonFormat"}, "same"),
        ("s3.endpoint", {"store.url": "http://minio:9000"}, "ignored"),
        ("timezone", {"partitioner.class": "HourlyPartitioner"}, "same"),
        ("time.interval", {"partitioner.class": "HourlyPartitioner"}, "ignored"),
    ],
)
def test_a_verdict_may_depend_on_other_keys(key: str, others: dict[str, str], meaning: str) -> None:
    options = dict(S3ArchiverConfig.judge({key: "true", **others}))

    assert options[key].meaning == meaning


@pytest.mark.parametrize("name", ["ProtobufConverter", "JsonSchemaConverter"])
def test_the_remedy_for_a_refused_converter_is_accepted(name: str) -> None:
    refused = {**MINIMAL, "format.class": "JsonFormat", "value.converter": f"io.confluent.connect.x.{name}"}
    (problem,) = S3ArchiverConfig.check(refused)[1]
    advised = {**refused, "archive.content": "record", "format.class": "AvroFormat"}

    assert "set 'archive.content' to record and 'format.class' to AvroFormat or ParquetFormat" in problem
    assert S3ArchiverConfig.check(advised)[1] == []


@pytest.mark.parametrize(
    ("values", "meaning"),
    [
        ({"behavior.on.null.values": "ignore"}, "same"),
        ({"behavior.on.null.values": "fail"}, "ignored"),
        ({}, "ignored"),
    ],
)
def test_null_value_reports_apply_only_with_ignored_null_values(values: dict[str, str], meaning: str) -> None:
    raw = {"format.class": "JsonFormat", "report.null.values.to.dlq": "true", **values}

    assert dict(S3ArchiverConfig.judge(raw))["report.null.values.to.dlq"].meaning == meaning


def test_disabled_retries_are_advised_against() -> None:
    # In Connect the default is 0, which exported files contain and which means something else here.
    given, longer = (S3ArchiverConfig.judge({"errors.retry.timeout": value})[0] for value in ("0", "600000"))

    assert "remove it" in given.verdict.why
    assert "remove it" not in longer.verdict.why


def test_a_refused_value_is_hidden_in_the_message() -> None:
    _, problems = S3ArchiverConfig.check({**MINIMAL, "s3.sse.customer.key": "hunter2"})

    assert len(problems) == 1
    assert "hunter2" not in problems[0]


@pytest.mark.parametrize(
    ("context", "is_refused"), [("mine", True), (".mine", True), ("default", False), ("", False)]
)
def test_another_schema_registry_context_is_refused(context: str, *, is_refused: bool) -> None:
    # Ids in another context stand for other schemas.
    _, problems = S3ArchiverConfig.check({**MINIMAL, "schema.context.name": context})

    assert any("put it into the registry's URL" in problem for problem in problems) is is_refused
    assert len(problems) == is_refused
