"""The Python structs, functions and numbers against the headers, field by field.

Usage: abi_test.py INCLUDE_DIR

A compiler is not needed: the headers are plain C99 without conditions, and ctypes lays structs out
as the C compiler does. That the sizes agree with the library is checked whenever it is loaded.
"""

import ctypes
import pathlib
import re
import sys
import unittest

import specd
from specd import _library as c
from specd import _structs
from specd import (arrays, engine, param_table, params, results, rounds, row_space, slot_memory,
                   sequence, trees)

SCALARS = {
    "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32, "float": ctypes.c_float, "double": ctypes.c_double,
    "int": ctypes.c_int, "specd_sequence": ctypes.c_uint64,
}


def headers():
    text = "".join(path.read_text() for path in sorted((INCLUDE / "specd").glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def python_name(c_name):
    return "".join(word.capitalize() for word in c_name.removeprefix("specd_").split("_"))


def ctypes_of(c_type):
    """The ctypes type that stands for a C type, as a struct field or an argument."""
    words = c_type.replace("const", " ").replace("struct ", " ").replace("*", " * ").split()
    name, depth = words[0], words.count("*")
    if name == "char":
        name, depth = ctypes.c_char_p, depth - 1
    elif name in ("void", "specd_engine", "specd_grammar", "specd_matcher", "specd_member",
                  "specd_tokenizer"):
        name, depth = ctypes.c_void_p, depth - 1
    else:
        name = SCALARS.get(name) or getattr(_structs, python_name(name))
    for _ in range(depth):
        name = ctypes.POINTER(name)
    return name


def split(declaration):
    """("const int32_t*", "tokens") of "const int32_t* tokens"."""
    match = re.fullmatch(r"(.*?[\s*])(\w+)", " ".join(declaration.split()))
    return match[1].strip(), match[2]


class AbiTest(unittest.TestCase):
    def test_every_struct_has_the_fields_of_the_header(self):
        structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", headers(), re.DOTALL)
        self.assertGreater(len(structs), 20)
        for name, body in structs:
            with self.subTest(name):
                fields = [split(field) for field in body.split(";") if field.strip()]
                expected = [(field, ctypes_of(c_type)) for c_type, field in fields]
                self.assertEqual(getattr(_structs, python_name(name))._fields_, expected)

    def test_every_function_has_the_arguments_of_the_header(self):
        declared = re.findall(r"SPECD_API ([^;(]*?)(\w+)\(([^)]*)\);", headers())
        self.assertEqual({name for _, name, _ in declared}, set(c.FUNCTIONS))
        for result, name, arguments in declared:
            with self.subTest(name):
                expected = [None if result.strip() == "void" else ctypes_of(result)]
                if arguments.strip() != "void":
                    expected += [ctypes_of(split(a)[0]) for a in arguments.split(",")]
                self.assertEqual(list(c.FUNCTIONS[name]), expected)

    def test_every_number_has_its_name(self):
        defined = {}
        for body in re.findall(r"enum \{(.*?)\};", headers(), re.DOTALL):
            for name, value in re.findall(r"SPECD_(\w+) =\s*(-?\d+)", body):
                defined[name] = int(value)
        mirrored = {}
        for prefix, table in (("VERIFY_", params.VERIFY), ("FILTERS_", params.FILTER_ORDER),
                              ("", arrays.KINDS), ("", rounds.SAMPLING),
                              ("PARAM_", param_table.PARAM_TYPES), ("COIN_", sequence.COIN_PURPOSES)):
            mirrored |= {prefix + name.upper(): value for name, value in table.items()}
        for name in ("TOP_K", "MIXED"):
            mirrored[name + "_CHILDREN"] = mirrored.pop(name)
        mirrored |= {name.upper(): kind for name, kind in row_space._MAP_KINDS.items()}
        mirrored |= {name.upper(): value for name, value in arrays._DTYPES.items()}
        mirrored |= {name.upper().removesuffix("S"): value
                     for name, value in params.LOGPROBS_MODE.items()}
        mirrored |= {name.upper(): role for name, role in slot_memory.SLOT_OUTPUTS.items()}
        mirrored |= {"DRAFT_" + name.upper(): role for name, role in slot_memory.DRAFT_TREE.items()}
        mirrored |= {name.upper(): code for name, (code, _) in slot_memory._ELEMENTS.items()}
        mirrored |= {"STATUS_" + name.upper(): i for i, name in enumerate(results.STATUSES)}
        mirrored |= {"SHARING_" + name.upper(): i for i, name in enumerate(engine.SHARING)}
        mirrored |= {"FINISH_" + (name or "none").upper(): i
                     for i, name in enumerate(results.FINISH_REASONS)}
        mirrored |= {"SEQUENCE_" + name.upper(): i for i, name in enumerate(results.PHASES)}
        mirrored |= {"TARGET_ROWS": row_space._ROLES["target"],
                     "DRAFT_ROWS": row_space._ROLES["draft"],
                     "DRAFT_MAP": row_space._DRAFT_MAP, "NODES_MAX": trees._NODES_MAX,
                     "GRAMMAR_MASK": row_space._ROLES["mask"],
                     "DRAFT_TOKENS": slot_memory.DRAFT_TOKENS, "DISCARD": rounds.DISCARD,
                     "DRAFTS_BY_SLOT": rounds.DRAFTS_BY_SLOT,
                     "PARENTS_BY_SLOT": rounds.PARENTS_BY_SLOT,
                     "ONE_HOT": 0, "SAMPLED": 1, "SAMPLED_REST": 2, "OK": 0, "EMPTY": 2, "FULL": 1}
        for field, names in param_table.CONSTRAINT_CHOICES.items():
            prefix = field.removeprefix("grammar_").replace("kind", "grammar").upper()
            mirrored |= {f"{prefix}_{name.upper()}": i for i, name in enumerate(names)}
        left = {name: value for name, value in defined.items()
                if not name.startswith(("ERROR_", "DETAIL_"))}
        self.assertEqual(mirrored, left)


if __name__ == "__main__":
    INCLUDE = pathlib.Path(sys.argv.pop(1))
    unittest.main()
