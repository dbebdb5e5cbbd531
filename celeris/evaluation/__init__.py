"""Measuring a model: likelihood bound, text quality under a named scorer, prompt use, speed, and the report."""
