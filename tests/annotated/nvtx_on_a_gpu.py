"""Runs itself under the viewer on a machine with a GPU, and checks the counts of its NVTX ranges.

    nvtx_on_a_gpu.py PFP_TOP

Without an argument it is the program that is measured.
"""
import json
import os
import subprocess
import sys
import tempfile

ROUNDS = 200


def work():
    import torch

    if not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use")
    matrix = torch.rand(512, 512, device="cuda")
    for _ in range(ROUNDS):
        with torch.cuda.nvtx.range("step"):
            with torch.cuda.nvtx.range("multiply"):
                product = matrix @ matrix
            with torch.cuda.nvtx.range("wait"):
                torch.cuda.synchronize()
        torch.cuda.nvtx.mark("round")
    # PyTorch pushes a range for each operator.
    with torch.autograd.profiler.emit_nvtx():
        for _ in range(ROUNDS):
            matrix.add(1.0)
    print("sum", int(product.sum().item() > 0))


def watch(pfp_top):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "snapshot.json")
        command = [pfp_top, "run", "--once", "-o", file, "--", sys.executable, __file__]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        print(ran.stdout, ran.stderr, sep="")
        if ran.returncode:
            sys.exit(f"the program or the viewer failed with status {ran.returncode}")
        with open(file) as text:
            snapshot = json.load(text)
    counts = {}
    for cell in snapshot["cells"]:
        name = next(point["name"] for point in snapshot["points"] if point["id"] == cell["point"])
        total = cell["stats"]["count"] + cell["retired"]["count"]
        counts[name] = counts.get(name, 0) + total
    failed = False
    for name in ["step", "multiply", "wait", "round"]:
        found = counts.get(name, 0)
        failed |= found != ROUNDS
        print("ok  " if found == ROUNDS else "BAD ", f"{name}: {found} of {ROUNDS}")
    added = sum(count for name, count in counts.items() if name.startswith("aten::add"))
    failed |= added < ROUNDS
    print("ok  " if added >= ROUNDS else "BAD ", f"aten::add: {added} of {ROUNDS} at least")
    sys.exit(failed)


if len(sys.argv) > 1:
    watch(sys.argv[1])
else:
    work()
