"""Full-text search: terms of texts, parsing and matching of `$search` strings, and scores.

    languages   the supported languages: names, stemmers, stop words
    stopwords   the stop words of each language
    unicode, unicode_tables   delimiters, case and diacritics
    tokenizer   terms of a text
    fields      the strings of a document in a text index, with language and weight; their scores
    search      `$search` strings: terms, phrases, negations; matching them against documents

Implements version 3 of text indexes as documented by MongoDB; versions 1 and 2 fold only ASCII. Libraries are imported
when the first text is processed. Source: MongoDB's pages "Text Indexes", "Text Search Languages" and
"$text"; the scores of the examples there.
"""
