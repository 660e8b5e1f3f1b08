"""Annotates with ITT."""
import sys

import ittapi

ROUNDS = int(sys.argv[1])
domain = ittapi.domain("tasks.app")
event = ittapi.event("event")
for number in range(ROUNDS):
    with ittapi.task("outer", domain=domain):
        with ittapi.task("inner", domain=domain):
            sum(range(1000))
    first = ittapi.task("overlapped", domain=domain, overlapped=True)
    second = ittapi.task("overlapped", domain=domain, overlapped=True)
    first.begin()
    second.begin()
    first.end()
    second.end()
    event.begin()
    event.end()
print("rounds", ROUNDS)
