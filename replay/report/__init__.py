"""What is shown to a person or a program: text, JSON, and spans of a replay.

May import `play` and `readers`.
"""
