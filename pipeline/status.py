"""How far a pipeline is: from its checkpoint and the cluster, without Spark, whether it runs or not."""

from __future__ import annotations

import json
import os
from typing import Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.graph import all_sinks
from tidemark.pipeline.runner import STATUS_NOTE
from tidemark.pipeline.spec import Pipeline


def show(pipeline: Pipeline, *, as_json: bool) -> None:
    found = status(pipeline)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{pipeline.name}: {'runs, process ' + str(found['pid']) if found['pid'] else 'does not run'}")
    for name, sink in found["sinks"].items():
        batch = "no batch finished yet" if sink["batch"] is None else f"batch {sink['batch']}"
        behind = "" if sink["lag"] is None else f", {sink['lag']:,} records behind"
        rate = "" if sink["rows_per_second"] is None else f", {sink['rows_per_second']:,.0f} rows/s"
        print(f"  {name}: {batch}{behind}{rate}")


def status(pipeline: Pipeline) -> dict[str, Any]:
    checkpoint = Checkpoint(pipeline.checkpoint)
    if not checkpoint.is_local:
        raise CommandFailed(f"The checkpoint {checkpoint.location} is not a directory of this machine.")
    cluster = ClusterAdmin(pipeline.bootstrap, pipeline.kafka)
    noted = checkpoint.read_note(STATUS_NOTE)
    return {
        "pipeline": pipeline.name,
        "pid": running_pid(pipeline),
        "group": pipeline.group,
        "sinks": {
            sink.name: _of_sink(sink.name, checkpoint, cluster, noted.get("sinks", {}).get(sink.name, {}))
            for sink in all_sinks(pipeline)
        },
    }


def running_pid(pipeline: Pipeline) -> int | None:
    """The process that runs the pipeline on this machine, as far as its checkpoint tells."""
    pid = Checkpoint(pipeline.checkpoint).read_note(STATUS_NOTE).get("pid")
    return int(pid) if pid is not None and _is_alive(int(pid)) else None


def _of_sink(name: str, checkpoint: Checkpoint, cluster: ClusterAdmin, noted: dict[str, Any]) -> dict[str, Any]:
    positions = checkpoint.positions(name)
    ranges = cluster.ranges(positions) if positions else {}
    return {
        "batch": checkpoint.last_batch(name),
        "lag": sum(max(0, ranges[each][1] - at) for each, at in positions.items()) if positions else None,
        "rows_per_second": noted.get("rows_per_second"),
        "batch_seconds": noted.get("batch_seconds"),
        "positions": {f"{topic}-{partition}": at for (topic, partition), at in sorted(positions.items())},
    }


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
