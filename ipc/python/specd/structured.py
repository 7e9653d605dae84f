"""StructuredOutputs names the constraint that a sequence's output follows."""

from __future__ import annotations

import json as json_text
from typing import Any

from ._library import refusal
from .param_table import CONSTRAINT_CHOICES, refused

# {keyword: its name in the library's table}. vLLM calls EBNF a grammar.
KINDS = {"grammar" if kind == "ebnf" else kind: kind
         for kind in CONSTRAINT_CHOICES["grammar_kind"] if kind != "none"}


class StructuredOutputs:
    """A constraint on the text of a whole output: exactly one of the first six keywords.

    >>> specd.StructuredOutputs(regex="[0-9]{3}-[0-9]{4}")
    >>> specd.StructuredOutputs(json={"type": "object", "properties": {"age": {"type": "integer"}}})

    json: a JSON Schema, as a dict or its text. regex: a pattern that the whole text matches.
    choice: a list of texts, one of which is the output. grammar: EBNF in the dialect of GBNF and
    xgrammar. json_object=True: any JSON object. structural_tag: tags and triggers, as a dict or its
    text.

    A model's profile may have other defaults for the five keywords below.

    whitespace: "flexible" (at most 64 characters between the tokens of JSON) or "compact" (none);
    disable_any_whitespace=True is vLLM's name for compact. key_order: "schema" (declared properties
    in the order of the schema) or "any" (in the order that the model chooses). A model that reasons
    is not constrained before its reasoning_end, but with enable_in_reasoning=True from the first
    token on. lenient=True drops the parts of a schema that cannot be enforced; otherwise specd
    refuses the schema and names the part. A mistake here is an Error, which is a ValueError too; a
    constraint that specd cannot compile is refused when the sequence is opened.
    """

    def __init__(self, *, json: dict[str, Any] | str | None = None, regex: str | None = None,
                 choice: list[str] | None = None, grammar: str | None = None,
                 json_object: bool | None = None, structural_tag: dict[str, Any] | str | None = None,
                 whitespace: str | None = None, disable_any_whitespace: bool | None = None,
                 key_order: str | None = None,
                 lenient: bool | None = None, enable_in_reasoning: bool | None = None,
                 **others: object):
        for name in others:
            raise refusal("structured_outputs: " + (
                refused(name) or f"{name}: no such keyword; they are {', '.join(KINDS)}, whitespace, disable_any_whitespace, "
                "key_order, lenient, enable_in_reasoning"))
        texts = {"json": _json("json", json), "regex": _text("regex", regex),
                 "choice": _choice(choice), "grammar": _text("grammar", grammar),
                 "json_object": "" if _flag("json_object", json_object or False) else None,
                 "structural_tag": _json("structural_tag", structural_tag)}
        given = [name for name, text in texts.items() if text is not None]
        if len(given) != 1:
            raise refusal(f"structured_outputs: {' and '.join(given) or 'none'} given; give "
                          f"exactly one of {', '.join(KINDS)}")
        self.kind: str = KINDS[given[0]]
        self.text: str = texts[given[0]] or ""
        if disable_any_whitespace is not None:
            named = "compact" if _flag("disable_any_whitespace", disable_any_whitespace) else None
            if named and whitespace == "flexible":
                raise refusal("structured_outputs: disable_any_whitespace=True is "
                              'whitespace="compact"; give one of the two')
            whitespace = named or whitespace or "flexible"
        # A value that is given here wins over the default of the model's profile, also where it is
        # the library's own default.
        chosen = {"grammar_whitespace": whitespace, "grammar_key_order": key_order,
                  "grammar_lenient": lenient, "grammar_in_reasoning": enable_in_reasoning}
        self.whitespace: str = _one_of("whitespace", whitespace or "flexible")
        self.key_order: str = _one_of("key_order", key_order or "schema")
        self.lenient: bool = _flag("lenient", False if lenient is None else lenient)
        self.in_reasoning: bool = _flag("enable_in_reasoning", False if enable_in_reasoning is None
                                        else enable_in_reasoning)
        self.named_defaults: list[str] = [name for name, value in chosen.items()
                                          if value in ("flexible", "schema", False) and
                                          value is not None]

    def __repr__(self) -> str:
        return f"<specd.StructuredOutputs {self.kind} {self.text!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructuredOutputs) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def fill(self, struct: Any) -> bytes:
        """Sets the fields of a specd_params. Returns the object that must outlive the struct."""
        for name, number in self.numbers().items():
            setattr(struct, f"grammar_{name}", number)
        struct.grammar_lenient = int(self.lenient)
        struct.grammar_in_reasoning = int(self.in_reasoning)
        text = self.text_bytes()
        struct.grammar, struct.grammar_bytes = text, len(text)
        return text

    def numbers(self) -> dict[str, int]:
        """{choice: its number in C} of kind, whitespace and key order."""
        return {name: CONSTRAINT_CHOICES[f"grammar_{name}"].index(getattr(self, name))
                for name in ("kind", "whitespace", "key_order")}

    def text_bytes(self) -> bytes:
        """The text as C takes it, with its length."""
        try:
            return self.text.encode()
        except UnicodeEncodeError as error:
            raise refusal(f"structured_outputs: {self.kind}: {error}") from None


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise refusal(f"structured_outputs: {name}: {value!r} is not a string")
    return value


def _json(name: str, value: dict[str, Any] | str | None) -> str | None:
    """The text of JSON that is given as its text or as a dict."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise refusal(f"structured_outputs: {name}: {value!r} is neither a dict nor a string")
    return _dump(name, value)


def _dump(name: str, value: object) -> str:
    try:
        return json_text.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(f"structured_outputs: {name} is not JSON: {error}") from None


def _choice(value: list[str] | None) -> str | None:
    if value is None:
        return None
    if (not isinstance(value, (list, tuple)) or not value or
            not all(isinstance(text, str) for text in value)):
        raise refusal(f"structured_outputs: choice: {value!r} is not a list of one string or more")
    return _dump("choice", list(value))


def _flag(name: str, value: bool) -> bool:
    if value not in (True, False):
        raise refusal(f"structured_outputs: {name}: {value!r} is neither True nor False")
    return bool(value)


def _one_of(name: str, value: str) -> str:
    names = CONSTRAINT_CHOICES[f"grammar_{name}"]
    if value not in names:
        raise refusal(f"structured_outputs: {name}: {value!r} is not one of {', '.join(names)}")
    return value
