"""Regular expressions, by PCRE2, the library that mongod uses.

    library      the binding `pcre2` from PyPI, and the order in which all matches of a text are found
    compiled     what filters and expressions use: a pattern with its options
    searching    asks the processes that search long texts, for the operations of one server
    worker       what these processes do

The library can take long for a text of some kilobytes, and nothing ends a search: it counts steps anew for each place
where a match may begin, and a step may go through the whole text (`(?=.*b)a` goes through 100 KB a hundred thousand
times, which takes 20 seconds). The binding keeps the interpreter meanwhile. So a search is done at once only if it
cannot take more than some 20 milliseconds, whatever the pattern is: in a short text, with a limit of steps, or where
the pattern has no repetition. Any other goes to a process, which costs 0.1 ms and is killed if its operation must end.
"""
