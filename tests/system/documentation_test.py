#!/usr/bin/env python3
"""documentation_test.py PROGRAM: what README, docs/ and ./dev tell a reader to type.

Every command that stands there in full is run, page by page and in the order of the page, with a
small model on a small text. Of one that only names a command, or has a PLACEHOLDER, the name is
checked. What docs/techniques/ shows under a `plan` or an `account` is compared with what it prints.
"""

import re
import shlex
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import shardwright

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"(?:(?:build/release/)?shardwright|\./dev)(?= )[^`\n]*")
BLOCK_LINE = re.compile(rf"^ *({COMMAND.pattern})$", re.MULTILINE)
SPAN = re.compile(rf"`({COMMAND.pattern})`")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|…|<\w+>")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    .*$", re.MULTILINE)
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: (B|KiB|MiB)\b)?")
FIGURE = re.compile(r"\d[\d,.]* (?:B|[KMGT]i?B)\b")
SMALL = {
    "model.config.hidden_size": 24,
    "model.config.intermediate_size": 40,
    "model.config.num_hidden_layers": 1,
    "data.sequence_length": 16,
    "data.validation_every": 2,
    "optimizer.warmup_steps": 1,
    "parallel.deadline_s": 20,
}
SMALL_ALREADY = ("examples/techniques.toml", "examples/experts.toml")
COMPARED = ("plan", "account")  # on the pages of techniques: run as they stand there


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


def lines_under_commands(page):
    """[(words of a command, the indented lines between it and the next command or heading)]."""
    found = [(None, [])]
    for line in FENCED.sub("", page).splitlines():
        if line.startswith("#"):
            found.append((None, []))
        elif BLOCK_LINE.match(line):
            found.append((next(commands_of(line)), []))
        elif INDENTED.match(line):
            found[-1][1].append(line.strip())
    return found


def figures_of(printed):
    """{name: integer} of the document that plan or account prints: `gradients` (where all ranks
    have the same) and `rank 0 gradients`, `all_gather dp` (bytes) and `all_gather dp calls`."""
    if "outputs" in printed:
        outputs = printed["outputs"].items()
        return {
            name: Fraction(str(output["value"])) * UNITS[output["unit"]]
            for name, output in outputs
            if isinstance(output["value"], int | float) and output["unit"] in UNITS
        }
    figures = {}
    for rank in printed["ranks"]:
        for name, count in rank["memory"].items():
            figures[f"rank {rank['rank']} {name}"] = count
            if all(other["memory"][name] == count for other in printed["ranks"]):
                figures[name] = count
    for moved in printed["collectives"]:
        name = f"{moved['kind']} {moved['axis']}"
        figures[name] = moved["sent_bytes_per_rank"]
        figures[f"{name} calls"] = moved["calls"]
    return figures


def value_of(expression):
    """Of `2 · 3/4 · 480 KiB + 36 B`, exactly."""

    def exact(match):
        return f"(Fraction('{match.group(1).replace(',', '')}')*{UNITS[match.group(2) or '']})"

    for sign, operator in {"·": "*", "−": "-"}.items():
        expression = expression.replace(sign, operator)
    if not re.fullmatch(r"[-+*/() ]+", NUMBER.sub(" ", expression)):
        raise ValueError(f"{expression!r} is neither a figure of the command above nor a number")
    return eval(NUMBER.sub(exact, expression))  # noqa: S307 (numbers and operators only)


def is_equation(line, figures):
    """Whether all parts of `gradients = 480 KiB / 4 = 120 KiB` are equal and one is a figure."""
    parts = line.split(" = ")
    values = {figures[part] if part in figures else value_of(part) for part in parts}
    return len(parts) > 1 and len(values) == 1 and any(part in figures for part in parts)


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
        if any(name in arguments for name in SMALL_ALREADY):
            keys = {key: value for key, value in keys.items() if not key.startswith("model.")}
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
                commands = list(commands_of(page.read_text(encoding="utf-8")))
                if page in Techniques.PAGES:
                    commands = [words for words in commands if words[0] not in COMPARED]
                count = self.run_all(commands)
                if page == ROOT / "README.md":
                    self.assertGreaterEqual(count, 8)

    def test_of_the_quickstart_works(self):
        commands = commands_of_quickstart((ROOT / "dev").read_text(encoding="utf-8"))
        self.assertGreaterEqual(self.run_all(commands), 7)


class Techniques(shardwright.SystemTest):
    PAGES = sorted(ROOT.glob("docs/techniques/*.md"))

    def setUp(self):
        super().setUp()
        shutil.copytree(ROOT / "examples", self.folder / "examples")

    def check(self, words, lines):
        """Each line is one that the command prints, in its order, or an equation of its figures."""
        printed = [line.strip() for line in self.command(*words).stdout.splitlines()]
        figures = None
        for line in lines:
            if line in printed:
                del printed[: printed.index(line) + 1]
                continue
            figures = figures or figures_of(self.command_json(*words))
            self.assertTrue(is_equation(line, figures), line)

    def test_show_what_the_program_prints(self):
        for page in self.PAGES:
            checked = 0
            for words, lines in lines_under_commands(page.read_text(encoding="utf-8")):
                with self.subTest(page=page.name, command=words and shlex.join(words)):
                    if words and words[0] in COMPARED:
                        self.check(words, lines)
                        checked += len(lines)
                    else:
                        self.assertEqual(lines, [], "lines that no command prints")
            self.assertGreaterEqual(checked, 3, page.name)

    def test_say_no_bytes_that_are_not_shown(self):
        for page in self.PAGES:
            text = FENCED.sub("", page.read_text(encoding="utf-8"))
            shown = set(FIGURE.findall("\n".join(INDENTED.findall(text))))
            with self.subTest(page=page.name):
                self.assertLessEqual(set(FIGURE.findall(INDENTED.sub("", text))), shown)

    def test_are_all_in_the_table(self):
        table = (ROOT / "docs" / "parallelism.md").read_text(encoding="utf-8")
        for page in self.PAGES:
            self.assertIn(f"(techniques/{page.name})", table)


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

    def test_compares_figures_exactly(self):
        figures = {"gradients": 122880, "all_reduce dp": 737316}
        for right in (
            "gradients = 480 KiB / 4 = 120 KiB",
            "all_reduce dp = 2 · 3/4 · 480 KiB + 36 B = 737,316 B",
            "gradients = 2 · (100 KiB − 40 KiB)",
        ):
            self.assertTrue(is_equation(right, figures), right)
        for wrong in (
            "gradients = 480 KiB / 4 = 121 KiB",
            "all_reduce dp = 2 · 3/4 · 480 KiB",
            "480 KiB / 4 = 120 KiB",
            "gradients",
        ):
            self.assertFalse(is_equation(wrong, figures), wrong)
        with self.assertRaises(ValueError):
            is_equation("parameters = 120 KiB", figures)

    def test_gives_a_command_the_lines_under_it(self):
        page = (
            "    before\n# Title\n\n    ./dev run plan a.toml\n\n    one\n\nText.\n\n    two\n"
            "```text\n    picture\n```\n## Next\n    after\n"
        )
        self.assertEqual(
            lines_under_commands(page),
            [
                (None, ["before"]),
                (None, []),
                (["plan", "a.toml"], ["one", "two"]),
                (None, ["after"]),
            ],
        )


if __name__ == "__main__":
    shardwright.main()
