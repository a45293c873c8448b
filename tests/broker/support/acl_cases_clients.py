"""What clients ask for about records, metadata, topics and groups, and the rights that it needs."""

from __future__ import annotations

from typing import Any

from acl_table import (
    ABSENT,
    ACTION,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    NEW_GROUP,
    READ,
    TOPIC,
    TXN,
    WRITE,
    World,
    add,
    on_cluster,
    on_group,
    on_topic,
    on_txn,
)

from tidemark.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tidemark.protocol.records import Record, build_batch

# -- records -------------------------------------------------------------

BATCH = build_batch([Record(value=b"v")])
OF_TRANSACTION = build_batch(
    [Record(value=b"v")], transactional=True, producer_id=4711, producer_epoch=3, base_sequence=0
)


def _produce(name: str, batch: bytearray = BATCH, **fields: Any) -> Any:
    data = [produce.PartitionProduceData(index=0, records=batch)]
    return produce.ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[produce.TopicProduceData(name=name, partition_data=data)], **fields
    )


def _produce_by_id(topic_id: bytes) -> Any:
    request = _produce("")
    request.topic_data[0].topic_id = topic_id
    return request


add("Produce", 9, lambda _: _produce(TOPIC), on_topic(WRITE))
add("Produce to what is absent", 9, lambda _: _produce(ABSENT), on_topic(WRITE, ABSENT))
add("Produce by id", 13, lambda world: _produce_by_id(world.topic_id), on_topic(WRITE))
add("Produce by an unknown id", 13, lambda _: _produce_by_id(b"x" * 16), on_topic(WRITE))
add(
    "Produce in a transaction",
    11,
    lambda _: _produce(TOPIC, OF_TRANSACTION, transactional_id=TXN),
    on_txn(WRITE),
    on_topic(WRITE),
)
add("Produce with an id of a transaction", 9, lambda _: _produce(TOPIC, transactional_id=TXN), on_topic(WRITE))
add("Produce of a transaction without its id", 9, lambda _: _produce(TOPIC, OF_TRANSACTION), on_topic(WRITE))


def _two_topics(_: World) -> Any:
    request = _produce(TOPIC)
    request.topic_data += _produce(ABSENT).topic_data
    return request


add("Produce to two topics", 9, _two_topics, on_topic(WRITE), on_topic(WRITE, ABSENT))


def _fetch(topic: str = "", topic_id: bytes = bytes(16), replica: int = -1) -> Any:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_epoch=-1,
        replica_id=replica,
        replica_state=fetch.ReplicaState(replica_id=replica),
        topics=[fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
    )


add("Fetch", 12, lambda _: _fetch(TOPIC), on_topic(READ))
add("Fetch what is absent", 12, lambda _: _fetch(ABSENT), on_topic(READ, ABSENT))
add("Fetch by id", 16, lambda world: _fetch(topic_id=world.topic_id), on_topic(READ))
add("Fetch by an unknown id", 16, lambda _: _fetch(topic_id=b"x" * 16), on_topic(READ))


def _list_offsets(name: str) -> Any:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name=name, partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


add("ListOffsets", 7, lambda _: _list_offsets(TOPIC), on_topic(DESCRIBE))
add("ListOffsets of what is absent", 7, lambda _: _list_offsets(ABSENT), on_topic(DESCRIBE, ABSENT))


def _epoch(_: World) -> Any:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])


add("OffsetForLeaderEpoch", 4, _epoch, on_topic(DESCRIBE))
add("OffsetForLeaderEpoch by a right on the cluster", 4, _epoch, on_cluster(ACTION))


def _delete_records(name: str) -> Any:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=name, partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


add("DeleteRecords", 2, lambda _: _delete_records(TOPIC), on_topic(DELETE))
add("DeleteRecords of what is absent", 2, lambda _: _delete_records(ABSENT), on_topic(DELETE, ABSENT))


def _producers(name: str) -> Any:
    topic = describe_producers.TopicRequest(name=name, partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[topic])


add("DescribeProducers", 0, lambda _: _producers(TOPIC), on_topic(READ))
add("DescribeProducers of what is absent", 0, lambda _: _producers(ABSENT), on_topic(READ, ABSENT))

# -- metadata ------------------------------------------------------------


def _metadata(*names: str, **fields: Any) -> Any:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(topics=topics, **{"allow_auto_topic_creation": False} | fields)


WITH_OPERATIONS = {"include_topic_authorized_operations": True}

