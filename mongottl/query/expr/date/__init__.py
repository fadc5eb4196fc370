"""The date operators.

calendar    years, weeks and days; parts: what a date consists of
arithmetic  $dateAdd, $dateDiff, $dateTrunc and their like
format      $dateToString; text: $dateFromString
"""

from mongottl.query.expr.date import arithmetic, format, parts, text  # registers the operators

__all__ = ["arithmetic", "format", "parts", "text"]
