"""Leader epochs as clients quote them (KIP-320): older than ours is fenced, newer we have not heard of."""

from __future__ import annotations

from broker.errors import Refused
from protocol.errors import ErrorCode


def check_leader_epoch(quoted: int, current: int) -> None:
    if quoted < 0 or quoted == current:
        return
    if quoted < current:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {quoted} is over; the current one is {current}")
    raise Refused(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {quoted} is unknown here; the current one is {current}"
    )
