"""Write text: `python sample.py prompt="Fellow citizens"`. What it does is in celeris/tasks/sample.py."""

import sys

from celeris.tasks.cli import main
from celeris.tasks.sample import sample

if __name__ == "__main__":
    sys.exit(main(sample))
