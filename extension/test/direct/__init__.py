"""Backends that serve clients' sockets themselves (attend.c), with pooler.py in Weir's place."""

from direct import (
    deaths, descriptors, listen, orders, pins, serving, settings, statements, torture, unnamed,
)

MODULES = (
    serving, descriptors, settings, statements, unnamed, pins, listen, deaths, orders, torture,
)
