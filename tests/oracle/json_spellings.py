"""Spellings of a JSON value: the same value as several texts. Numbers keep the digits they came with."""

import itertools
import json


class Number(str):
    """A number as it was written: reading it as a float would round it."""


def loads(text):
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse)


def _refuse(name):
    raise ValueError(f"{name} is not JSON")


def declared_names(schema, names=None):
    """Every name that `properties` declares anywhere in the schema, in the order of the text."""
    names = {} if names is None else names
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            for name in properties:
                names.setdefault(name, len(names))
        for value in schema.values():
            declared_names(value, names)
    elif isinstance(schema, list):
        for value in schema:
            declared_names(value, names)
    return names


def compact(value, ascii_only=False, ranks=None, space=""):
    """One text of `value`. With `ranks` a member whose name has a rank comes before all others."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        items = [compact(item, ascii_only, ranks, space) for item in value]
        return f"[{space}{f'{space},{space}'.join(items)}{space}]" if items else f"[{space}]"
    if isinstance(value, dict):
        names = list(value)
        if ranks is not None:
            names.sort(key=lambda name: ranks.get(name, len(ranks)))
        members = [f"{json.dumps(name, ensure_ascii=ascii_only)}{space}:{space}"
                   f"{compact(value[name], ascii_only, ranks, space)}" for name in names]
        return f"{{{space}{f'{space},{space}'.join(members)}{space}}}" if members else f"{{{space}}}"
    return json.dumps(value, ensure_ascii=ascii_only)


def _without_fraction(value):
    """Whole numbers that were written as 1.0 become 1."""
    if isinstance(value, Number):
        whole, point, fraction = value.partition(".")
        return Number(whole) if point and fraction.strip("0") == "" else value
    if isinstance(value, list):
        return [_without_fraction(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_fraction(item) for name, item in value.items()}
    return value


def spellings(value, schema, drops_fractions, space):
    """Texts of `value` as bytes: in its own order, in that of the schema, and in others."""
    texts = []
    orders = [declared_names(schema), None]
    if isinstance(value, dict) and len(value) <= 4:
        orders += [{name: rank for rank, name in enumerate(names)}
                   for names in itertools.permutations(value)]
    for form in (value, _without_fraction(value)) if drops_fractions else (value,):
        for order in orders:
            for ascii_only in (False, True):
                text = compact(form, ascii_only, order, space)
                try:
                    encoded = text.encode()
                except UnicodeEncodeError:  # half of a surrogate pair has no UTF-8
                    continue
                if encoded not in texts:
                    texts.append(encoded)
    return texts
