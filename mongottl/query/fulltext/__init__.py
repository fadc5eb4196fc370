"""Full-text search: from text to terms, from a `$search` string to what a document must hold, and scores.

    languages   the languages there are: names, stemmers, stop words
    stopwords   the words of each that say nothing by themselves
    unicode, unicode_tables   delimiters, case and diacritics
    tokenizer   text into terms
    fields      which strings of a document a text index covers, in which language, with which weight; their scores
    search      `$search` strings: terms, phrases, negations; matching them against documents

What MongoDB documents of version 3 of text indexes holds here; versions 1 and 2 fold ASCII alone. Nothing is imported
from outside before the first text is looked at. Source: MongoDB's pages "Text Indexes", "Text Search Languages" and
"$text"; the scores of the examples there.
"""
