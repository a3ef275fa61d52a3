"""What sessions of Spark are made with, and what they need."""

import subprocess

from needs import java_program, missing

# without the verification of classes of Spark's own jars, which takes a sixth of a start
QUICK_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)


def check_java():
    """Spark 4 needs Java 17."""
    program = java_program()
    if subprocess.run([program, "-version"], capture_output=True, check=False).returncode:
        missing(f"{program} does not run")


def settings(scratch):
    """What every session here is made with: bound to loopback, small, silent."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Dderby.system.home={scratch}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
    }
