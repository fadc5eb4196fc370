"""How operations run: on what they can be left anywhere, what they wait for, and what others see of them.

stack       what operations run on, so that they can be left anywhere; operation_scripts: the same for scripts
steps       what they wait for then; signal: what wakes one
state       the part of an operation that other operations read; client: who has sent it
registry    running operations
gate        what batches ask before a statement
"""
