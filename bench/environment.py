"""What the figures were measured on: without it they say nothing."""

import datetime
import os
import platform
import subprocess
from pathlib import Path

import confluent_kafka
import psutil

from bench.brokers import ROOT


def describe(*, directory: Path, jars: Path) -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _output("git", "rev-parse", "--short", "HEAD") + _dirty(),
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "file system": _file_system(directory),
        "system": f"{platform.system()} {platform.release()}",
        "tcp": _congestion_control(),
        "python": platform.python_version(),
        "java": _output("java", "-version").splitlines()[0] if _has_kafka(jars) else "none",
        "kafka": _kafka_version(jars),
        "librdkafka": confluent_kafka.libversion()[0],
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "unknown"
    return (done.stdout or done.stderr).strip() or "unknown"


def _dirty() -> str:
    changed = _output("git", "status", "--porcelain", "--untracked-files=no")
    return "" if changed == "unknown" else " with changes"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    mounts = [part for part in psutil.disk_partitions(all=True) if directory.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def _congestion_control() -> str:
    """It paces loopback traffic too: under bbr, bulk fetches behave quite unlike those under cubic."""
    path = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return path.read_text().strip() if path.exists() else "unknown"


def _has_kafka(jars: Path) -> bool:
    return any(jars.glob("kafka_2.13-*.jar"))


def _kafka_version(jars: Path) -> str:
    found = sorted(jars.glob("kafka_2.13-*.jar"))
    return found[-1].stem.rpartition("-")[2] if found else "none"
