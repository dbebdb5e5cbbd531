"""Measure a model: `python evaluate.py metrics=[likelihood]`. What it does is in celeris/tasks/evaluate.py."""

import sys

from celeris.tasks.cli import main
from celeris.tasks.evaluate import evaluate

if __name__ == "__main__":
    sys.exit(main(evaluate))
