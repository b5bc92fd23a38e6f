"""Tools: what they are, how their arguments are checked, and how a call is run, timed out, isolated and booked.

May import `record` and `stores`; never the loop.
"""
