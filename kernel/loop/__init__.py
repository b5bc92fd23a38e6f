"""The ReAct loop: read, ask, evaluate, act, stop.

May import `record`, `parse`, `tools`, `stores` and the seams; never `model`, `trace` or `export`: models and tracers reach it as
arguments.
"""
