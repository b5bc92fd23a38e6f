"""Models: the client of OpenAI-compatible servers, and models made of a function or a script.

May import `record`, `masking` and the seams; the only room that opens sockets to models.
"""
