"""Before a node starts: make the first users of a new cluster, or let a node whose metadata is lost join again.

`python -m tidemark.broker.format`, which `tidemark format` becomes. A node's first start needs no formatting. With
--add-scram the users are kept for the first record of the cluster: of all its controllers, the first one to lead writes
its own. Otherwise this is for a node that refuses to start because its metadata directory is empty although its log
directories belong to a cluster: it joins that again, without a vote. A directory that holds metadata is not touched,
and one that is formatted already is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark.broker.cluster.identity import CLUSTER_ID, NODE_ID
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.config import BrokerConfig
from tidemark.broker.first_users import add_first_users
from tidemark.broker.node import METADATA_DIRECTORY
from tidemark.broker.offline_command import Failed, locked_directories, offline_parser, run_offline
from tidemark.storage import read_meta_properties


def main(argv: Sequence[str] | None = None) -> int:
    parser = offline_parser("format", __doc__)
    parser.add_argument("--add-scram", action="append", default=[], metavar="MECHANISM=[name=…,password=…]")
    arguments = parser.parse_args(argv)
    if arguments.add_scram:
        return run_offline(arguments, lambda config: add_first_users(_metadata_directory(config), arguments.add_scram))
    return run_offline(arguments, lambda config: _format(config, for_real=arguments.yes))


def _metadata_directory(config: BrokerConfig) -> MetadataDirectory:
    return MetadataDirectory(Path(config.metadata_log_dir or config.log_dirs[0]) / METADATA_DIRECTORY)


def _format(config: BrokerConfig, *, for_real: bool) -> int:
    with locked_directories(config.log_dirs):
        return _rejoin(config, for_real=for_real)


def _rejoin(config: BrokerConfig, *, for_real: bool) -> int:
    directory = _metadata_directory(config)
    properties = [read_meta_properties(each) for each in config.log_dirs]
    cluster_id = next((each[CLUSTER_ID] for each in properties if CLUSTER_ID in each), "")
    owner = next((each[NODE_ID] for each in properties if NODE_ID in each), str(config.node_id))
    node = f"node {config.node_id}"
    if owner != str(config.node_id):
        raise Failed(f"the log directories belong to node {owner}, and this is {node} (node.id)")
    if directory.holds_metadata:
        raise Failed(f"{directory.path} holds the metadata of {node}: it is not formatted")
    if not cluster_id:
        raise Failed(f"the directories of {node} are new: it can be started as it is")
    if directory.is_rejoining:
        raise Failed(f"{directory.path} is formatted already: start {node}")
    if not for_real:
        print(f"{directory.path} is empty. With --yes, {node} joins cluster {cluster_id} again, without a vote.")
        return 0
    directory.allow_rejoining()
    print(f"At its next start {node} joins cluster {cluster_id} again, without a vote.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
