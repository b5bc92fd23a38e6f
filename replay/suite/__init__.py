"""A folder of recordings as a regression suite: what the pytest plugin does once there is something to replay.

May import all other rooms of replay but the command line. It has no door: plugin and command come in, and load nothing for one.
"""
