"""Expiry: who is expired (`policy`, pure functions) and when to look (`wheel`, a queue of due seconds).

Neither reads a clock, stores anything or knows of commands: both are given the time. Truth is with `policy`, which
every read and write asks; the wheel only tells the reaper when there may be something to remove.
"""
