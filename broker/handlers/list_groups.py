"""ListGroups: the groups that this broker coordinates, of all kinds.

A tool asks every broker and adds up. While one of our shards is still loading, the answer would be incomplete: then
it is COORDINATOR_LOAD_IN_PROGRESS.

v3: flexible (KIP-482)
v4: filter by state, and the state in the answer (KIP-518)
v5: filter by type, and the type in the answer (KIP-848)
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, ListGroupsResponse)
def list_groups(request: ListGroupsRequest, _call: Call, *, groups: GroupCoordinator) -> Job[ListGroupsResponse]:
    states = set((yield from in_slices(str.lower, request.states_filter)))
    kinds = set((yield from in_slices(str.lower, request.types_filter)))
    response = ListGroupsResponse()
    for hosted in groups:
        if hosted.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for group in list(hosted.shard.groups.values()):
            yield
            if (states and group.state_name.lower() not in states) or (kinds and group.kind not in kinds):
                continue
            listed = ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.kind,
            )
            response.groups.append(listed)
    return response
