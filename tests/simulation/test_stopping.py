"""A node that is told to stop does so, whatever its clients wait for."""

from __future__ import annotations

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.simulation import Cluster
from tidemark.simulation.client import KafkaClient

LONG_SECONDS = 600


def test_a_node_stops_though_no_controller_takes_what_clients_have_asked_it_to_pass_on() -> None:
    """Seed 200095 of what `make simulate` ran: it waited for as long as a client was ready to wait."""
    answers: list[int] = []

    async def ask_again_and_again(client: KafkaClient, address: tuple[str, int]) -> None:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=LONG_SECONDS * 1000)
        while True:
            answer = await client.ask(address, request, CreateTopicsResponse, version=5, seconds=LONG_SECONDS)
            answers.append(answer.topics[0].error_code)

    with Cluster(seed=4) as cluster:
        cluster.start()
        client = KafkaClient([cluster.bootstrap[0]], client_id="test")
        for node_id in (2, 3):
            cluster.brokers[node_id].kill()
        cluster.run(5)
        cluster.new_client().spawn(ask_again_and_again(client, cluster.bootstrap[0]))
        cluster.run(5)
        assert answers == []
        cluster.brokers[1].stop()
        cluster.run_until(lambda: not cluster.brokers[1].is_running, seconds_max=30)
        assert answers
        assert {*answers} == {ErrorCode.NOT_CONTROLLER}
