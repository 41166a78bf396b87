"""What every test of the program has: a folder of its own, run files, and what a run left behind.

A script ends with `shardwright.main()` and gets the program's path as its first argument.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = None
DONE, FAILED, REFUSED, COMPARISON_FAILED, STOPPED = 0, 1, 2, 3, 75

# A model of about 35,000 parameters; every test says what differs.
TINY = {
    "model.config.model_type": "llama",
    "model.config.hidden_size": 32,
    "model.config.intermediate_size": 64,
    "model.config.num_hidden_layers": 2,
    "model.config.num_attention_heads": 4,
    "model.config.num_key_value_heads": 2,
    "model.config.vocab_size": 259,
    "model.config.max_position_embeddings": 128,
    "data.train": ["text.txt"],
    "data.sequence_length": 16,
    "train.steps": 4,
    "train.global_batch": 8,
    "train.micro_batch": 2,
    "parallel.dp": 1,
    "parallel.deadline_s": 20,
    "checkpoint.every": 0,
}


def layout(**sizes):
    """The keys of a layout: layout(dp=2, zero=1)."""
    return {f"parallel.{name}": value for name, value in sizes.items()}


def soak(sampled, full):
    """`full` under ./dev soak, which sets SW_SOAK."""
    return full if os.environ.get("SW_SOAK") else sampled


def read_json_lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def read_safetensors(path):
    """{name: (dtype, shape, values)} of a file of float32 and bfloat16 tensors."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "F32":
            values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        else:  # a bfloat16 is the upper half of a float32
            halves = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
            values = struct.unpack(
                f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves))
            )
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


def text_of(lines):
    return "".join(f"The fox number {i * i} jumps over the lazy dog {i}.\n" for i in range(lines))


class SystemTest(unittest.TestCase):
    """A test in a folder of its own, where relative paths start."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="shardwright-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "text.txt").write_text(text_of(60), encoding="utf-8")

    def write_run(self, keys=None, name="run.toml", **layout_sizes):
        """A run file of TINY changed by `keys`, where None takes a key out; its path."""
        merged = {**TINY, **(keys or {}), **layout(**layout_sizes)}
        given = {key: value for key, value in merged.items() if value is not None}
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
        (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return name

    def write_documents(self, documents, name="documents.jsonl"):
        """A JSONL file: a string is a text, a pair a prompt and its completion."""
        with open(self.folder / name, "w", encoding="utf-8") as file:
            for document in documents:
                if isinstance(document, str):
                    line = {"text": document}
                else:
                    line = {"prompt": document[0], "completion": document[1]}
                file.write(json.dumps(line) + "\n")
        return name

    def start(self, *arguments):
        """The command on its way, its output readable as text."""
        process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True, errors="replace",
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def command(self, *arguments, status=DONE, timeout=60):
        """Runs a command, which must end with `status`; what it wrote."""
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True, errors="replace",
            timeout=timeout,
            check=False,
        )
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def command_json(self, *arguments, status=DONE):
        """The one JSON document that a command prints."""
        return json.loads(self.command(*arguments, "--json", status=status).stdout)

    def train(self, out, keys=None, *arguments, status=DONE, **layout_sizes):
        """Trains into `out` from a run file of its own; what the command wrote."""
        run = self.write_run(keys, f"{out}.toml", **layout_sizes)
        return self.command("train", run, "--out", out, *arguments, status=status)

    def refused(self, keys=None, *arguments, **layout_sizes):
        """The line with which train refuses a run file; nothing is written."""
        before = sorted(self.folder.rglob("*"))
        run = self.write_run(keys, "refused.toml", **layout_sizes)
        done = self.command("train", run, "--out", "refused", *arguments, status=REFUSED)
        after = [p for p in sorted(self.folder.rglob("*")) if p.name != "refused.toml"]
        self.assertEqual(after, [p for p in before if p.name != "refused.toml"])
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def metrics(self, out):
        return read_json_lines(self.folder / out / "metrics.jsonl")

    def losses(self, out):
        return [line["loss"] for line in self.metrics(out)]

    def samples(self, out):
        """The sample ids of every step, without the padding of a last window."""
        lines = read_json_lines(self.folder / out / "samples.jsonl")
        return [[sample for sample in line["samples"] if sample >= 0] for line in lines]

    def ledger(self, out):
        return json.loads((self.folder / out / "ledger.json").read_text(encoding="utf-8"))

    def checkpoint(self, out, step):
        return self.folder / out / "checkpoints" / f"step-{step:06}"

    def digests(self, out, step):
        """{name: digest} of every tensor of a checkpoint, moments among them."""
        inspected = self.command_json("checkpoint", "inspect", self.checkpoint(out, step))
        self.assertEqual(inspected["step"], step)
        return {tensor["name"]: tensor["digest"] for tensor in inspected["tensors"]}

    def weights(self, out, step):
        """The float32 weights of a checkpoint, through a Hugging Face folder."""
        target = self.folder / f"{out}-{step}-exported"
        source = self.checkpoint(out, step)
        self.command(
            "checkpoint", "convert", source, "--out", target, "--precision", "float32"
        )
        return read_safetensors(target / "model.safetensors")

    def assert_close_weights(self, ours, theirs, bound):
        self.assertEqual(ours.keys(), theirs.keys())
        for name, (_, shape, values) in ours.items():
            self.assertEqual(shape, theirs[name][1], name)
            worst = max(abs(a - b) for a, b in zip(values, theirs[name][2], strict=True))
            self.assertLessEqual(worst, bound, name)

    def assert_close_losses(self, ours, theirs, bound):
        self.assertEqual(len(ours), len(theirs))
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
            self.assertLessEqual(abs(a - b), bound * abs(b), f"step {step}: {a} and {b}")


def main():
    global PROGRAM  # noqa: PLW0603 (the one argument of a script)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
