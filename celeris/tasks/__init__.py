"""The bodies of train.py, sample.py and evaluate.py."""
