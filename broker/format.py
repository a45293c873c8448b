"""Let a node whose metadata is lost for good join its cluster again, without a vote.

`python -m tidemark.broker.format --config FILE --yes`. A node's first start needs no formatting; this is for a node
that refuses to start because its metadata directory is empty although its log directories belong to a cluster.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.config import ConfigError, load_config
from tidemark.broker.node import METADATA_DIRECTORY
from tidemark.storage import StorageError, locked

EXIT_FAILED = 1
EXIT_USAGE = 2


def main() -> int:
    arguments = _parse_arguments()
    try:
        config = load_config(arguments.config, arguments.set)
        path = Path(config.metadata_log_dir or config.log_dirs[0]) / METADATA_DIRECTORY
        with ExitStack() as held:
            for each in config.log_dirs:
                held.enter_context(locked(each))
            return _format(MetadataDirectory(path), node_id=config.node_id, for_real=arguments.yes)
    except ConfigError as error:
        print(f"tidemark: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (OSError, StorageError) as error:
        print(f"tidemark: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidemark.broker.format", description=__doc__)
    parser.add_argument("--config", type=Path, help="the file that the node is started with")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    parser.add_argument("--yes", action="store_true", help="do it; without this only what would be done is said")
    return parser.parse_args()


def _format(directory: MetadataDirectory, *, node_id: int, for_real: bool) -> int:
    if directory.holds_metadata:
        print(f"tidemark: {directory.path} holds metadata: there is nothing to format", file=sys.stderr)
        return EXIT_FAILED
    if not for_real:
        print(f"{directory.path} is empty. With --yes, node {node_id} joins its cluster again, without a vote.")
        return 0
    directory.allow_rejoining()
    print(f"Node {node_id} joins its cluster again when it is started next, without a vote.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
