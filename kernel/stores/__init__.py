"""What outlives a run: the ledger of side effects and the archive of notes, with embedded SQLite as default.

May import `record`.
"""
