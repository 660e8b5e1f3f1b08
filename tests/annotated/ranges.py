"""Annotates with NVTX in every way that its Python package offers, and prints the number of
rounds."""
import sys
import threading

import nvtx

ROUNDS = int(sys.argv[1])


@nvtx.annotate("outer", domain="app")
def outer():
    with nvtx.annotate("inner", domain="app", category="io", payload=7):
        sum(range(1000))
    nvtx.mark("mark", domain="app")


def crossed():
    # Regions of two domains overlap: each domain nests independently.
    one, other = nvtx.get_domain("one"), nvtx.get_domain("other")
    attributes = [domain.get_event_attributes(message="crossed") for domain in (one, other)]
    one.push_range(attributes[0])
    other.push_range(attributes[1])
    one.pop_range()
    other.pop_range()


def recursive(depth):
    nvtx.push_range("recursive")
    if depth > 1:
        recursive(depth - 1)
    nvtx.pop_range()


for _ in range(ROUNDS):
    outer()
    crossed()
    recursive(5)
    span = nvtx.start_range("span")
    # Another thread ends the range.
    thread = threading.Thread(target=nvtx.end_range, args=(span,))
    thread.start()
    thread.join()
# More names than pfp stores.
for number in range(6000):
    nvtx.push_range(f"made up {number}", domain="many")
    nvtx.pop_range(domain="many")
nvtx.pop_range()
print("rounds", ROUNDS)
