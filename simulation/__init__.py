"""A cluster in a bottle: real brokers on a simulated clock, network and disk, from one seed. Experimental.

docs/simulation.md shows how to run one's own asyncio code against it.
"""

from tidemark.simulation.cluster import Broker, Cluster, OutOfTime
from tidemark.simulation.process import Machine, Process
from tidemark.simulation.world import World, WorldStuck

__all__ = ["Broker", "Cluster", "Machine", "OutOfTime", "Process", "World", "WorldStuck"]
