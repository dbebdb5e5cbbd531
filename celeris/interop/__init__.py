"""Celeris under the interfaces of other packages; each module needs the package it is named after."""
