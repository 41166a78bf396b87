#!/usr/bin/env python3
"""documentation_test.py PROGRAM: what README, docs/ and ./dev tell a reader to type.

Every command that stands there in full is run, page by page and in the order of the page, with a
small model on a small text. Of one that only names a command, or has a PLACEHOLDER, the name is
checked.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import shardwright

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"(?:(?:build/release/)?shardwright|\./dev)(?= )[^`\n]*")
BLOCK_LINE = re.compile(rf"^ *({COMMAND.pattern})$", re.MULTILINE)
SPAN = re.compile(rf"`({COMMAND.pattern})`")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|…|<\w+>")
SMALL = {
    "model.config.hidden_size": 24,
    "model.config.intermediate_size": 40,
    "model.config.num_hidden_layers": 1,
    "data.sequence_length": 16,
    "data.validation_every": 2,
    "optimizer.warmup_steps": 1,
    "parallel.deadline_s": 20,
}


def commands_of(text):
    """In the order of the page: the words of each command, without the program's name."""
    found = [*BLOCK_LINE.finditer(text), *SPAN.finditer(text)]
    for match in sorted(found, key=lambda match: match.start()):
        words = shlex.split(match.group(1), comments=True)
        if words[:2] == ["./dev", "run"] and not PLACEHOLDER.search(words[2]):
            words = words[2:]
        elif words[0] != "./dev":
            words = words[1:]
        yield words


def commands_of_quickstart(script):
    """The commands of ./dev quickstart and those that it names at its end."""
    body = re.search(r"^quickstart\(\) \{\n(.*?)^\}", script, re.MULTILINE | re.DOTALL).group(1)
    for name, value in re.findall(r"\b(run|folder)=(\S+)", body):
        body = body.replace(f"${name}", value)
    return list(commands_of(body))


class Documentation(shardwright.SystemTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        text = [str(self.folder / "text.txt")]
        self.small = {**SMALL, "data.train": text, "data.validation": text}
        done = subprocess.run(
            [ROOT / "dev", "help"], capture_output=True, text=True, check=True
        )
        self.words = re.findall(r"^  (\w+)", done.stdout, re.MULTILINE)

    def run_command(self, words):
        if words[0] == "./dev":
            self.assertIn(words[1], self.words)
        elif len(words) == 1 or any(map(PLACEHOLDER.search, words)):
            self.command(words[0], "--help")
        else:
            self.command(*words, *self.made_small(words))

    def made_small(self, arguments):
        """What is added to a command that takes a run file, so that it takes a moment."""
        if not any(argument.endswith(".toml") for argument in arguments):
            return []
        keys = {**self.small, "train.steps": 4 if "--resume" in arguments else 2}
        return [f"--set={key}={value}" for key, value in keys.items()]

    def run_all(self, commands):
        for words in commands:
            with self.subTest(command=shlex.join(words)):
                self.run_command(words)
        return len(commands)

    def test_of_every_page_works(self):
        for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
            with self.subTest(page=page.relative_to(ROOT).as_posix()):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                count = self.run_all(list(commands_of(page.read_text(encoding="utf-8"))))
                if page == ROOT / "README.md":
                    self.assertGreaterEqual(count, 8)

    def test_pictures_of_pipelines_are_what_the_program_draws(self):
        page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
        lines = [line.strip() for line in page.splitlines()]
        commands = [words for words in commands_of(page) if words[:2] == ["account", "pipeline"]]
        self.assertGreaterEqual(len(commands), 5)
        for words in commands:
            with self.subTest(command=shlex.join(words)):
                drawn = self.command(*words).stdout.splitlines()
                rows = [line.strip() for line in drawn if not line.startswith("formula")]
                at = lines.index(rows[0])
                self.assertEqual(lines[at : at + len(rows)], rows)

    def test_of_the_quickstart_works(self):
        commands = commands_of_quickstart((ROOT / "dev").read_text(encoding="utf-8"))
        self.assertGreaterEqual(self.run_all(commands), 7)


class Reading(shardwright.SystemTest):
    def test_finds_commands_in_blocks_and_spans_in_order(self):
        page = (
            "Text, `./dev test -R 'a b'` and `other`.\n\n"
            '    ./dev run generate runs/a --prompt "The "   # a remark\n\n'
            "    not shardwright plan\n"
            "`build/release/shardwright plan RUN.toml` and a shardwright word.\n"
        )
        self.assertEqual(
            list(commands_of(page)),
            [
                ["./dev", "test", "-R", "a b"],
                ["generate", "runs/a", "--prompt", "The "],
                ["plan", "RUN.toml"],
            ],
        )


if __name__ == "__main__":
    shardwright.main()
