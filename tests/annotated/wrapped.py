"""Formats calls with joblib, and prints how often functions of its module were called."""
import sys

from joblib.func_inspect import format_call

rounds = int(sys.argv[1])
for _ in range(rounds):
    text = format_call(sorted, ([3, 1, 2], "a word"), {"reverse": True})
# The counts follow from the module's source: each call formats two arguments, and a third with a
# name.
print("format_call", rounds)
print("format_signature", rounds)
print("_format_arg", 3 * rounds)
print("text", text.splitlines()[-1])