add("Metadata", 12, lambda _: _metadata(TOPIC, ABSENT), on_topic(DESCRIBE), on_topic(DESCRIBE, ABSENT))
add(
    "Metadata of old",
    0,
    lambda _: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]),
    on_topic(DESCRIBE),
)
add("Metadata of everything", 12, lambda _: metadata.MetadataRequest(topics=None), on_topic(DESCRIBE))
add(
    "Metadata by id",
    12,
    lambda world: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic_id=world.topic_id, name=None)]),
    on_topic(DESCRIBE),
)
add(
    "Metadata by an unknown id",
    12,
    lambda _: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic_id=b"x" * 16, name=None)]),
    on_topic(DESCRIBE),
)
add(
    "Metadata with operations",
    10,
    lambda _: _metadata(TOPIC, ABSENT, include_cluster_authorized_operations=True, **WITH_OPERATIONS),
    on_topic(READ),
    on_topic(WRITE),
    on_topic(ALTER_CONFIGS),
    on_topic(READ, ABSENT),
    on_cluster(DESCRIBE),
    on_cluster(ALTER),
)
add(
    "Metadata that creates, without the right to",
    12,
    lambda _: _metadata("not-" + ABSENT, allow_auto_topic_creation=True),
    on_topic(CREATE, "not-" + ABSENT),
    on_topic(DESCRIBE, "not-" + ABSENT),
    only_denied=True,
)
add(
    "DescribeTopicPartitions",
    0,
    lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in (TOPIC, ABSENT)],
        response_partition_limit=100,
    ),
    on_topic(READ),
    on_topic(DESCRIBE, ABSENT),
)
add(
    "DescribeTopicPartitions of everything",
    0,
    lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(response_partition_limit=100),
    on_topic(DESCRIBE),
)
add(
    "DescribeCluster",
    0,
    lambda _: describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    on_cluster(DESCRIBE),
    on_cluster(ALTER),
    on_cluster(CREATE),
)
add(
    "DescribeCluster of controllers",
    1,
    lambda _: describe_cluster.DescribeClusterRequest(endpoint_type=2),
    on_cluster(ALTER),
    on_controller=True,
)

# -- topics --------------------------------------------------------------


def create_topic_request(name: str, **fields: Any) -> Any:
    topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=True, **fields)


add(
    "CreateTopics",
    7,
    lambda _: create_topic_request(ABSENT),
    on_topic(CREATE, ABSENT),
    on_topic(DESCRIBE_CONFIGS, ABSENT),
)
add(
    "CreateTopics by a right on the cluster",
    7,
    lambda _: create_topic_request(ABSENT),
    on_cluster(CREATE),
    on_topic(DESCRIBE_CONFIGS, ABSENT),
)
add("CreateTopics of what is there", 7, lambda _: create_topic_request(TOPIC), on_topic(CREATE))


def _delete(**state: Any) -> Any:
    return delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(**state)], timeout_ms=5000)


add(
    "DeleteTopics",
    5,
    lambda _: delete_topics.DeleteTopicsRequest(topic_names=[ABSENT], timeout_ms=5000),
    on_topic(DELETE, ABSENT),
)
add("DeleteTopics by name", 6, lambda _: _delete(name=ABSENT), on_topic(DELETE, ABSENT))
add("DeleteTopics of what is there", 6, lambda _: _delete(name=TOPIC), on_topic(DELETE), only_denied=True)
add(
    "DeleteTopics by id",
    6,
    lambda world: _delete(topic_id=world.topic_id, name=None),
    on_topic(DELETE),
    only_denied=True,
)
add("DeleteTopics by an unknown id", 6, lambda _: _delete(topic_id=b"x" * 16, name=None), on_topic(DELETE, ABSENT))
add(
    "CreatePartitions",
    3,
    lambda _: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)],
        timeout_ms=5000,
        validate_only=True,
    ),
    on_topic(ALTER),
)
add(
    "CreatePartitions of what is absent",
    3,
    lambda _: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=ABSENT, count=2, assignments=None)],
        timeout_ms=5000,
        validate_only=True,
    ),
    on_topic(ALTER, ABSENT),
)

# -- groups --------------------------------------------------------------

add(
    "FindCoordinator",
    4,
    lambda _: find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP]),
    on_group(DESCRIBE),
)
add("FindCoordinator of old", 3, lambda _: find_coordinator.FindCoordinatorRequest(key=GROUP), on_group(DESCRIBE))
add(
    "FindCoordinator of a transaction",
    4,
    lambda _: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[TXN]),
    on_txn(DESCRIBE),
)


