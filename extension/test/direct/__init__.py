"""Backends that serve clients' sockets themselves (attend.c), with pooler.py in Weir's place."""

from direct import (
    contexts, deaths, descriptors, faults, forks, listen, orders, pins, rows, serving, settings,
    statements, torture, unnamed, waits, walks,
)

MODULES = (
    serving, rows, descriptors, settings, statements, contexts, walks, unnamed, pins, listen, deaths, orders,
    forks, waits, torture,
)
