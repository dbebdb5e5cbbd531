"""What a run costs before it is started: memory, arithmetic, communication, time."""
