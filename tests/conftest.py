"""What holds for all tests: none depends on how busy the machine is."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
