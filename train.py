"""Train a model: `python train.py experiment=tiny`. What it does is in celeris/tasks/train.py."""

import sys

from celeris.tasks.cli import main
from celeris.tasks.train import train

if __name__ == "__main__":
    sys.exit(main(train))
