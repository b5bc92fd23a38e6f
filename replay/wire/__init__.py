"""Any agent, at the wire: a gateway that records what passes between a program and its model servers, and serves it again.

`exchange` is what passed, `dialects` read it, `lineage` tells conversations apart; `scribe` writes a trace of it and `stored` reads
that; `aside` is the process in which the scribe writes; `player` serves it, `differing` explains a miss; `listening` alone opens a port,
`gateway` alone has a client. May import the
kernel, `play`, `readers` and `report`.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from replay.wire.aside import Setting, Summary
    from replay.wire.dialects import reply_of
    from replay.wire.inprocess import NotSame, Server, serving
    from replay.wire.outcome import account_document, outcome_lines
    from replay.wire.player import Account, Player
    from replay.wire.running import Recorded, Replayed, record_program, record_traffic, replay_program, serve
    from replay.wire.stored import Book, load_book
    from replay.wire.upstreams import Upstream, is_loopback, parse_listen, parse_upstreams
    from replay.wire.varying import Varying, varying_for
else:
    __getattr__ = door(
        __name__,
        aside="Setting Summary",
        dialects="reply_of",
        outcome="account_document outcome_lines",
        player="Account Player",
        running="Recorded Replayed record_program record_traffic replay_program serve",
        inprocess="NotSame Server serving",
        stored="Book load_book",
        upstreams="Upstream is_loopback parse_listen parse_upstreams",
        varying="Varying varying_for",
    )
