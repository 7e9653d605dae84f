"""Lenient mode never narrows: what jsonschema takes for an instance of a random schema is accepted.

Usage: json_schema_lenient_oracle.py SPECD_GRAMMAR_PROBE [SEED]

The schemas mix keywords that specd does not enforce with operators that reverse or count what is
below them. A part that is dropped must allow more there, too, never less.
"""

import collections
import json
import random
import sys

import json_schema_judge
import json_spellings
from grammar_probe import COMPACT, JSON_SCHEMA, OK, GrammarProbe

SEED = 20261128
NUM_SCHEMAS = 3000
RESOURCE_EXHAUSTED = 8
NAMES = ("a", "id", "an id", "x1")
SCALARS = (None, True, 0, 1, 5, 4097, -2, "", "a", "id", "an id", "ab", "xid")
# specd refuses \b and a lookbehind, and jsonschema's Python has both.
PATTERNS = ("\\bid", "^a", "(?<=a)b", "id$", "x")
MAX_DEPTH = 3


class Writer:
    def __init__(self, seed):
        self._random = random.Random(seed)

    def _name(self):
        return self._random.choice(NAMES)

    def _schemas(self, depth):
        return [self.schema(depth) for _ in range(self._random.randint(1, 3))]

    def _members(self, names, depth):
        return {name: self.schema(depth) for name in self._random.sample(names, 2)}

    def schema(self, depth=MAX_DEPTH):
        if self._random.random() < 0.1:
            return self._random.random() < 0.7
        schema = {}
        for _ in range(self._random.randint(1, 3)):
            schema.update(self._scalar() if depth == 0 or self._random.random() < 0.35
                          else self._operator(depth - 1))
        return schema

    def _scalar(self):
        return self._random.choice((
            lambda: {"type": self._random.choice(("string", "integer", "array", "object"))},
            lambda: {"pattern": self._random.choice(PATTERNS)},
            lambda: {"uniqueItems": True},
            lambda: {"multipleOf": 4097},
            lambda: {"minProperties": 2},
            lambda: {"maxProperties": 1},
            lambda: {"minItems": 1},
            lambda: {"required": [self._name()]},
            lambda: {"enum": [instance(self._random) for _ in range(3)]},
            lambda: {"format": "ports"},
            lambda: {"maxLength": 2},
        ))()

    def _operator(self, depth):
        return self._random.choice((
            lambda: {"not": self.schema(depth)},
            lambda: {"if": self.schema(depth), "then": self.schema(depth),
                     "else": self.schema(depth)},
            lambda: {"oneOf": self._schemas(depth)},
            lambda: {"anyOf": self._schemas(depth)},
            lambda: {"allOf": self._schemas(depth)},
            lambda: {"properties": self._members(NAMES, depth)},
            lambda: {"patternProperties": self._members(PATTERNS, depth),
                     "additionalProperties": self.schema(depth)},
            lambda: {"patternProperties": self._members(PATTERNS, depth),
                     "unevaluatedProperties": self.schema(depth)},
            lambda: {"additionalProperties": self.schema(depth)},
            lambda: {"propertyNames": self.schema(depth)},
            lambda: {"dependentSchemas": self._members(NAMES, depth)},
            lambda: {"contains": self.schema(depth), "minContains": self._random.randint(0, 1),
                     "maxContains": self._random.randint(0, 2)},
            lambda: {"items": self.schema(depth)},
            lambda: {"prefixItems": self._schemas(depth), "items": self.schema(depth)},
        ))()


def instance(rng, depth=2):
    """Objects inside others have one member, because every order of members would be a spelling."""
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice(SCALARS)
    if kind < 0.65:
        return [instance(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    size = rng.randint(0, 3 if depth == 2 else 1)
    return {name: instance(rng, depth - 1) for name in rng.sample(NAMES, size)}


def main():
    probe = GrammarProbe(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else SEED
    rng = random.Random(seed)
    writer = Writer(seed)
    instances = list(SCALARS) + [instance(rng) for _ in range(60)]
    counts = collections.Counter()
    narrowed = []
    for _ in range(NUM_SCHEMAS):
        schema = writer.schema()
        text = json.dumps(schema)
        code, message = probe.compile(JSON_SCHEMA, text, COMPACT, lenient=True)
        if code == RESOURCE_EXHAUSTED:
            counts["past a limit"] += 1
            continue
        counts["with warnings" if probe.warnings else "without"] += 1
        judge = json_schema_judge.Judge(text)
        for value in instances:
            if judge.complaint(json.dumps(value).encode()) is not None:
                continue
            counts["instances"] += 1
            spellings = json_spellings.spellings(json_spellings.loads(json.dumps(value)), schema,
                                                 False, "")
            if code != OK or not any(probe.is_whole(spelling) for spelling in spellings):
                narrowed.append(f"{text}\n  leaves out {json.dumps(value)}: {message} "
                                f"{probe.warnings}")
                break
    print(f"seed {seed}: {dict(counts)}, narrowed {len(narrowed)}")
    for text in sorted(narrowed, key=len)[:10]:
        print(text[:1500])
    is_telling = counts["with warnings"] > NUM_SCHEMAS / 4 and counts["instances"] > NUM_SCHEMAS
    return 0 if is_telling and not narrowed else 1


if __name__ == "__main__":
    sys.exit(main())
