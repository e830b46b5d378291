"""Where the jars of Spark's Kafka source come from: the operator, Spark's own folder, or Maven Central."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.spark.maven import copy_jars

_POM: Final = Path(__file__).with_name("kafka.pom.xml")
_SOURCE: Final = "spark-sql-kafka-0-10_"
_NEEDED: Final = (_SOURCE, "spark-token-provider-kafka-0-10_", "kafka-clients-", "commons-pool2-")
"""Of what the source depends on, that which Spark does not bring itself."""
_JAR_SETTINGS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def with_kafka(conf: Mapping[str, str], given: Sequence[str] = ()) -> dict[str, str]:
    """Spark's settings with the jars of its Kafka source.

    Args:
        conf: the settings an operator gave; jars named in ``spark.jars``, ``spark.jars.packages`` or
            ``spark.driver.extraClassPath`` count.
        given: jars the operator named for Kafka; they win over all others.

    Raises:
        ConfigException: a jar is not there, or none were named and Maven cannot get them.
    """
    if given:
        return _with_jars(conf, _checked(given))
    if any(_SOURCE in conf.get(setting, "") for setting in _JAR_SETTINGS) or _brought_by_spark():
        return dict(conf)
    return _with_jars(conf, _from_maven(*_versions()))


def needed(jars: Iterable[Path]) -> list[Path]:
    """Those of the source's dependencies that Spark does not bring itself."""
    return [jar for jar in jars if jar.name.startswith(_NEEDED)]


def _checked(given: Sequence[str]) -> list[Path]:
    jars = [Path(jar).expanduser().absolute() for jar in given]
    missing = [str(jar) for jar in jars if not jar.is_file()]
    if missing:
        message = f"these Kafka jars are not there: {', '.join(missing)}"
        raise ConfigException(message)
    return jars


def _with_jars(conf: Mapping[str, str], jars: Iterable[Path]) -> dict[str, str]:
    named = [*filter(None, [conf.get("spark.jars")]), *map(str, jars)]
    return {**conf, "spark.jars": ",".join(named)}


def _brought_by_spark() -> bool:
    return any(_spark_jars().glob(f"{_SOURCE}*.jar"))


def _versions() -> tuple[str, str]:
    """Spark's version and Scala's, as the names of its own jars tell them."""
    for jar in _spark_jars().glob("spark-sql_*.jar"):
        if match := re.fullmatch(r"spark-sql_([\d.]+)-(.+)\.jar", jar.name):
            return match[2], match[1]
    message = f"{_spark_jars()} holds no spark-sql jar: is this a whole Spark?"
    raise ConfigException(message)


def _spark_jars() -> Path:
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - pyspark may be missing, and has no public way

    return Path(_find_spark_home(), "jars")


def _from_maven(spark: str, scala: str) -> list[Path]:
    properties = {"spark.version": spark, "scala.version": scala}
    try:
        return needed(copy_jars(_POM, f"spark-kafka-{spark}_{scala}", properties))
    except ConfigException as error:
        raise ConfigException(
            f"Spark {spark} has no Kafka source here, and it could not be fetched: {error}. Give its jars "
            f"with --kafka-jars ({', '.join(f'{name}*.jar' for name in _NEEDED)}, of Spark's own version), "
            f"or use a Spark version whose jars Maven Central has"
        ) from error
