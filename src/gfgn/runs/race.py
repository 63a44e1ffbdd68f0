"""`Race`: which runs of a search by successive halving continue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gfgn.runs.grid import make_replica
from gfgn.runs.selection import select
from gfgn.train.replica import Replica

FACTOR = 2  # one configuration in this many continues at each rung


class Race:
    """Decides which runs continue at a rung: all runs of one configuration in `FACTOR`, the best ones."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.racing: dict[Replica, list[Replica]] = {}  # the runs of each configuration that has not been stopped
        for replica in replicas:
            self.racing.setdefault(_configuration(replica), []).append(replica)
        self._best: dict[Replica, float] = {}

    def note(self, replicas: Sequence[Replica], scores: Sequence[float]) -> None:
        """Records the best validation scores so far; a finished run keeps its last one."""
        self._best.update(zip(replicas, scores, strict=True))

    def __call__(self, epoch: int, replicas: Sequence[Replica], scores: Sequence[float]) -> list[bool]:
        """Whether each run continues."""
        self.note(replicas, scores)
        runs = [_Scored(replica, self._best[replica]) for group in self.racing.values() for replica in group]
        order = [make_replica(candidate.configuration) for candidate in select(runs).candidates]
        kept = order[: math.ceil(len(order) / FACTOR)]
        self.racing = {configuration: self.racing[configuration] for configuration in kept}
        return [_configuration(replica) in self.racing for replica in replicas]


@dataclass(frozen=True)
class _Scored:
    replica: Replica
    val: float
    dropped: bool = False


def _configuration(replica: Replica) -> Replica:
    return make_replica(replica.configuration)
