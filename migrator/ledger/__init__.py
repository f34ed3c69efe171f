"""What has been done, who did it, and who may do more."""

from migrator.ledger.entries import Comparison, Entry, Intent, MoveNames, Tally
from migrator.ledger.lease import Holder, Lease, break_lease, show_lease, take_lease
from migrator.ledger.ledger import Checkpoint, Event, Ledger, Rejected, address, parse_address, tally_of

__all__ = [
    "Checkpoint", "Comparison", "Entry", "Event", "Holder", "Intent", "Lease", "Ledger", "MoveNames",
    "Rejected", "Tally", "address", "break_lease", "parse_address", "show_lease", "take_lease", "tally_of",
]  # fmt: skip
