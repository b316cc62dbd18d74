from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from triolog.tools.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_second_session_is_the_first_one_and_workers_run_this_interpreter(spark: SparkSession) -> None:
    assert session("another").sparkContext is spark.sparkContext
    assert spark.sparkContext.pythonExec == sys.executable
