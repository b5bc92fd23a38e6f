"""Runs the kernel's own loop again on a recording, with doubles at every seam, and finds the differences.

May import the kernel and `readers`; never a report.
"""
