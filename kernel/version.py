"""The version of this distribution, written to every trace."""

VERSION = "0.1.0"
