"""How long a producer goes without acknowledgements when it loses a leader: `python compat-tests/cluster/gaps.py`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from cluster.history import History, longest_gap
from cluster.workload import Writer
from harness.cluster import Cluster, ClusterNode

TOPIC = "gaps"
PARTITIONS = 6
STANDS_STILL_SECONDS = 14.0  # longer than a session

Fault = Callable[[ClusterNode], None]


def die(node: ClusterNode) -> None:
    node.kill()
    time.sleep(5.0)
    node.start()


def stand_still(node: ClusterNode) -> None:
    node.pause()
    try:
        time.sleep(STANDS_STILL_SECONDS)
    finally:
        node.resume()


FAULTS: dict[str, tuple[Fault, bool]] = {
    "kill -9 of a leader": (die, False),
    "kill -9 of a leader that is the controller": (die, True),
    "SIGSTOP of a leader": (stand_still, False),
    "SIGSTOP of a leader that is the controller": (stand_still, True),
}


def gap(cluster: Cluster, fault: Fault, *, of_controller: bool) -> float:
    """The longest of any partition that the node led."""
    cluster.await_in_sync(TOPIC)
    cluster.elect_preferred()
    controller = cluster.await_controller()
    victim = controller if of_controller else next(each for each in cluster.nodes if each != controller)
    led = [index for index, leader in cluster.leaders(TOPIC).items() if leader == victim]
    assert led, "it leads nothing"
    history = History()
    writer = Writer(0, cluster.bootstrap, TOPIC, partitions=PARTITIONS, history=history)
    time.sleep(2.0)
    fault(cluster.nodes[victim])
    time.sleep(2.0)
    writer.stop.set()
    writer.thread.join(60)
    times: dict[int, list[float]] = defaultdict(list)
    for _, place, when in history.acknowledged:
        times[place.partition].append(when)
    return max(longest_gap(times[index]) for index in led)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    with ExitStack() as opened:
        cluster = Cluster(Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-gaps-"))))
        cluster.start()
        opened.callback(cluster.close)
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        for name, (fault, of_controller) in FAULTS.items():
            if arguments.only in name:
                found = [gap(cluster, fault, of_controller=of_controller) for _ in range(arguments.times)]
                print(f"{name}: {', '.join(f'{each:.2f}' for each in found)} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
