"""What outlives a run: the ledger of side effects and the archive of notes, with embedded SQLite as default.

May import `record`.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.stores.archive import Archive, SqliteArchive
    from kernel.stores.ledger import (
        Entry,
        Ledger,
        MemoryLedger,
        SqliteLedger,
        State,
        approval_binding,
        idempotency_key,
    )
else:
    __getattr__ = door(
        __name__,
        archive="Archive SqliteArchive",
        ledger="Entry Ledger MemoryLedger SqliteLedger State approval_binding idempotency_key",
    )
