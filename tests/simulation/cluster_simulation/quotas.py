"""An administrator of quotas: clients are slowed down, and let go again. Nothing but time may come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from cluster_simulation.administrator import WORTH_ANOTHER_TRY
from cluster_simulation.history import Anomaly, History
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidemark.simulation.client import RETRY_SECONDS, KafkaClient

RATES: Final = {
    "producer_byte_rate": (500.0, 5000.0),
    "consumer_byte_rate": (2000.0, 20_000.0),
    "request_percentage": (0.5, 5.0),
    "controller_mutation_rate": (0.5, 5.0),
}


class QuotaChanger:
    def __init__(
        self, name: str, client: KafkaClient, history: History, random: Random, client_ids: Sequence[str]
    ) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.random = random
        self.client_ids = [*client_ids]
        self.stopping = False

    async def run(self) -> None:
        """It ends when there are no quotas."""
        while not self.stopping:
            key = self.random.choice(sorted(RATES))
            client_id = self.random.choice([*self.client_ids, None])  # None: of all that have none of their own
            await self._set(client_id, key, self.random.choice(RATES[key]))
            await asyncio.sleep(1 + self.random.random() * 3)
            await self._set(client_id, key, None)
            await asyncio.sleep(self.random.random())

    async def _set(self, client_id: str | None, key: str, value: float | None) -> None:
        change = AlterationData(
            entity=[EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
        )
        while True:
            self.history.requests += 1
            request = AlterClientQuotasRequest(entries=[change])
            answer = (await self.client.ask_any(request, AlterClientQuotasResponse, version=1)).entries[0]
            if answer.error_code == ErrorCode.NONE:
                self.history.done["AlterClientQuotas"] += 1
                return
            if answer.error_code not in WORTH_ANOTHER_TRY:
                told = ErrorCode(answer.error_code).name
                raise Anomaly(f"{self.name}: AlterClientQuotas answers {told}: {answer.error_message}")
            await asyncio.sleep(RETRY_SECONDS)
