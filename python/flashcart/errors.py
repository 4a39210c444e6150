"""Errors whose message is written for the person at the keyboard.

Takes nothing, returns classes of exceptions and of a warning; formats and prints nothing. The command-line tools print
the message of a `UserError` alone and exit with code 2, that of any other `FlashCartError` with code 1, both without a
traceback.
"""

from __future__ import annotations


class FlashCartError(Exception):
    """Base of all errors of this package; the message is one or two sentences for a user."""


class FlashCartWarning(UserWarning):
    """What a user should know and need not act on; the command-line tools print it as a line of their log."""


class UserError(FlashCartError):
    """Wrong usage or input: exit code 2."""


class ConfigError(UserError):
    """A configuration key, its value, or the YAML file it stands in is wrong."""


class EnvironmentVariableError(UserError):
    """An environment variable holds a value that is not allowed."""


class DeviceError(UserError):
    """A device name is unknown, or this machine has no such device."""


class DataError(UserError):
    """A data file or a frame in it cannot be used."""


class ModelFileError(UserError):
    """A deployable model file is missing, truncated, foreign or newer than this package."""
