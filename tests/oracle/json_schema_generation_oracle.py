"""Texts drawn at random under specd's masks, against jsonschema: each must be a valid instance.

Usage: json_schema_generation_oracle.py SPECD_GRAMMAR_PROBE PATH...

A PATH is a file or a folder of files. A file (*.json) holds a schema, or a list of cases as
tests/data/json_schema describes them.
"""

import json
import pathlib
import sys

import jsonschema

import json_schema_judge
import json_spellings
from grammar_probe import COMPACT, FLEXIBLE, JSON_SCHEMA, OK, GrammarProbe

SEED = 20260817
# Whitespace, keys in any order, texts.
MODES = ((COMPACT, False, 200), (FLEXIBLE, False, 100), (COMPACT, True, 100))
DRAFTS = {
    "draft2020-12": jsonschema.Draft202012Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft4": jsonschema.Draft4Validator,
}
# A text of a schema that nests without a bound may be cut off, but few may.
UNFINISHED_MAX = 0.02


def schemas_of(path):
    document = json_spellings.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, list):
        return [document]
    return [case["schema"] for case in document
            if "refused" not in case and "wrong" not in case and "lenient" not in case]


def files_of(paths):
    for path in map(pathlib.Path, paths):
        yield from sorted(path.glob("*.json")) if path.is_dir() else [path]


def draft_of(schema):
    """The newest draft that the schema is written in, as far as its keywords tell."""
    plain = json.loads(json_spellings.compact(schema))
    for draft, validator in DRAFTS.items():
        try:
            validator.check_schema(plain)
            return draft
        except jsonschema.SchemaError:
            continue
    return None


def with_null(schema):
    """OpenAPI's `nullable`, which jsonschema does not know, as a second type."""
    if isinstance(schema, list):
        return [with_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: with_null(value) for name, value in schema.items()}
    if schema.get("nullable") is True and "type" in schema:
        types = schema["type"]
        schema["type"] = list(types if isinstance(types, list) else [types]) + ["null"]
    return schema


def main():
    probe = GrammarProbe(sys.argv[1])
    wrong = []
    num_schemas = num_texts = num_unfinished = num_unjudged = 0
    for path in files_of(sys.argv[2:]):
        for schema in schemas_of(path):
            text = json_spellings.compact(schema)
            draft = draft_of(schema)
            if draft is None:
                wrong.append(f"{path.name}: no draft has this schema: {text}")
                continue
            judge = json_schema_judge.Judge(json_spellings.compact(with_null(schema)), draft)
            num_schemas += 1
            for whitespace, any_order, count in MODES:
                code, message = probe.compile(JSON_SCHEMA, text, whitespace, any_order=any_order)
                if code != OK:
                    wrong.append(f"{path.name}: refused {text}: {message}")
                    break
                texts, unfinished = probe.generate(SEED, count)
                num_unfinished += unfinished
                for drawn in texts:
                    num_texts += 1
                    complaint = judge.complaint(drawn)
                    if complaint is json_schema_judge.UNJUDGED:
                        num_unjudged += 1
                    elif complaint is not None:
                        wrong.append(f"{path.name}: {text} drew {drawn!r}: {complaint}")
    print(f"seed {SEED}: {num_schemas} schemas, {num_texts} texts drawn, {num_unfinished} did not "
          f"end in time, {num_unjudged} without a judgement, wrong {len(wrong)}")
    for line in wrong[:40]:
        print(f"wrong: {line[:1500]}")
    is_enough = num_texts > 0 and num_unfinished < UNFINISHED_MAX * num_texts
    return 1 if wrong or not is_enough else 0


if __name__ == "__main__":
    sys.exit(main())
