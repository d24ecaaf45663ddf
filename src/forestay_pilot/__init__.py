"""The pilot: claims jobs from a Forestay server and runs them. Python 3.9, standard library only."""

__version__ = "0.1.0"
