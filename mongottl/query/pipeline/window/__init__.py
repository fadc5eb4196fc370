"""`$setWindowFields`: partitions, frames, and the functions over them.

set_window_fields  the stage; function: the table of window functions
frame              which documents a window holds
position, scale, slope, fill, covariance: the functions, by family
"""

from mongottl.query.pipeline.window import covariance, fill, position, scale, set_window_fields, slope  # registers

__all__ = ["covariance", "fill", "position", "scale", "set_window_fields", "slope"]
