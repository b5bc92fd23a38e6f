"""A folder of recordings as a regression suite: what the pytest plugin does once there is something to replay."""
