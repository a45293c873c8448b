"""`python -m tidemark.broker`: run one node in this process until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark import portable
from tidemark.broker.config import BrokerConfig, ConfigError, load_config
from tidemark.broker.core.garbage import collect_rarely
from tidemark.broker.core.loop_delay import Alarm
from tidemark.broker.logs.background import BackgroundLines
from tidemark.broker.logs.setup import set_up_audit_log, set_up_logs, tell
from tidemark.broker.node import Node
from tidemark.broker.server.crowd import BrokerLoop
from tidemark.storage import StorageError

log = logging.getLogger("tidemark.broker")

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse_arguments(argv)
    try:
        config = load_config(arguments.config, arguments.set)
    except (ConfigError, OSError) as error:
        print(f"tidemark: {error}", file=sys.stderr)
        return EXIT_USAGE
    form, node_id = config.tidemark_log_format, config.node_id
    lines = set_up_logs(sys.stderr, level=arguments.log_level, form=form, node_id=node_id)
    if config.tidemark_audit_file:
        set_up_audit_log(Path(config.tidemark_audit_file))
    before, open_files_max = portable.raise_descriptor_limit()
    if open_files_max != before:
        log.info("the limit of open files was %d and is %d now", before, open_files_max)
    for warning in config.warnings:
        log.warning("%s", warning)
    try:
        with asyncio.Runner(loop_factory=BrokerLoop) as runner:
            return 0 if runner.run(_serve(config)) else EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(lines, f"{where}{error.strerror or error}", EXIT_FAILED)
    except ConfigError as error:  # found out by whoever uses the setting: a key store that cannot be read, say
        return _fail(lines, error, EXIT_USAGE)
    except (StorageError, RuntimeError) as error:
        return _fail(lines, error, EXIT_FAILED)


def _fail(lines: BackgroundLines, why: object, code: int) -> int:
    lines.write(f"tidemark: {why}\n")
    lines.drain()
    return code


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidemark.broker", description="Run one Tidemark broker.")
    parser.add_argument("--config", type=Path, help="a YAML or server.properties file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    parser.add_argument("--log-level", default="INFO", choices=levels, help="what is logged to stderr")
    return parser.parse_args(argv)


async def _serve(config: BrokerConfig) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        stop.set()

    node = Node(config, failed=fail, alarm=Alarm.of_this_process())
    starting = asyncio.create_task(node.start())
    stopping = asyncio.create_task(stop.wait())  # a node of a cluster may wait long for the others
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        return not failures
    await starting
    host, port = node.address
    where = _absolute(config.log_dirs)
    told = f"node {config.node_id}, data in {where}"
    for listener, (http_host, http_port) in node.http_endpoints.items():
        told += f", {listener.lower()}://{_shown(http_host)}:{http_port}"
    tell(sys.stdout, f"Tidemark is ready: {_shown(host)}:{port} ({told}). Stop with Ctrl-C.")
    warming = asyncio.create_task(_warm_up(node))
    await stop.wait()
    warming.cancel()
    log.info("stopping")
    await node.stop()
    log.info("stopped")
    return not failures


async def _warm_up(node: Node) -> None:
    await node.warm_up()
    collect_rarely()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host or "0.0.0.0"


def _absolute(paths: Sequence[str]) -> str:
    return ", ".join(os.path.abspath(path) for path in paths)


if __name__ == "__main__":
    sys.exit(main())
