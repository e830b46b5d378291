"""A JVM that successive ``sinksdk run`` processes share: starting one takes more than half of a short run.

pyspark connects to the JVM that the environment names, as under ``spark-submit``; each run starts its own
Spark.
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
    # Only runs that end by themselves may use the JVM: the Spark of a killed process stays in it.
    def __init__(self) -> None:
        self._gateway: Any = None

    def environment(self) -> Mapping[str, str]:
        if self._gateway is None or not self._is_idle():
            self._start()
        parameters = self._gateway.gateway_parameters
        return {
            **os.environ,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def _is_idle(self) -> bool:
        if self._gateway.proc.poll() is not None:
            return False
        contexts = getattr(getattr(self._gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        return bool(contexts.getActive().isEmpty())

    def _start(self) -> None:
        if self._gateway is not None:
            self._gateway.proc.kill()
            self._gateway.proc.wait()
        # Only the JVM's own options are passed: others would count as those of a user of spark-submit.
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
    return WarmJvm()
