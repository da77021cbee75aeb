"""Backends that serve clients' sockets themselves (attend.c), with pooler.py in Weir's place."""

from direct import (
    deaths, descriptors, listen, orders, pins, rows, serving, settings, statements, torture, unnamed,
    waits,
)

MODULES = (
    serving, rows, descriptors, settings, statements, unnamed, pins, listen, deaths, orders, waits, torture,
)
