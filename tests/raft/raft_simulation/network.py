"""The network between the nodes: it loses, delays, reorders and doubles messages, and it can be cut, also one way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True)
class Network:
    random: Random
    loss: float = 0.0
    duplication: float = 0.0
    delay_min: float = 0.001
    delay_spread: float = 0.005
    stragglers: float = 0.0  # the share of messages that come seconds late
    cuts: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def of_chance(cls, random: Random) -> Network:
        return cls(
            random=random,
            loss=random.choice((0.0, 0.0, 0.02, 0.1, 0.25)),
            duplication=random.choice((0.0, 0.02, 0.1)),
            delay_min=random.choice((0.0005, 0.002, 0.01)),
            delay_spread=random.choice((0.001, 0.02, 0.1, 0.3)),
            stragglers=random.choice((0.0, 0.0, 0.01)),
        )

    def delays(self, source: int, target: int) -> list[float]:
        """When the copies of a message arrive: none if it is lost."""
        if (source, target) in self.cuts:
            return []
        chance = self.random.random
        if self.loss and chance() < self.loss:
            return []
        delays = [self.delay_min + self.delay_spread * chance()]
        if self.stragglers and chance() < self.stragglers:
            delays[0] += 3 * chance()
        if self.duplication and chance() < self.duplication:
            delays.append(delays[0] + self.delay_spread * chance() * 4)
        return delays

    def split(self, side: Iterable[int], other: Iterable[int], *, one_way: bool = False) -> None:
        others = list(other)
        for a in side:
            for b in others:
                self.cuts.add((a, b))
                if not one_way:
                    self.cuts.add((b, a))

    def heal(self) -> None:
        self.cuts.clear()

    def become_good(self) -> None:
        self.heal()
        self.loss = self.duplication = self.stragglers = 0.0
        self.delay_min, self.delay_spread = 0.001, 0.005
