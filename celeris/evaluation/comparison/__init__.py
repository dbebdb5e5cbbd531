"""Checkpoints and finished reports side by side: `evaluate.py compare=`."""
