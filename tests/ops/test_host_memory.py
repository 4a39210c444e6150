"""Keeping freed memory: asked for once, and only where the C library knows the request."""

import platform
import sys

import pytest

from flashcart.ops import host_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt of glibc")
def test_glibc_takes_the_request():
    assert host_memory.keep_freed_memory.__wrapped__() is True


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host_memory.keep_freed_memory.__wrapped__() is False


def test_a_library_without_mallopt_is_left_alone(monkeypatch):
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda _: object())
    assert host_memory.keep_freed_memory.__wrapped__() is False
