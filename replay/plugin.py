"""The pytest plugin of tracefirst: a folder of recordings becomes a regression suite."""
