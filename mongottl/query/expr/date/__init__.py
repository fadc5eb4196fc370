"""The date operators.

calendar    years, weeks, days and time zones; parts: the parts of a date
arithmetic  $dateAdd, $dateSubtract, $dateDiff, $dateTrunc
format      $dateToString and $dateFromString; text: parsing of dates
"""

from mongottl.query.expr.date import arithmetic, format, parts, text  # registers the operators

__all__ = ["arithmetic", "format", "parts", "text"]
