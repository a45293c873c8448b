"""Spark 3.5 with its own connector: write a topic, read it as a batch and as a stream."""

import sys
import tempfile

import pyspark
from pyspark.sql import SparkSession

RECORDS = 300
bootstrap, topic, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
spark = (
    builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
rows = spark.range(RECORDS).selectExpr("cast(id as string) as key", "concat('plain-', id) as value")
rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
assert spark.read.format("kafka").options(**options).load().count() == RECORDS
seen = []
stream = spark.readStream.format("kafka").options(**options).load().writeStream.trigger(availableNow=True)
with tempfile.TemporaryDirectory() as checkpoint:
    counted = stream.foreachBatch(lambda batch, _: seen.append(batch.count()))
    query = counted.option("checkpointLocation", checkpoint).start()
    query.awaitTermination(120)
print("version", pyspark.__version__)
print("read", sum(seen))
spark.stop()
