"""Files over 400 lines and functions over 70: listed for a reader, never a failure."""

import ast
import re

from findings import Large
from source_tree import line_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

_PREPROCESSOR = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_SCOPE = re.compile(r"\b(?:namespace|extern|class|struct|union|enum|TEST_SUITE)\b")
_FUNCTION_NAME = re.compile(r"([\w~:]+|operator\s*\S+)\s*\(")
_INITIALISER_LIST = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)")


def list_large(file):
    if file.path.endswith((".md", ".txt", ".json")):
        return
    num_lines = len(file.lines) - (1 if file.text.endswith("\n") else 0)
    if num_lines > FILE_LINES_MAX:
        yield Large(file.path, 1, "file", num_lines)
    functions = _python_functions(file) if file.path.endswith(".py") else \
        _cpp_functions(file) if file.is_code() else ()
    for line, name, length in functions:
        if length > FUNCTION_LINES_MAX:
            yield Large(file.path, line, name, length)


def _python_functions(file):
    for node in ast.walk(ast.parse(file.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1


def _cpp_functions(file):
    """Yields (line, name, number of lines) of function bodies.

    This is no parser. A brace outside any function opens one if a parenthesis stands between the
    brace and the statement before, unless the words say namespace, class or the like. Enough for
    code that clang-format has laid out.
    """
    code = file.without_comments_and_strings()
    code = _PREPROCESSOR.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
    scopes = []  # For each open brace: the function's first line and its name, or None.
    begin = 0  # The offset of the current statement.
    for match in re.finditer(r"[{};]", code):
        inside_function = any(scope is not None for scope in scopes)
        if match[0] == "{":
            statement = code[begin:match.start()]
            scopes.append(None if inside_function else _function_start(statement, begin, code))
            if _is_member_initialiser(statement) and not inside_function:
                continue  # The statement, a constructor, goes on after the closing brace.
        elif match[0] == "}" and scopes:
            scope = scopes.pop()
            if scope is not None:
                yield scope[0], scope[1], line_of(code, match.start()) - scope[0] + 1
            elif _is_member_initialiser(code[begin:match.start()].split("{")[0]):
                continue
        begin = match.end()


def _function_start(statement, begin, code):
    name = _FUNCTION_NAME.search(statement)
    if name is None or _SCOPE.search(statement.split("(")[0]) or _is_member_initialiser(statement):
        return None
    if re.search(r"(?<![=!<>])=(?!=)", statement.split("(")[0]) and "operator" not in statement:
        return None  # A variable with an initialiser.
    offset = begin + len(statement) - len(statement.lstrip())
    return line_of(code, offset), name[1]


def _is_member_initialiser(statement):
    """True for `Foo(int a) : a_` before the brace of `a_{a}`."""
    return bool(_INITIALISER_LIST.search(statement) and re.search(r"[\w>]\s*$", statement))
