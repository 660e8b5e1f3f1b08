"""Uses the standard library in one region: `allocates.py N` repeats the work N times."""

import ast
import csv
import gc
import io
import json
import re
import sys

import pfp

# A check for circles would make numbers of addresses, which take more memory if they are large.
# There is one encoder, since the interpreter gives less memory to later objects of a class.
encoder = json.JSONEncoder(check_circular=False)


def work():
    rows = [{"key": f"k{n % 30}", "value": [n, n / 7, "é" * (n % 5)]} for n in range(100)]
    text = encoder.encode(rows)
    assert json.loads(text) == rows
    assert len(re.findall(r'"k\d+"', text)) == 100
    table = io.StringIO()
    csv.writer(table).writerows([row["key"], *row["value"]] for row in rows)
    table.seek(0)
    assert len(sorted(csv.reader(table))) == 100
    tree = ast.parse("\n".join(f"def f{n}(x): return x + {n}" for n in range(20)))
    assert len(list(ast.walk(tree))) > 150


def rounds(count, region):
    for _ in range(count):
        pfp.begin(region)
        # The collection also empties the interpreter's lists of free objects, and starts its count
        # of new objects at 0, so that each round allocates as the others do.
        gc.collect()
        work()
        pfp.end(region)


# At first the interpreter allocates what it keeps, and makes faster code of what runs often.
rounds(30, pfp.scope("first"))
rounds(int(sys.argv[1]), pfp.scope("work"))
