"""Every command of the first pages, run as a stranger would: a fresh clone, an empty home, the variables of no shell.

`python -m tests.newcomer` needs nothing but Python's own library.
"""
