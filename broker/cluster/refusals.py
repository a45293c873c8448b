"""A whole request refused: the same error in every place that its answer has for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from tidemark.broker.core.errors import Refused
from tidemark.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    write_txn_markers,
)


class _Error(TypedDict):
    error_code: int
    error_message: str | None


def refusal_of(request: object, response: type[Any], refusal: Refused) -> object:
    make = _IN_EVERY_PLACE.get(type(request))
    if make is not None:
        return make(request, _Error(error_code=refusal.code, error_message=refusal.message))
    answer = response(error_code=refusal.code)
    if hasattr(answer, "error_message"):
        answer.error_message = refusal.message
    return answer


def _create_topics(request: create_topics.CreateTopicsRequest, error: _Error) -> create_topics.CreateTopicsResponse:
    results = [create_topics.CreatableTopicResult(name=topic.name, **error) for topic in request.topics]
    return create_topics.CreateTopicsResponse(topics=results)


def _delete_topics(request: delete_topics.DeleteTopicsRequest, error: _Error) -> delete_topics.DeleteTopicsResponse:
    wanted = request.topics or [delete_topics.DeleteTopicState(name=name) for name in request.topic_names]
    results = [delete_topics.DeletableTopicResult(name=each.name, topic_id=each.topic_id, **error) for each in wanted]
    return delete_topics.DeleteTopicsResponse(responses=results)


def _create_acls(request: create_acls.CreateAclsRequest, error: _Error) -> create_acls.CreateAclsResponse:
    return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult(**error) for _ in request.creations])


def _delete_acls(request: delete_acls.DeleteAclsRequest, error: _Error) -> delete_acls.DeleteAclsResponse:
    results = [delete_acls.DeleteAclsFilterResult(**error) for _ in request.filters]
    return delete_acls.DeleteAclsResponse(filter_results=results)


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, error: _Error
) -> create_partitions.CreatePartitionsResponse:
    results = [create_partitions.CreatePartitionsTopicResult(name=topic.name, **error) for topic in request.topics]
    return create_partitions.CreatePartitionsResponse(results=results)


def _alter_client_quotas(
    request: alter_client_quotas.AlterClientQuotasRequest, error: _Error
) -> alter_client_quotas.AlterClientQuotasResponse:
    entries = [alter_client_quotas.AlteredEntityData(entity=each.entity, **error) for each in request.entries]
    return alter_client_quotas.AlterClientQuotasResponse(entries=entries)


def _alter_configs(request: alter_configs.AlterConfigsRequest, error: _Error) -> alter_configs.AlterConfigsResponse:
    results = [
        alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        )
        for each in request.resources
    ]
    return alter_configs.AlterConfigsResponse(responses=results)


def _incremental(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, error: _Error
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    results = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        )
        for each in request.resources
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=results)


def _alter_user_scram_credentials(
    request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, error: _Error
) -> alter_user_scram_credentials.AlterUserScramCredentialsResponse:
    names = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    results = [alter_user_scram_credentials.AlterUserScramCredentialsResult(user=name, **error) for name in names]
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(results=results)


def _describe_user_scram_credentials(
    request: describe_user_scram_credentials.DescribeUserScramCredentialsRequest, error: _Error
) -> describe_user_scram_credentials.DescribeUserScramCredentialsResponse:
    results = [
        describe_user_scram_credentials.DescribeUserScramCredentialsResult(**error)  # as Kafka, without a name
        for _ in request.users or ()
    ]
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(results=results, **error)


def _alter_partition_reassignments(
    request: alter_partition_reassignments.AlterPartitionReassignmentsRequest, error: _Error
) -> alter_partition_reassignments.AlterPartitionReassignmentsResponse:
    responses = [
        alter_partition_reassignments.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                alter_partition_reassignments.ReassignablePartitionResponse(
                    partition_index=each.partition_index, **error
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(responses=responses, **error)


def _elect_leaders(request: elect_leaders.ElectLeadersRequest, error: _Error) -> elect_leaders.ElectLeadersResponse:
    results = [
        elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[elect_leaders.PartitionResult(partition_id=index, **error) for index in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    return elect_leaders.ElectLeadersResponse(error_code=error["error_code"], replica_election_results=results)


def _write_txn_markers(
    request: write_txn_markers.WriteTxnMarkersRequest, error: _Error
) -> write_txn_markers.WriteTxnMarkersResponse:
    markers = [
        write_txn_markers.WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[_unmarked(topic, error["error_code"]) for topic in marker.topics],
        )
        for marker in request.markers
    ]
    return write_txn_markers.WriteTxnMarkersResponse(markers=markers)


def _unmarked(
    topic: write_txn_markers.WritableTxnMarkerTopic, code: int
) -> write_txn_markers.WritableTxnMarkerTopicResult:
    partitions = [
        write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        for index in topic.partition_indexes
    ]
    return write_txn_markers.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)


_IN_EVERY_PLACE: Final[Mapping[type[Any], Callable[[Any, _Error], object]]] = {
    alter_client_quotas.AlterClientQuotasRequest: _alter_client_quotas,
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: _alter_partition_reassignments,
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: _alter_user_scram_credentials,
    create_acls.CreateAclsRequest: _create_acls,
    create_topics.CreateTopicsRequest: _create_topics,
    delete_acls.DeleteAclsRequest: _delete_acls,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    alter_configs.AlterConfigsRequest: _alter_configs,
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest: _describe_user_scram_credentials,
    elect_leaders.ElectLeadersRequest: _elect_leaders,
    incremental_alter_configs.IncrementalAlterConfigsRequest: _incremental,
    write_txn_markers.WriteTxnMarkersRequest: _write_txn_markers,
}
