"""Runs of train.py that are killed, signalled and taken up again, on one process and on several."""
