"""Jars of Spark's Kafka source for the tests, of the Spark version that is installed."""

from __future__ import annotations

from pathlib import Path

import pyspark

from sinksdk.errors import ConfigException
from sinksdk.spark.kafka_jars import needed
from sinksdk.spark.maven import copy_jars
from tests.needs import missing

_POM = Path(__file__).with_name("spark-pom.xml")
_TOKEN_PROVIDER = "4.1.0-preview1"


def spark_jars() -> str:
    """What ``--kafka-jars`` takes. Skips the test, or fails it in CI, where they cannot be had."""
    spark = pyspark.__version__
    properties = {"spark.version": spark, "token.provider.version": _TOKEN_PROVIDER}
    try:
        return ",".join(map(str, needed(copy_jars(_POM, f"tests-spark-kafka-{spark}", properties))))
    except ConfigException as error:
        missing(f"Spark {spark}'s Kafka source", f"its jars come from Maven Central: {error}")
