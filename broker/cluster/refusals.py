"""A whole request refused: the same error in every place that its answer has for one, made in slices: a client may name
hundreds of thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, in_slices
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


def refusal_of(request: object, response: type[Any], refusal: Refused) -> Job[object]:
    make = _IN_EVERY_PLACE.get(type(request))
    if make is not None:
        return (yield from make(request, _Error(error_code=refusal.code, error_message=refusal.message)))
    answer = response(error_code=refusal.code)
    if hasattr(answer, "error_message"):
        answer.error_message = refusal.message
    return answer


def _create_topics(
    request: create_topics.CreateTopicsRequest, error: _Error
) -> Job[create_topics.CreateTopicsResponse]:
    results = in_slices(
        lambda topic: create_topics.CreatableTopicResult(name=topic.name, **error),
        request.topics,
    )
    return create_topics.CreateTopicsResponse(topics=(yield from results))


def _delete_topics(
    request: delete_topics.DeleteTopicsRequest, error: _Error
) -> Job[delete_topics.DeleteTopicsResponse]:
    by_state = yield from in_slices(
        lambda each: delete_topics.DeletableTopicResult(name=each.name, topic_id=each.topic_id, **error),
        request.topics,
    )
    by_name = yield from in_slices(
        lambda name: delete_topics.DeletableTopicResult(name=name, **error),
        request.topic_names,
    )
    return delete_topics.DeleteTopicsResponse(responses=by_state + by_name)


def _create_acls(request: create_acls.CreateAclsRequest, error: _Error) -> Job[create_acls.CreateAclsResponse]:
    results = in_slices(lambda _: create_acls.AclCreationResult(**error), request.creations)
    return create_acls.CreateAclsResponse(results=(yield from results))


def _delete_acls(request: delete_acls.DeleteAclsRequest, error: _Error) -> Job[delete_acls.DeleteAclsResponse]:
    results = in_slices(lambda _: delete_acls.DeleteAclsFilterResult(**error), request.filters)
    return delete_acls.DeleteAclsResponse(filter_results=(yield from results))


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, error: _Error
) -> Job[create_partitions.CreatePartitionsResponse]:
    results = in_slices(
        lambda topic: create_partitions.CreatePartitionsTopicResult(name=topic.name, **error),
        request.topics,
    )
    return create_partitions.CreatePartitionsResponse(results=(yield from results))


def _alter_client_quotas(
    request: alter_client_quotas.AlterClientQuotasRequest, error: _Error
) -> Job[alter_client_quotas.AlterClientQuotasResponse]:
    entries = in_slices(
        lambda each: alter_client_quotas.AlteredEntityData(entity=each.entity, **error),
        request.entries,
    )
    return alter_client_quotas.AlterClientQuotasResponse(entries=(yield from entries))


def _alter_configs(
    request: alter_configs.AlterConfigsRequest, error: _Error
) -> Job[alter_configs.AlterConfigsResponse]:
    results = in_slices(
        lambda each: alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        ),
        request.resources,
    )
    return alter_configs.AlterConfigsResponse(responses=(yield from results))


def _incremental(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, error: _Error
) -> Job[incremental_alter_configs.IncrementalAlterConfigsResponse]:
    results = in_slices(
        lambda each: incremental_alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        ),
        request.resources,
    )
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=(yield from results))


def _alter_user_scram_credentials(
    request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, error: _Error
) -> Job[alter_user_scram_credentials.AlterUserScramCredentialsResponse]:
    names = yield from in_slices(lambda each: each.name, request.deletions)
    names += yield from in_slices(lambda each: each.name, request.upsertions)
    results = in_slices(
        lambda name: alter_user_scram_credentials.AlterUserScramCredentialsResult(user=name, **error),
        dict.fromkeys(names),
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(results=(yield from results))


def _describe_user_scram_credentials(
    request: describe_user_scram_credentials.DescribeUserScramCredentialsRequest, error: _Error
) -> Job[describe_user_scram_credentials.DescribeUserScramCredentialsResponse]:
    results = in_slices(
        # As Kafka, without a name.
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsResult(**error),
        request.users or (),
    )
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(results=(yield from results), **error)


def _alter_partition_reassignments(
    request: alter_partition_reassignments.AlterPartitionReassignmentsRequest, error: _Error
) -> Job[alter_partition_reassignments.AlterPartitionReassignmentsResponse]:
    responses = []
    for topic in request.topics:
        partitions = yield from in_slices(
            lambda each: alter_partition_reassignments.ReassignablePartitionResponse(
                partition_index=each.partition_index, **error
            ),
            topic.partitions,
        )
        responses.append(
            alter_partition_reassignments.ReassignableTopicResponse(name=topic.name, partitions=partitions)
        )
        yield
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(responses=responses, **error)


def _elect_leaders(
    request: elect_leaders.ElectLeadersRequest, error: _Error
) -> Job[elect_leaders.ElectLeadersResponse]:
    results = []
    for topic in request.topic_partitions or ():
        partitions = yield from in_slices(
            lambda index: elect_leaders.PartitionResult(partition_id=index, **error), topic.partitions
        )
        results.append(elect_leaders.ReplicaElectionResult(topic=topic.topic, partition_result=partitions))
        yield
    return elect_leaders.ElectLeadersResponse(error_code=error["error_code"], replica_election_results=results)


def _write_txn_markers(
    request: write_txn_markers.WriteTxnMarkersRequest, error: _Error
) -> Job[write_txn_markers.WriteTxnMarkersResponse]:
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = yield from in_slices(
                lambda index: write_txn_markers.WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=error["error_code"]
                ),
                topic.partition_indexes,
            )
            topics.append(write_txn_markers.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            yield
        markers.append(write_txn_markers.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        yield
    return write_txn_markers.WriteTxnMarkersResponse(markers=markers)


_IN_EVERY_PLACE: Final[Mapping[type[Any], Callable[[Any, _Error], Job[object]]]] = {
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
