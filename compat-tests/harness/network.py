"""A network for a cluster on one machine: a namespace per node, all on one bridge; links can be cut, one way or both.

A cut is silent, as a broken switch is: the sender is given a hardware address that nobody has, so that what it sends
goes nowhere and it hears of nothing. This needs Linux, root, and `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from random import Random
from types import TracebackType

NOWHERE = "02:00:00:00:ff:ff"


def available() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"tm-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made


class Network:
    def __init__(self, nodes: int) -> None:
        random = Random()
        self._tag = f"tm{random.randrange(16**4):04x}"
        self._subnet = f"10.{random.randrange(100, 200)}.{random.randrange(256)}"
        self._nodes = range(1, nodes + 1)

    def __enter__(self) -> Network:
        bridge = f"{self._tag}br"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in self._nodes:
            space, outer = self._space(node), f"{self._tag}v{node}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", space, "link", "set", "eth0", "address", _hardware(node))
            _ip("-n", space, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", space, "link", "set", device, "up")
            _ip("link", "set", outer, "master", bridge, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes:
            _ip("netns", "del", self._space(node))
        _ip("link", "del", f"{self._tag}br")

    def host(self, node: int) -> str:
        return f"{self._subnet}.{node}"

    def inside(self, node: int) -> list[str]:
        """What to put before a command so that it runs in a node's network."""
        return ["ip", "netns", "exec", self._space(node)]

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target` any more."""
        self._point(source, target, NOWHERE)

    def mend(self, source: int, target: int) -> None:
        self._point(source, target, _hardware(target))

    def mend_all(self) -> None:
        for source in self._nodes:
            for target in self._nodes:
                if source != target:
                    self.mend(source, target)

    def _point(self, source: int, target: int, address: str) -> None:
        _ip(
            "-n", self._space(source), "neigh", "replace", self.host(target),
            "lladdr", address, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def _space(self, node: int) -> str:
        return f"{self._tag}n{node}"


def _hardware(node: int) -> str:
    return f"02:00:00:00:00:{node:02x}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
