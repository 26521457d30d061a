# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the tree, its modules, C source without its comments."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
ROOT = pathlib.Path(os.environ.get("LP_CHECK_ROOT", REPO))
OUT = pathlib.Path(os.environ.get("LP_CHECK_OUT", ROOT / "build" / "check"))
JOBS = int(os.environ.get("LP_CHECK_JOBS", os.cpu_count() or 1))

RULES_PAGE = ROOT / "docs" / "rules.md"
RULE = r"[A-Z][1-9][0-9]?"

C_SUFFIXES = (".c", ".h", ".cc")
# As in the Makefile; warnings are errors here.
WARNINGS = """-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual
    -Wcast-align=strict -Wpointer-arith -Wwrite-strings -Wundef -Wvla -Wformat=2
    -Wstrict-prototypes -Wmissing-prototypes -Werror""".split()


EXCEPTIONS_PAGE = pathlib.Path(__file__).resolve().parent / "exceptions.txt"


class Exceptions:
    """What a check lets pass: lines "CHECK WHAT LIMIT" of exceptions.txt, or of the tree's own one.

    A limit is what is there today. More is a problem, and so is less: the list only shrinks. Where
    numbers change with each line (not exact), less is a problem only when it needs no exception.
    """

    def __init__(self, check, problems, exact=True):
        self.check, self.problems, self.exact = check, problems, exact
        self.page = ROOT / EXCEPTIONS_PAGE.relative_to(REPO)
        self.limits, self.used = {}, {}
        for number, line in enumerate(read(self.page).splitlines() if self.page.exists() else [], 1):
            words = line.split()
            if len(words) > 2 and words[0] == check:
                self.limits[" ".join(words[1:-1])] = (int(words[-1]), number)

    def add(self, what, value, path, line_no, text):
        """Something over a check's limit: a problem, unless it is listed."""
        self.used[what] = self.used.get(what, 0) + value
        if what not in self.limits:
            self.problems.add(path, line_no, text)

    def finish(self):
        if os.environ.get("LP_EXCEPTIONS") == "print":  # a new list, for whoever has made it shorter
            for what, value in sorted(self.used.items()):
                print(self.check, what, value)
            sys.exit(0)
        for what, (limit, number) in self.limits.items():
            now = self.used.get(what, 0)
            if now > limit:
                self.problems.add(self.page, number, f"{what}: {now} now, {limit} allowed")
            elif now < limit and (self.exact or now == 0):
                self.problems.add(self.page, number, f"{what}: only {now} now, write that")
        self.problems.finish()


class Problems:
    """Collects what is wrong; finish() prints it and ends the check."""

    def __init__(self):
        self.lines = []

    def add(self, path, line_no, text):
        where = path.relative_to(ROOT) if isinstance(path, pathlib.Path) else path
        self.lines.append(f"{where}:{line_no}: {text}" if line_no else f"{where}: {text}")

    def finish(self):
        for line in self.lines:
            print(line)
        sys.exit(1 if self.lines else 0)


def need_tool(name):
    if not shutil.which(name):
        print(f"{name} is not installed: scripts/deps --dev installs it")
        sys.exit(1)


