"""Reading C++ just enough for the checks: blanking of comments and literals, and where functions begin and end."""

import dataclasses
import re

_TOKEN = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"
      | "(?:[^"\\\n]|\\.)*"
      | (?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+'""",
    re.VERBOSE | re.DOTALL,
)


def blank(text, keep_comments=False):
    """The text with comments and the insides of literals as spaces; line breaks stay, so lines keep their number."""

    def replace(match):
        token = match.group(0)
        if token.startswith(("//", "/*")):
            return token if keep_comments else re.sub(r"[^\n]", " ", token)
        return '"' + re.sub(r"[^\n]", " ", token[1:-1]) + '"' if len(token) > 1 else token

    return _TOKEN.sub(replace, text)


def includes(text):
    """(line, path, is_angled) of every #include."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            found.append((number, match.group(2), match.group(1) == "<"))
    return found


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    line: int
    length: int  # lines, from the first of the signature to the closing brace


_TRANSPARENT = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
_AFTER_SIGNATURE = re.compile(r"(\)|\b(const|noexcept|override|final|mutable|try)|&&?|->\s*[\w:<>,\s*&]+)\s*$")
_NAME = re.compile(r"([\w:~]+)\s*\(")


def _kind(head, inside_function):
    """What an opening brace after `head` begins: a scope to look into, a function, a value, or a block."""
    if inside_function:
        return "block"
    stripped = head.strip()
    if "(" not in stripped:
        return "scope" if _TRANSPARENT.search(stripped) else "value"
    if _AFTER_SIGNATURE.search(stripped) and not re.search(r"[=]\s*$", stripped):
        return "function"
    if re.search(r"\)\s*(noexcept\s*)?:[^:]", stripped):
        # A constructor's list of initialisers: `: b_{` begins a value, `: b_{1} {` the body.
        return "function" if stripped.endswith("}") else "value"
    return "scope" if re.match(r"(template\s*<.*>\s*)?(class|struct|union|namespace|extern)\b", stripped) else "value"


def functions(text):
    """Every function with a body, by matching braces. A heuristic: preprocessor branches are read in order."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), blank(text),
                  flags=re.MULTILINE)
    found = []
    stack = []  # (kind, start of the head, head)
    head_start = 0
    depth_of_function = 0
    for match in re.finditer(r"[{};]", code):
        at = match.start()
        symbol = match.group(0)
        if symbol == ";":
            if not stack or stack[-1][0] != "value":
                head_start = at + 1
        elif symbol == "{":
            head = code[head_start:at]
            inside_value = bool(stack) and stack[-1][0] == "value"
            kind = "value" if inside_value else _kind(head, depth_of_function > 0)
            stack.append((kind, head_start, head))
            if kind == "function":
                depth_of_function += 1
            if kind != "value":
                head_start = at + 1
        elif stack:
            kind, start, head = stack.pop()
            if kind == "value":
                continue
            head_start = at + 1
            if kind == "function":
                depth_of_function -= 1
                found.append(_function(code, start, head, at))
    return found


def _function(code, start, head, end):
    skipped = re.match(r"(\s*(public|private|protected)\s*:)*\s*", head).end()
    first = start + skipped
    line = code.count("\n", 0, first) + 1
    name = _NAME.search(head, skipped)
    return Function(name.group(1) if name else "?", line, code.count("\n", first, end) + 1)
