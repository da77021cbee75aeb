"""Backends that serve clients' sockets themselves (attend.c), with pooler.py in Weir's place."""

from direct import deaths, orders, pins, serving, settings, statements, torture, unnamed

MODULES = (serving, settings, statements, unnamed, pins, deaths, orders, torture)