def all_files():
    """Every file that is, or could be, committed."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=False,
        )
        if listed.returncode == 0:
            names = listed.stdout.decode().split("\0")
            paths = sorted({ROOT / name for name in names if name})
            return [path for path in paths if path.is_file()]
    paths = sorted(path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in paths if path.relative_to(ROOT).parts[0] not in ("build", ".git")]


def files_with(*suffixes):
    return [path for path in all_files() if path.suffix in suffixes]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def rule_names(text):
    """The rules of "L3, S1 to S4 and W2"."""
    found = []
    for before, name in re.findall(rf"(,? and |, | to |^)({RULE})", text):
        if before == " to " and found and found[-1][0] == name[0]:
            found += [f"{name[0]}{i}" for i in range(int(found[-1][1:]) + 1, int(name[1:]))]
        found.append(name)
    return found


def rules_of_page():
    """The rules there are, and those that are said not to be built."""
    if not RULES_PAGE.exists():
        return [], []
    text = read(RULES_PAGE)
    rules = re.findall(rf"^- \*\*({RULE}) ", text, re.M)
    unbuilt = re.search(r"^Not built yet\b[^:]*: (.*)$", text, re.M)
    return rules, rule_names(unbuilt[1].rstrip(".")) if unbuilt else []


def scripts_of(interpreter, suffix):
    """Files with that suffix, or without any and with the interpreter in their first line."""
    found = []
    for path in all_files():
        if path.suffix == suffix:
            found.append(path)
        elif path.suffix == "":
            with open(path, "rb") as file:
                first = file.readline(200)
            if first.startswith(b"#!") and re.search(interpreter.encode(), first):
                found.append(path)
    return found


class Module:
    def __init__(self, name):
        self.name = name
        self.path = ROOT / name / "module.mk"
        self.vars = {"ROOMS": [], "USES": [], "PROGS": [], "TOOLS": [], "GEN": [], "LIBS": []}


def modules():
    found = {}
    for path in sorted(ROOT.glob("*/module.mk")):
        module = Module(path.parent.name)
        text = re.sub(r"#.*", "", read(path)).replace("\\\n", " ")
        for name, var, value in re.findall(
            r"^[ \t]*(\w+)_(ROOMS|USES|PROGS|TOOLS|GEN|LIBS)[ \t]*[:+?]?=[ \t]*(.*)$", text, re.MULTILINE
        ):
            if name == module.name:
                module.vars[var] += value.split()
        found[module.name] = module
    return found


def rooms_of(module):
    """The directories of a module, from bottom to top, as its module.mk names them."""
    return [str(pathlib.PurePath(module.name) / room) for room in module.vars["ROOMS"] or ["."]]


def is_test(path):
    """What is written for tests alone: it may reach over rooms."""
    return bool(re.search(r"_test\.[ch]$", path.name))


def project_includes(path):
    """[(line number, name)] of the headers of ours that a file includes."""
    code = strip(read(path), strings=False)
    found = re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', code, re.MULTILINE)
    return [(line_of(code, one.start(1)), one[1]) for one in found]


def closure(name, table):
    """The module and all it uses, directly or not."""
    seen, todo = set(), [name]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo += table[current].vars["USES"] if current in table else []
    return seen


_TOKENS = re.compile(
    r"""(?P<comment>/\*.*?\*/|//(?:[^\n\\]|\\.)*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip(code, comments=True, strings=True, line_comments=True):
    """C code with comments and what is inside quotes blanked; line numbers stay."""

    def replace(found):
        text = found[0]
        if found["string"]:
            return text[0] + _blank(text[1:-1]) + text[-1] if strings else text
        if not line_comments and text.startswith("//"):
            return text
        return _blank(text) if comments else text

    return _TOKENS.sub(replace, code)


def strip_preprocessor(code):
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*", lambda m: _blank(m[0]), code, flags=re.M | re.S)


def line_of(text, pos):
    return text.count("\n", 0, pos) + 1


def generate_format_headers():
    """Makes OUT/gen/format/*.h from the pages; returns {page: what gen-format complained of}."""
    gen = OUT / "gen" / "format"
    gen.mkdir(parents=True, exist_ok=True)
    complaints = {}
    for page in format_pages():
        made = subprocess.run(
            [str(REPO / "scripts" / "gen-format"), str(page)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        if made.returncode != 0:
            complaints[page] = made.stderr.decode("utf-8", "replace").strip()
            continue
        target = gen / f"{page.stem}.h"
        # The checks run side by side: nobody may see half a header.
        temporary = gen / f"{page.stem}.{os.getpid()}.tmp"
        temporary.write_bytes(made.stdout)
        os.replace(temporary, target)
    return complaints


def format_pages():
    """Format pages that have tables for gen-format."""
    pages = []
    for path in sorted((ROOT / "docs" / "format").glob("*.md")):
        text = re.sub(r"^```.*?^```", "", read(path), flags=re.DOTALL | re.MULTILINE)
        if re.search(r"^(Struct|Constants|Flags):", text, re.MULTILINE):
            pages.append(path)
    return pages


def include_flags():
    # -Iclient: the examples include <lapis.h>, as others do.
    return ["-I.", "-Iclient", f"-I{OUT / 'gen'}", "-D_GNU_SOURCE", '-DLAPIS_VERSION="0"']


def parallel(function, items):
    """[(item, function(item))], JOBS at a time, in order."""
    with concurrent.futures.ThreadPoolExecutor(max(JOBS, 1)) as pool:
        return list(zip(items, pool.map(function, items)))
