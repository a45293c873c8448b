"""What an application does in its first minute, with whatever confluent-kafka is on the path."""

import sys

from confluent_kafka import Consumer, Producer, libversion, version
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS = 100
bootstrap, topic = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(timeout=30)
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
for i in range(RECORDS):
    producer.produce(topic, f"plain-{i}", key=f"k{i}")
assert producer.flush(30) == 0
writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
writer.init_transactions(30)
for outcome in ("committed", "aborted", "committed"):
    writer.begin_transaction()
    for i in range(RECORDS):
        writer.produce(topic, f"{outcome}-{i}", key=f"k{i}")
    if outcome == "committed":
        writer.commit_transaction(30)
    else:
        writer.abort_transaction(30)
settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
consumer = Consumer({**settings, "isolation.level": "read_committed"})
consumer.subscribe([topic])
values = []
while len(values) < 3 * RECORDS:
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None, message.error()
    assert not message.value().startswith(b"aborted")
    values.append(message.value())
consumer.commit(asynchronous=False)
consumer.close()
print("version", version(), libversion())
print("read", len(values))
