"""Range: every topic is cut into runs of partitions, one per subscriber, in a fixed order of members.

Topics with the same subscribers and as many partitions are cut alike, so equal partition numbers meet at one member.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.broker.groups.consumer.assignors.spec import Assignment, MemberSpec


def assign_range(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Assignment]:
    shares: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in members}
    ordered = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    for topic_id in sorted(topics):
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        each, extra = divmod(topics[topic_id], len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + each + (position < extra)
            if end > start:
                shares[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(shares)


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    """Static members come first, by instance id: their instance id survives a restart, a member id does not."""
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id
