"""Looking at recordings without running an agent: check, diff, stats, scan.

May import `play`, `readers` and `report`.
"""
