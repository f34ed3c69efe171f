"""Which phase a migration is in, as Redis holds it: the table of transitions and the markers."""

from migrator.phases.markers import Fence, FenceTakenError, Guard, Marker, Markers
from migrator.phases.table import FORWARD, PHASES, Phase, Transition, transition

__all__ = [
    "FORWARD",
    "PHASES",
    "Fence",
    "FenceTakenError",
    "Guard",
    "Marker",
    "Markers",
    "Phase",
    "Transition",
    "transition",
]
