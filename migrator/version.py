"""The version of this package; the history says which one did what."""

VERSION = "0.1.0"
