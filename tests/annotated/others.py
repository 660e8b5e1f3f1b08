"""Calls everything in ITT except tasks, through the stock client in the package's native half. The
client exports its functions as pointers, which its macros call."""
import ctypes
import glob
import os
import sys
import threading

import ittapi

ROUNDS = int(sys.argv[1])
client = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(ittapi.__file__), "native*.so"))[0])


class Id(ctypes.Structure):
    _fields_ = [("words", ctypes.c_ulonglong * 3)]


class Named(ctypes.Structure):
    """A string handle, and all fields of a domain before its flags."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("wide_name", ctypes.c_void_p),
        ("extra1", ctypes.c_int),
        ("extra2", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
    ]


class Domain(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_int), ("rest", Named)]


text, word, address = ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_void_p
SIGNATURES = {
    "domain_create": (address, text),
    "string_handle_create": (address, text),
    "task_begin": (None, address, Id, Id, address),
    "task_end": (None, address),
    "region_begin": (None, address, Id, Id, address),
    "region_end": (None, address, Id),
    "frame_begin_v3": (None, address, ctypes.POINTER(Id)),
    "frame_end_v3": (None, address, ctypes.POINTER(Id)),
    "frame_submit_v3": (None, address, ctypes.POINTER(Id), word, word),
    "get_timestamp": (word,),
    "marker": (None, address, Id, address, ctypes.c_int),
    "counter_create": (address, text, text),
    "counter_create_typed": (address, text, text, ctypes.c_int),
    "counter_inc": (None, address),
    "counter_inc_delta": (None, address, word),
    "counter_dec": (None, address),
    "counter_dec_delta": (None, address, word),
    "counter_set_value": (None, address, address),
    "counter_set_value_ex": (None, address, address, word, address),
    "counter_inc_delta_v3": (None, address, address, word),
    "counter_dec_v3": (None, address, address),
    "thread_set_name": (None, text),
    "sync_create": (None, address, text, text, ctypes.c_int),
    "sync_prepare": (None, address),
    "sync_acquired": (None, address),
    "event_create": (ctypes.c_int, text, ctypes.c_int),
    "event_start": (ctypes.c_int, ctypes.c_int),
    "event_end": (ctypes.c_int, ctypes.c_int),
}


def call(name, *arguments):
    """Calls the function to which the client's pointer points; the first call loads the tool. If
    the pointer is null, nothing is called."""
    result, *kinds = SIGNATURES[name]
    at = address.in_dll(client, f"__itt_{name}_ptr__3_0").value
    if at:
        return ctypes.CFUNCTYPE(result, *kinds)(at)(*arguments)


def identity(number):
    return Id((number, 0, 0))


NONE = identity(0)
U64, S32, DOUBLE = 1, 4, 8
domain = call("domain_create", b"others.app")
handles = {name: call("string_handle_create", name) for name in [b"region", b"marker", b"count"]}
# No tool is loaded so far, and the client uses its own objects; this domain is one of them.
earlier = Domain(1, Named(b"earlier", None, 0, None, None))
earlier_task = Named(b"early task", None, 0, None, None)
switched_off = Domain(0, Named(b"off", None, 0, None, None))
bytes_read = call("counter_create", b"bytes", b"others.io")
heat = call("counter_create_typed", b"heat", b"others.io", DOUBLE)
balance = call("counter_create_typed", b"balance", b"others.io", S32)
lock = ctypes.create_string_buffer(8)
# This call loads the tool, which creates all later objects.
call("sync_create", ctypes.addressof(lock), b"mutex", b"the lock", 0)
later = call("domain_create", b"others.later")
late = call("string_handle_create", b"late")
rows = call("counter_create", b"rows", b"others.io")

for number in range(ROUNDS):
    # Another thread ends the first region, before the second region ends.
    call("region_begin", domain, identity(2 * number + 1), NONE, handles[b"region"])
    call("region_begin", domain, identity(2 * number + 2), NONE, handles[b"region"])
    first = identity(2 * number + 1)
    thread = threading.Thread(target=call, args=("region_end", domain, first))
    thread.start()
    thread.join()
    call("region_end", domain, identity(2 * number + 2))
    frame = ctypes.byref(identity(number + 1))
    call("frame_begin_v3", domain, frame)
    call("frame_end_v3", domain, frame)
    begun = call("get_timestamp")
    call("frame_submit_v3", domain, None, begun or 0, call("get_timestamp") or 0)
    call("marker", domain, NONE, handles[b"marker"], 1)
    for each in [earlier, switched_off]:
        call("task_begin", ctypes.addressof(each), NONE, NONE, ctypes.addressof(earlier_task))
        call("task_end", ctypes.addressof(each))
    call("marker", later, NONE, late, 1)
    call("counter_inc_delta", rows, 3)
    call("counter_inc", bytes_read)
    call("counter_inc_delta", bytes_read, 99)
    call("counter_dec", bytes_read)
    call("counter_dec_delta", bytes_read, 9)
    value = ctypes.c_double(36.6)
    call("counter_set_value", heat, ctypes.addressof(value))
    call("counter_set_value_ex", heat, None, 0, ctypes.addressof(value))
    # The value is negative, so it cannot be an amount.
    value = ctypes.c_int(-5)
    call("counter_set_value", balance, ctypes.addressof(value))
    call("counter_inc_delta_v3", domain, handles[b"count"], 7)
    call("counter_dec_v3", domain, handles[b"count"])
    call("sync_prepare", ctypes.addressof(lock))
    call("sync_acquired", ctypes.addressof(lock))


def named():
    call("thread_set_name", b"a thread of ITT")
    call("marker", domain, NONE, handles[b"marker"], 1)


thread = threading.Thread(target=named)
thread.start()
thread.join()
# More events than the tool has room for.
for number in range(1030):
    event = call("event_create", b"event %d" % number, 0) or 0
    call("event_start", event)
    call("event_end", event)
print("rounds", ROUNDS)
