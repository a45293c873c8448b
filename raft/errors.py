"""What a node may answer instead of doing what it was asked."""

from __future__ import annotations


class RaftError(Exception):
    """The node refuses; nothing has happened."""


class NotLeader(RaftError):
    """Ask `leader` instead, if one is known."""

    def __init__(self, leader: int | None) -> None:
        super().__init__(f"not the leader; the leader is {'unknown' if leader is None else leader}")
        self.leader = leader


class StaleEpoch(RaftError):
    """The caller decided something under a leadership that has ended."""


class Overloaded(RaftError):
    """A limit is reached: too many bytes are not committed yet, too many reads wait, or an entry is too large."""


class ChangePending(RaftError):
    """One change of the quorum at a time, and none before the leader has committed an entry of its own term."""


class NotCaughtUp(RaftError):
    """A learner becomes a voter only when it holds nearly all of the log: a lagging voter could stall every commit."""


class UnknownMember(RaftError):
    """The node named is not a member, or is not one of the kind asked for."""


class DirectoryChanged(RaftError):
    """A voter speaks from another directory than the one that has its vote."""


class TransferPending(RaftError):
    """Leadership is being handed over: no new proposals until that is over."""


class LeadershipLost(Exception):
    """The node lost the lead, or stopped, while a caller waited: what was proposed may be committed or not."""


class MessageCorrupt(ValueError):
    """Bytes that are no message, no configuration and no hard state of ours. Decoding raises nothing else."""


class UnknownVersion(MessageCorrupt):
    """Bytes in a format that a newer Tidemark writes: they are not damaged, but this one cannot read them."""

    def __init__(self, what: str, *, version: int, newest: int) -> None:
        super().__init__(
            f"{what} has format version {version}, but this Tidemark reads versions up to {newest}: use a newer one"
        )
