"""What an application does in its first minute, with whatever kafka-python is on the path."""

import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

RECORDS = 300
bootstrap, topic = sys.argv[1:]
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(topic, 3, 1)])
admin.close()
producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type="gzip")
sent = [producer.send(topic, key=b"k%d" % i, value=b"plain-%d" % i) for i in range(RECORDS)]
offsets = [future.get(timeout=30).offset for future in sent]
producer.close()
consumer = KafkaConsumer(
    topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000
)
values = []
for message in consumer:
    values.append(message.value)
    if len(values) == RECORDS:
        break
consumer.commit()
consumer.close()
print("version", kafka.__version__)
print("read", len(values))