def _join(_: World) -> Any:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id=NEW_GROUP,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[protocol],
    )


add("JoinGroup", 4, _join, on_group(READ, NEW_GROUP))
add(
    "SyncGroup",
    3,
    lambda _: sync_group.SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m"),
    on_group(READ),
)
add(
    "Heartbeat", 4, lambda _: heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), on_group(READ)
)
add(
    "LeaveGroup",
    5,
    lambda _: leave_group.LeaveGroupRequest(group_id=GROUP, members=[leave_group.MemberIdentity(member_id="m")]),
    on_group(READ),
)
add("LeaveGroup of old", 2, lambda _: leave_group.LeaveGroupRequest(group_id=GROUP, member_id="m"), on_group(READ))
add(
    "ConsumerGroupHeartbeat",
    0,
    lambda _: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=NEW_GROUP,
        member_id="m",
        member_epoch=7,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    ),
    on_group(READ, NEW_GROUP),
    on_topic(DESCRIBE),
)


def _commit(version: int, world: World, name: str) -> Any:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=[partition])
    if version >= 10:
        topic.name, topic.topic_id = "", world.topic_id
    return offset_commit.OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])


add("OffsetCommit", 8, lambda world: _commit(8, world, TOPIC), on_group(READ), on_topic(READ))
add("OffsetCommit by id", 10, lambda world: _commit(10, world, TOPIC), on_group(READ), on_topic(READ))
add(
    "OffsetCommit for what is absent",
    8,
    lambda world: _commit(8, world, ABSENT),
    on_group(READ),
    on_topic(READ, ABSENT),
)


def _offset_fetch(name: str) -> Any:
    topic = offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _offset_fetch_by_id(world: World) -> Any:
    request = _offset_fetch("")
    request.groups[0].topics[0].topic_id = world.topic_id
    return request


def _offset_fetch_of_old(_: World) -> Any:
    topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    return offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=[topic])


add("OffsetFetch", 8, lambda _: _offset_fetch(TOPIC), on_group(DESCRIBE), on_topic(DESCRIBE))
add(
    "OffsetFetch for what is absent", 8, lambda _: _offset_fetch(ABSENT), on_group(DESCRIBE), on_topic(DESCRIBE, ABSENT)
)
add("OffsetFetch by id", 10, _offset_fetch_by_id, on_group(DESCRIBE), on_topic(DESCRIBE))
add("OffsetFetch of old", 7, _offset_fetch_of_old, on_group(DESCRIBE), on_topic(DESCRIBE))
add("OffsetFetch of older", 1, _offset_fetch_of_old, on_group(DESCRIBE), on_topic(DESCRIBE))
add(
    "OffsetFetch of everything",
    8,
    lambda _: offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    ),
    on_group(DESCRIBE),
    on_topic(DESCRIBE),
)
add(
    "OffsetFetch of everything of old",
    7,
    lambda _: offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None),
    on_group(DESCRIBE),
    on_topic(DESCRIBE),
)


def _offset_delete(name: str) -> Any:
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=7)
    topic = offset_delete.OffsetDeleteRequestTopic(name=name, partitions=[partition])
    return offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=[topic])


add("OffsetDelete", 0, lambda _: _offset_delete(TOPIC), on_group(DELETE), on_topic(READ))
add("OffsetDelete of what is absent", 0, lambda _: _offset_delete(ABSENT), on_group(DELETE), on_topic(READ, ABSENT))
add("ListGroups", 4, lambda _: list_groups.ListGroupsRequest(), on_group(DESCRIBE))
add("ListGroups by a right on the cluster", 4, lambda _: list_groups.ListGroupsRequest(), on_cluster(DESCRIBE))
add(
    "DescribeGroups",
    5,
    lambda _: describe_groups.DescribeGroupsRequest(groups=[GROUP, NEW_GROUP], include_authorized_operations=True),
    on_group(READ),
    on_group(DELETE),
    on_group(DESCRIBE, NEW_GROUP),
)
add(
    "ConsumerGroupDescribe",
    0,
    lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=[GROUP], include_authorized_operations=True
    ),
    on_group(DESCRIBE),
)
add(
    "DeleteGroups",
    2,
    lambda _: delete_groups.DeleteGroupsRequest(groups_names=[NEW_GROUP]),
    on_group(DELETE, NEW_GROUP),
)
