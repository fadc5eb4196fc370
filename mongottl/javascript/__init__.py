"""Server-side JavaScript: runs the functions of `$where`, `$function`, `$accumulator` and mapReduce.

    library      whether the packages are there
    environment.js  the types of BSON and the functions that scripts see
    values       BSON values as JSON, for scripts, and back
    messages     BSON values in the messages between the server and a script process
    answers      what a script process does with a request: conversion to JSON, the call, and conversion back
    worker       what a script process does: runs scripts with QuickJS
    scripts      what the query engine uses: calls functions, for one operation

Scripts run in processes of their own (`mongottl.processes`). QuickJS checks its time limit only between bytecodes, so
that a single call such as `new Array(5e8).fill(0)` takes half a minute whatever the limit; and the Python binding
cannot end a script that runs. These processes also convert all values, because that can take long.

The binding is quickjs-ng: maintained, MIT licence, wheels for CPython (stable ABI) and PyPy on the usual platforms, and
limits for memory, time and stack. It has no type information. `quickjs` is its archived predecessor, with an older
QuickJS; mini-racer has V8 with its 20 MB per wheel; dukpy and js2py bound neither time nor memory.
"""
