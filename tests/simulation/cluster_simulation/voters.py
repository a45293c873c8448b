"""A client that takes the vote of one node after the other, and gives it back (KIP-853)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from cluster_simulation.administrator import WORTH_ANOTHER_TRY
from cluster_simulation.history import Anomaly, History
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tidemark.simulation.client import RETRY_SECONDS, KafkaClient

CONTROLLER_PORT: Final = 9093


class VoterChanger:
    def __init__(self, name: str, client: KafkaClient, history: History, random: Random, *, nodes: int) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.nodes = nodes
        self.stopping = False

    async def run(self) -> None:
        """It ends when all of them have their votes."""
        while not self.stopping:
            node = self.random.randint(1, self.nodes)
            await self._until_done(
                RemoveRaftVoterRequest(voter_id=node), RemoveRaftVoterResponse, done=ErrorCode.VOTER_NOT_FOUND
            )
            await asyncio.sleep(self.random.random() * 2)
            listener = Listener(name="CONTROLLER", host=f"node-{node}", port=CONTROLLER_PORT)
            request = AddRaftVoterRequest(voter_id=node, listeners=[listener], timeout_ms=4000)
            await self._until_done(request, AddRaftVoterResponse, done=ErrorCode.DUPLICATE_VOTER)
            await asyncio.sleep(self.random.random() * 2)

    async def _until_done(self, request: object, response: type[Any], *, done: ErrorCode) -> None:
        """`done`: what the answer says when it was done before, and the answer to that was lost."""
        while True:
            self.history.requests += 1
            answer = await self.client.ask_any(request, response, version=0)
            if answer.error_code in (ErrorCode.NONE, done):
                self.history.done[type(request).__name__] += 1
                return
            if answer.error_code not in WORTH_ANOTHER_TRY:
                told = ErrorCode(answer.error_code).name
                raise Anomaly(f"{self.name}: {request} answers {told}: {answer.error_message}")
            await asyncio.sleep(RETRY_SECONDS)
