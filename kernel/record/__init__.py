"""What a run is: its messages, steps, calls and texts as plain values.

The lowest room: imports nothing of the kernel but `errors`. No I/O, no clock, no ids.
"""
