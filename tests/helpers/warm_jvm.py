"""A JVM that runs of ``sinksdk run`` in processes of their own share, one after the other.

To start one, and the first Spark in it, takes more than half of what a short run takes. pyspark connects to a
JVM that is there where the environment names it, as it does below ``spark-submit``; each run has a Spark of its
own in it, and ends it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

from pyspark import SparkConf, java_gateway

from sinksdk.spark.context import spark_conf


class WarmJvm:
    """Only for runs that end by themselves: a Spark whose process was killed goes on in its JVM."""

    def __init__(self) -> None:
        self._gateway: Any = None

    def environment(self) -> Mapping[str, str]:
        """What a process needs besides its own environment to run in it."""
        if self._gateway is None or not self._is_idle():
            self._start()
        parameters = self._gateway.gateway_parameters
        return {
            **os.environ,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def _is_idle(self) -> bool:
        """Whether it lives, and the Spark of the last run was ended."""
        if self._gateway.proc.poll() is not None:
            return False
        contexts = getattr(getattr(self._gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        return bool(contexts.getActive().isEmpty())

    def _start(self) -> None:
        if self._gateway is not None:
            self._gateway.proc.kill()
            self._gateway.proc.wait()
        # What the JVM itself needs, and no more: it would count as what its user has told spark-submit.
        needed = ("spark.driver.defaultJavaOptions", "spark.ui.showConsoleProgress")
        settings = spark_conf("tests", "local[2]", {})
        conf = SparkConf(loadDefaults=False).setAll([(key, settings[key]) for key in needed])
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        before = os.environ.get("SPARK_LOCAL_IP")
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        try:
            self._gateway = java_gateway.launch_gateway(conf, quiet)
        finally:
            if before is None:
                del os.environ["SPARK_LOCAL_IP"]


@cache
def warm_jvm() -> WarmJvm:
    """That of this process; it ends with it."""
    return WarmJvm()
