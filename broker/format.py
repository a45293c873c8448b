"""Let a node whose metadata is lost for good join its cluster again, without a vote.

`python -m tidemark.broker.format`, which `tidemark format` becomes. A node's first start needs no formatting; this is
for a node that refuses to start because its metadata directory is empty although its log directories belong to a
cluster. A directory that holds metadata is not touched, and one that is formatted already is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tidemark.broker.cluster.identity import CLUSTER_ID, NODE_ID
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.config import BrokerConfig, ConfigError, load_config
from tidemark.broker.node import METADATA_DIRECTORY
from tidemark.storage import StorageError, locked, read_meta_properties

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse_arguments(argv)
    try:
        config = load_config(arguments.config, arguments.set)
        with ExitStack() as held:
            for each in config.log_dirs:
                if not Path(each).is_dir():
                    print(f"tidemark: there is no data directory {each}", file=sys.stderr)
                    return EXIT_FAILED
                held.enter_context(locked(each))
            return _format(config, for_real=arguments.yes)
    except ConfigError as error:
        print(f"tidemark: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"tidemark: {error.filename or 'the data'}: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED
    except StorageError as error:
        print(f"tidemark: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tidemark format", description=__doc__)
    parser.add_argument("--config", type=Path, help="the file that the node is started with")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    parser.add_argument("--yes", action="store_true", help="do it; without this only what would be done is said")
    return parser.parse_args(argv)


def _format(config: BrokerConfig, *, for_real: bool) -> int:
    directory = MetadataDirectory(Path(config.metadata_log_dir or config.log_dirs[0]) / METADATA_DIRECTORY)
    properties = [read_meta_properties(each) for each in config.log_dirs]
    cluster_id = next((each[CLUSTER_ID] for each in properties if CLUSTER_ID in each), "")
    owner = next((each[NODE_ID] for each in properties if NODE_ID in each), str(config.node_id))
    node = f"node {config.node_id}"
    if owner != str(config.node_id):
        print(f"tidemark: the log directories belong to node {owner}, and this is {node} (node.id)", file=sys.stderr)
        return EXIT_FAILED
    if directory.holds_metadata:
        print(f"tidemark: {directory.path} holds the metadata of {node}: it is not formatted", file=sys.stderr)
        return EXIT_FAILED
    if not cluster_id:
        print(f"tidemark: the directories of {node} are new: it can be started as it is", file=sys.stderr)
        return EXIT_FAILED
    if directory.is_rejoining:
        print(f"tidemark: {directory.path} is formatted already: start {node}", file=sys.stderr)
        return EXIT_FAILED
    if not for_real:
        print(f"{directory.path} is empty. With --yes, {node} joins cluster {cluster_id} again, without a vote.")
        return 0
    directory.allow_rejoining()
    print(f"At its next start {node} joins cluster {cluster_id} again, without a vote.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
