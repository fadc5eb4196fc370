"""Where documents are kept: the contract in `interface`, its engines, and `contract`, which holds them to it.

Importing this package registers the engines.
"""

from mongottl.storage import memory as memory
from mongottl.storage import sqlite as sqlite
